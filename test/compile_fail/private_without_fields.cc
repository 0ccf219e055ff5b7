// expect: farmem: a managed class is an aggregate or has a public static auto fm_fields(auto& self)
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

class bad {
 public:
  int n() const { return n_; }

 private:
  int n_ = 0;
};
const auto& used = fm::detail::descriptor_of<bad>();
