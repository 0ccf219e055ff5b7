// expect: assign
#include <farmem/farmem.h>

struct node {
  int value;
};
void used(const fm::ptr<node>& p) { p->value = 1; }
