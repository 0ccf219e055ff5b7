// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
};
void used(const fm::ptr<node>& p) { p.get_for_write({})->value = 1; }
