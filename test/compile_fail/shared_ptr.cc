// expect: farmem: a smart pointer owns memory outside the heap: use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <memory>
#include <object/mock_ref.h>

struct bad {
  std::shared_ptr<bad> p;
};
const auto& used = fm::detail::descriptor_of<bad>();
