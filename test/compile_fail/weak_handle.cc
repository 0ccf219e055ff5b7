// expect: farmem: fm::weak stays outside the heap: use fm::ref<T>
#include <farmem/detail/describe.h>
#include <object/mock_ref.h>

struct bad {
  fm::weak<bad> next;
};
const auto& used = fm::detail::descriptor_of<bad>();
