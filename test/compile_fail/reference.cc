// expect: for a C++ reference use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int value;
  int& other;
};
const auto& used = fm::detail::descriptor_of<bad>();
