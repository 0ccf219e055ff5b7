// expect: farmem: a union hides which member is alive
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

union either {
  int i;
  float f;
};
struct bad {
  either e;
};
const auto& used = fm::detail::descriptor_of<bad>();
