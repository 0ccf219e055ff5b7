// expect: ptr<const point>
#include <farmem/farmem.h>

struct point {
  int x, y;
};
fm::ptr<point> used(const fm::ptr<const point>& p) { return p; }
