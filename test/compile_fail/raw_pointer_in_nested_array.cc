// expect: farmem: a managed type cannot hold a raw pointer: use fm::ref<T>
#include <array>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <utility>

struct cell {
  int n;
  const char* text;
};
struct bad {
  fm::ref<bad> next;
  std::array<std::pair<int, cell>, 4> cells;
};
const auto& used = fm::detail::descriptor_of<bad>();
