// expect: read-only
#include <farmem/farmem.h>

struct point {
  int x, y;
};
void used(fm::vector<point>& v) {
  for (auto&& p : v) ++p.x;
}
