// expect: incomplete type
#include <farmem/farmem.h>

int used(const fm::ptr<fm::object>& p) { return p->x; }
