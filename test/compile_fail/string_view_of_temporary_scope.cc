// expect: deleted
#include <farmem/farmem.h>

auto used(const fm::string& s) { return s.view(fm::scope()); }
