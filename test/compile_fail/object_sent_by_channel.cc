// expect: a channel cannot send an fm::object, whose type can be any
// errors: many, because the type behind is never defined
#include <farmem/farmem.h>

struct box {
  fm::ref<fm::object> what;
};
void used(fm::channel& c, const fm::ptr<box>& b) { c.send(b); }
