// expect: to compile
#include <array>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <utility>

struct part {
  double weight = 1;
  fm::ref<struct never_defined> owner;
};
class counter {
 public:
  static auto fm_fields(auto& self) { return std::tie(self.n_, self.first_); }

 private:
  int n_ = 0;
  fm::ref<counter> first_;
};
struct good {
  int value = 0;
  fm::ref<good> next;
  std::array<part, 2> parts;
  std::pair<char, fm::ref<float[]>> tagged;
  counter c;
};
const auto& used = fm::detail::descriptor_of<good>();
