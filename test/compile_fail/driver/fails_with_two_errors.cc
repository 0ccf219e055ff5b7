// expect: farmem: long double is wider than 8 bytes: use double
// refused: 2 errors instead of one
#include <farmem/detail/types/describe.h>
const auto& used = fm::detail::descriptor_of<long double>();
int also = nothing_of_this_name;
