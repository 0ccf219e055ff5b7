// expect: farmem: optional, variant and any are not managed: use a struct with a tag
#include <farmem/detail/describe.h>
#include <object/mock_ref.h>
#include <optional>

struct bad {
  std::optional<int> maybe;
};
const auto& used = fm::detail::descriptor_of<bad>();
