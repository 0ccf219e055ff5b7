// expect: fm_fields() must name all of them in order
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

class bad {
 public:
  static auto fm_fields(auto& self) { return std::tie(self.depth_, self.top_); }

 private:
  int depth_ = 0;
  fm::ref<bad> top_, spare_;
};
const auto& used = fm::detail::descriptor_of<bad>();
