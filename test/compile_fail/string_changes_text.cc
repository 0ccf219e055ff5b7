// expect: read-only
#include <farmem/farmem.h>

void used(const fm::string& s) {
  const auto w = s.write();
  w->data()[0] = 'x';
}
