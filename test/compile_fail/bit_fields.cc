// expect: bit-fields, packed structs and alignas are not managed
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  unsigned a : 3;
  unsigned b : 5;
};
const auto& used = fm::detail::descriptor_of<bad>();
