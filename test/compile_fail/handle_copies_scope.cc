// expect: deleted
#include <farmem/farmem.h>

void used(const fm::scope& s) { fm::scope copy = s; }
