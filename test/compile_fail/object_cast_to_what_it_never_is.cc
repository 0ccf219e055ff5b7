// expect: this handle never names an object of that type
#include <farmem/farmem.h>

struct a {
  int x;
};
struct b {
  int x;
};
struct c {
  int x;
};
void used(const fm::ptr<fm::one_of<a, b>>& p) { (void)fm::cast<c>(p); }
