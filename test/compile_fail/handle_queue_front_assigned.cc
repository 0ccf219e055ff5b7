// expect: discards qualifiers
// front() is a copy: a write to it would be lost.
#include <farmem/farmem.h>
struct node {
  int value = 0;
};
void replace_first(const fm::queue<fm::ref<node>>& q, const fm::ptr<node>& p) { q.front() = p; }
