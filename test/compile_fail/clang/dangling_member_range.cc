// expect: dangl
// A loop over a member of what -> shows: the section ends before the loop begins.
#include <farmem/farmem.h>
struct node {
  std::array<int, 4> items{};
};
int sum(const fm::ptr<node>& p) {
  int all = 0;
  for (const int x : p->items) all += x;
  return all;
}
