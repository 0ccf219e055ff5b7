// expect: bit-fields, packed structs and alignas are not managed
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct [[gnu::packed]] bad {
  char a;
  int b;
};
const auto& used = fm::detail::descriptor_of<bad>();
