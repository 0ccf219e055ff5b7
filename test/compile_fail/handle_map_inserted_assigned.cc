// expect: discards qualifiers
// get_or_insert gives a copy: a write to it would be lost.
#include <farmem/farmem.h>
struct place {
  double x = 0, y = 0;
};
void move(const fm::map<int, place>& m) {
  m.get_or_insert(1, [] { return place{}; }) = place{1, 1};
}
