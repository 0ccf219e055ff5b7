// expect: farmem: a managed type cannot hold a raw pointer: use fm::ref<T>
// refused: compiles, but should fail with
#include <farmem/detail/types/describe.h>
const auto& used = fm::detail::descriptor_of<int>();
