// expect: farmem: std::optional, variant and any are not managed: use fm::optional, fm::variant or fm::one_of
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <optional>

struct bad {
  std::optional<int> maybe;
};
const auto& used = fm::detail::descriptor_of<bad>();
