// expect: farmem: fm::ptr is a root and stays outside the heap: use fm::ref<T>
#include <farmem/detail/types/describe.h>
#include <object/mock_ref.h>

struct bad {
  int value;
  fm::ptr<bad> next;
};
const auto& used = fm::detail::descriptor_of<bad>();
