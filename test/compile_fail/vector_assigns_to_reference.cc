// expect: discards qualifiers
#include <farmem/farmem.h>

struct node {
  int value;
};
void used(fm::vector<fm::ref<node>>& v, const fm::ptr<node>& p) { v.front() = p; }
