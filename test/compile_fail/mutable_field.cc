// expect: farmem: a mutable field is changed through readers
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int n;
  mutable int looks;
};
const auto& used = fm::detail::descriptor_of<bad>();
