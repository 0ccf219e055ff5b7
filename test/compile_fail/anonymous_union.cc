// expect: anonymous union
// errors: many, as the compiler itself refuses to bind the fields
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int tag;
  union {
    int i;
    float f;
  };
};
const auto& used = fm::detail::descriptor_of<bad>();
