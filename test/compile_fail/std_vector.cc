// expect: farmem: a standard container keeps its elements outside the heap: use fm::ref<fm::vector<T>>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <vector>

struct bad {
  std::vector<int> numbers;
  fm::ref<bad> next;
};
const auto& used = fm::detail::descriptor_of<bad>();
