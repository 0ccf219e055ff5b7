// expect: farmem: std::string keeps its text outside the heap: use fm::ref<fm::string>
#include <farmem/detail/describe.h>
#include <string>
#include <type/mock_ref.h>

struct bad {
  fm::ref<bad> next;
  std::string name;
};
const auto& used = fm::detail::descriptor_of<bad>();
