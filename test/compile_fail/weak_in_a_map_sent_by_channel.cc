// expect: farmem: a channel cannot send an fm::weak: it names an object of this process
#include <farmem/farmem.h>

struct child {
  std::uint64_t id = 0;
};
struct family {
  fm::ref<fm::map<std::uint64_t, fm::weak<child>>> by_age;
};
void used(fm::channel& c, const fm::ptr<family>& f) { c.send(f); }
