// expect: to compile
// refused: should compile, but
#include <farmem/detail/types/describe.h>
const auto& used = fm::detail::descriptor_of<long double>();
