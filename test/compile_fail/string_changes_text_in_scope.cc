// expect: read-only
#include <farmem/farmem.h>

void used(const fm::string& s, const fm::scope& in) { *s.get_for_write(in)->begin() = 'x'; }
