// expect: farmem: a managed type cannot hold a raw pointer: use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

class bad {
 public:
  static auto fm_fields(auto& self) { return std::tie(self.depth_, self.top_); }

 private:
  int depth_ = 0;
  bad* top_ = nullptr;
};
const auto& used = fm::detail::descriptor_of<bad>();
