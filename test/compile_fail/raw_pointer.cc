// expect: farmem: a managed type cannot hold a raw pointer: use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int value;
  bad* next;
};
const auto& used = fm::detail::descriptor_of<bad>();
