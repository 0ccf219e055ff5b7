// expect: is private within this context
#include <farmem/farmem.h>

void used(fm::queue<int>& q) { q.write()->size = 9; }
