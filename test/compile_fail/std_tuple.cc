// expect: farmem: std::tuple has no agreed layout: use a struct or std::pair
#include <farmem/detail/describe.h>
#include <tuple>
#include <type/mock_ref.h>

struct bad {
  std::tuple<int, float> both;
};
const auto& used = fm::detail::descriptor_of<bad>();
