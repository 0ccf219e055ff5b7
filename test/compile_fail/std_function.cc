// expect: farmem: a managed type cannot hold a callable: use an enum
#include <farmem/detail/types/describe.h>
#include <functional>
#include <object/mock_ref.h>

struct bad {
  std::function<void()> call;
};
const auto& used = fm::detail::descriptor_of<bad>();
