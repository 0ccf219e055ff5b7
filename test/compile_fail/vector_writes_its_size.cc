// expect: is private within this context
#include <farmem/farmem.h>

void used(fm::vector<int>& v) { v.write()->size_ = 9; }
