// A case that forgets to say what it expects.
// refused: the first line is not
#include <farmem/detail/types/describe.h>
const auto& used = fm::detail::descriptor_of<long double>();
