// expect: farmem: only a trivially copyable type can be fm::managed_bytes
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>
#include <string>

template <>
struct fm::managed_traits<std::string> : fm::managed_bytes {};
struct bad {
  std::string name;
};
const auto& used = fm::detail::descriptor_of<bad>();
