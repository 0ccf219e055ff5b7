// expect: farmem: a managed type cannot hold a raw pointer: use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

const auto& used = fm::detail::array_descriptor_of<int*>();
