// expect: deleted
#include <array>
#include <farmem/farmem.h>

struct node {
  std::array<int, 4> items;
};
const std::array<int, 4>& used(const fm::ptr<node>& p) { return *p.read(&node::items); }
