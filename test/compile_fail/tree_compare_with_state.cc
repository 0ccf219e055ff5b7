// expect: the Compare of a tree has no state
#include <farmem/farmem.h>

struct seeded {
  unsigned seed = 0;
  bool operator()(unsigned a, unsigned b) const { return (a ^ seed) < (b ^ seed); }
};
void used(fm::heap& h) { (void)fm::map<unsigned, int, seeded>(h); }
