// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
  fm::ref<node> next;
};
void used(const fm::ptr<node>& p) { auto r = p->next; }
