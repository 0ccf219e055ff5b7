// expect: lvalue required as left operand of assignment
#include <farmem/farmem.h>

void used(fm::vector<int>& v) { v.write()->size() = 9; }
