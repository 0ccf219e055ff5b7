// expect: farmem: an alternative of fm::variant is a trivially copyable managed type without references
// errors: many, because the variant cannot be made then
#include <farmem/farmem.h>

struct pair {
  fm::ref<pair> first, second;
};
struct node {
  fm::variant<int, pair> value;
};
fm::ptr<node> used(fm::heap& h) { return h.make<node>(); }
