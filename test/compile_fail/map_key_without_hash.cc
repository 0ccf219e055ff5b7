// expect: needs a std::hash, or a Hash of the table
#include <farmem/farmem.h>

struct place {
  double x = 0, y = 0;
  bool operator==(const place&) const = default;
};
void used(fm::heap& h) { (void)fm::hash_map<place, int>(h); }
