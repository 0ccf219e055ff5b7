// expect: farmem: an fm::ref that is null says none: use the fm::ref itself
// errors: many, because the rule about values fails as well
#include <farmem/farmem.h>

struct node {
  fm::optional<fm::ref<node>> next;
};
fm::ptr<node> used(fm::heap& h) { return h.make<node>(); }
