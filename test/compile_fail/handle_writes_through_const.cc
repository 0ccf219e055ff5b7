// expect: read-only
#include <farmem/farmem.h>

struct point {
  int x, y;
};
void used(const fm::ptr<const point>& p) { p.write()->x = 1; }
