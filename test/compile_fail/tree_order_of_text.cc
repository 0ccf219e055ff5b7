// expect: the Compare of a tree of texts is constexpr and compares two std::string_view
#include <farmem/farmem.h>

struct by_size {
  bool operator()(std::string_view a, std::string_view b) const { return a.size() < b.size(); }
};
void used(fm::heap& h) { fm::set<fm::string, by_size>(h).insert("a"); }
