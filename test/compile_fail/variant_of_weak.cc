// expect: farmem: fm::weak is no alternative of fm::variant: put it beside the variant
#include <farmem/farmem.h>

struct node {
  fm::variant<int, fm::weak<node>> value;
};
fm::ptr<node> used(fm::heap& h) { return h.make<node>(); }
