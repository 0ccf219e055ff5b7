// expect: farmem:
#include <farmem/farmem.h>
#include <string>

struct node {
  std::string name;
};
auto used(fm::heap& h) { return h.make<node>(); }
