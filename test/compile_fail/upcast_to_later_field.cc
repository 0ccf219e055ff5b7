// expect: farmem: an upcast leads to the type of the first field
#include <farmem/farmem.h>

struct shape {
  int id = 0;
};
struct square {
  double side = 0;
  shape base;
};
fm::ptr<shape> used(const fm::ptr<square>& p) { return fm::upcast<shape>(p); }
