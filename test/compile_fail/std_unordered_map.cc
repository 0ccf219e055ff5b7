// expect: farmem: a standard container keeps its elements outside the heap
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <unordered_map>

struct bad {
  std::unordered_map<int, int> index;
};
const auto& used = fm::detail::descriptor_of<bad>();
