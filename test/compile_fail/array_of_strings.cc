// expect: farmem: std::string keeps its text outside the heap: use fm::ref<fm::string>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <string>

const auto& used = fm::detail::array_descriptor_of<std::string>();
