// expect: is private within this context
#include <farmem/farmem.h>

struct word {
  fm::ref<fm::vector<int>> hits;
};
void used(const fm::ptr<word>& w) { w->hits.write()->capacity_ = 9; }
