// expect: deleted
#include <farmem/farmem.h>

struct node {
  int value;
  fm::ref<node> next;
};
void used(const fm::cursor<node>& c) { fm::cursor<node> copy = c; }
