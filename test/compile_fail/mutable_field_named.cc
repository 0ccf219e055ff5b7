// expect: farmem: a mutable field is changed through readers
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

class bad {
 public:
  explicit bad(int n) : n_(n) {}
  static auto fm_fields(auto& self) { return std::tie(self.n_, self.looks_); }

 private:
  int n_ = 0;
  mutable int looks_ = 0;
};
const auto& used = fm::detail::descriptor_of<bad>();
