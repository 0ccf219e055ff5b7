// expect: is private within this context
#include <farmem/farmem.h>

void used(fm::map<int, int>& m) { m.write()->top = nullptr; }
