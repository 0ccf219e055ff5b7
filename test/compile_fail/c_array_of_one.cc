// expect: farmem: a C array cannot be seen by reflection: use std::array
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int n[1];
};
const auto& used = fm::detail::descriptor_of<bad>();
