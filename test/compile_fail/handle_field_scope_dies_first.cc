// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
};
struct list {
  fm::ref<node> first;
};
int used(const list& l) { return l.first.get(fm::scope())->value; }
