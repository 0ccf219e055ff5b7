// expect: farmem: a managed type cannot hold a function pointer: use an enum
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int (*call)(int);
};
const auto& used = fm::detail::descriptor_of<bad>();
