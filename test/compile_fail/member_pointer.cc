// expect: farmem: a managed type cannot hold a pointer to member: use an enum
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int n;
  int bad::*which;
};
const auto& used = fm::detail::descriptor_of<bad>();
