// expect: farmem: a channel cannot send an fm::weak: it names an object of this process
#include <farmem/farmem.h>

struct child {
  fm::weak<child> parent;
};
struct family {
  fm::ref<child[]> children;
};
void used(fm::channel& c, const fm::ptr<family>& f) { c.send(f); }
