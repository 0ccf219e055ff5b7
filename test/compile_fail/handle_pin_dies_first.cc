// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
};
void used(const fm::ptr<node>& p) { const node& n = *p.read(); }
