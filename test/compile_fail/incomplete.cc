// expect: farmem: a managed type must be complete where it is used
// errors: many, as nothing can be asked of an incomplete type
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad;
const auto& used = fm::detail::descriptor_of<bad>();
