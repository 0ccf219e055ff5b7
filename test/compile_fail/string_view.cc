// expect: farmem: a string view points outside the heap: use fm::ref<fm::string>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <string_view>

struct bad {
  std::string_view name;
};
const auto& used = fm::detail::descriptor_of<bad>();
