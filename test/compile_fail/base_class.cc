// expect: farmem: reflection does not see a base class: make it the first field
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct shape {
  int kind;
};
struct bad : shape {
  fm::ref<bad> next;
};
const auto& used = fm::detail::descriptor_of<bad>();
