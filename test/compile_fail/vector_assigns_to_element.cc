// expect: discards qualifiers
#include <farmem/farmem.h>

struct point {
  int x, y;
};
void used(fm::vector<point>& v) { v[0] = point{1, 2}; }
