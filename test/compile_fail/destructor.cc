// expect: farmem: destructors do not run in a managed heap: remove the destructor
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int n;
  ~bad() { n = 0; }
};
const auto& used = fm::detail::descriptor_of<bad>();
