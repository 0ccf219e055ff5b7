// expect: farmem: a span points outside the heap: use fm::ref<T[]>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <span>

struct bad {
  std::span<int> numbers;
};
const auto& used = fm::detail::descriptor_of<bad>();
