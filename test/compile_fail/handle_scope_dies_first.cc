// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
};
int used(const fm::ptr<node>& p) { return p.get(fm::scope())->value; }
