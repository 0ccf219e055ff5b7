// expect: farmem: a span points outside the heap: use fm::ref<T[]>
#include <farmem/detail/describe.h>
#include <span>
#include <type/mock_ref.h>

struct bad {
  std::span<int> numbers;
};
const auto& used = fm::detail::descriptor_of<bad>();
