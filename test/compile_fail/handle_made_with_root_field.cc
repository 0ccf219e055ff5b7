// expect: farmem: fm::ptr is a root and stays outside the heap: use fm::ref<T>
#include <farmem/farmem.h>

struct node {
  int value;
  fm::ptr<node> next;
};
auto used(fm::heap& h) { return h.make<node>(); }
