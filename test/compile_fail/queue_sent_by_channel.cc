// expect: a channel cannot send this container
// errors: many, because its entries are unknown
#include <farmem/farmem.h>

struct box {
  fm::ref<fm::queue<int>> what;
};
void used(fm::channel& c, const fm::ptr<box>& b) { c.send(b); }
