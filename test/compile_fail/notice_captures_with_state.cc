// expect: farmem: a notice with a state captures nothing: put what it needs into the state
#include <farmem/farmem.h>

struct document {
  int descriptor = 0;
};
void used(fm::heap& h, const fm::ptr<document>& p) {
  h.on_dead(p, p->descriptor, [p](int) {});
}
