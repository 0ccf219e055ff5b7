// expect: farmem: a managed type has no virtual functions: use an enum as a tag
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  virtual int area() const { return 0; }
  int n = 0;
};
const auto& used = fm::detail::descriptor_of<bad>();
