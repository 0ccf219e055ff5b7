// expect: farmem: a state that holds a handle to its object keeps it alive, and its notice never runs
#include <farmem/farmem.h>
#include <vector>

struct document {
  int descriptor = 0;
};
struct state {
  int descriptor = 0;
  std::vector<fm::ptr<document>> closed;
};
void used(fm::heap& h, const fm::ptr<document>& p) {
  h.on_dead(p, state{1, {p}}, [](state) {});
}
