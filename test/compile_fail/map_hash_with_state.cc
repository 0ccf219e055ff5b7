// expect: the Hash of a table has no state
#include <farmem/farmem.h>

struct seeded {
  unsigned seed = 0;
  std::size_t operator()(unsigned k) const { return k ^ seed; }
};
void used(fm::heap& h) { (void)fm::hash_map<unsigned, int, seeded>(h); }
