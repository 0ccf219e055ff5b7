// expect: farmem: long double is wider than 8 bytes: use double
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  long double x;
};
const auto& used = fm::detail::descriptor_of<bad>();
