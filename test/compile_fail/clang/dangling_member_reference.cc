// expect: dangl
// A reference to a member of what -> shows: the section ends with the declaration.
#include <farmem/farmem.h>
struct node {
  std::array<int, 4> items{};
};
int first(const fm::ptr<node>& p) {
  const auto& items = p->items;
  return items[0];
}
