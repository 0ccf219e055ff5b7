// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
};
void used(const fm::ptr<node>& p) { node& n = *p.write(); }
