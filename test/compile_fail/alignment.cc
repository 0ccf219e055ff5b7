// expect: farmem: managed objects are aligned to 8 bytes: remove the larger alignas
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct alignas(32) bad {
  int n;
};
const auto& used = fm::detail::descriptor_of<bad>();
