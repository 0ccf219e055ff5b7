// expect: farmem: std::string keeps its text outside the heap: use fm::ref<fm::string>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <string>

struct bad {
  fm::ref<bad> next;
  std::string name;
};
const auto& used = fm::detail::descriptor_of<bad>();
