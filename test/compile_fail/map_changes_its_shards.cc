// expect: is private within this context
#include <farmem/farmem.h>

void used(fm::hash_map<int, int>& m) { m.write()->shards[0].size = 9; }
