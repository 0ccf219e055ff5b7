// expect: read-only
#include <farmem/farmem.h>

struct count {
  int n;
};
void used(fm::map<int, count>& m) { ++m.find(1)->n; }
