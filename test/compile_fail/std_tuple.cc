// expect: farmem: std::tuple has no agreed layout: use a struct or std::pair
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <tuple>

struct bad {
  std::tuple<int, float> both;
};
const auto& used = fm::detail::descriptor_of<bad>();
