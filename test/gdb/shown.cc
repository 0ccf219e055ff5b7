// The program that test/gdb/check.sh stops in `stopped` and looks at with gdb. With an argument, its core dumps have the
// cache.
#include <farmem/farmem.h>

#include <cstdio>

struct shown {
  int value = 0;
  fm::ref<fm::string> name;
  fm::ref<shown> next;
  fm::ref<fm::vector<int>> numbers;
  fm::weak<shown> back;
};

[[gnu::noinline]] void stopped(const fm::ptr<shown>& p, const fm::ptr<shown>& remote, const fm::vector<int>& v,
                               const fm::read_pin<shown>& pin, const fm::ptr<fm::object>& any,
                               const fm::map<int, int>& m, const fm::set<int>& s) {
  std::printf("%d %zu %d %d %zu\n", p->value, v.size(), pin->value, remote ? 1 : 0, m.size() + s.size());
  if (!any) std::puts("null");
}

int main(int argc, char**) {
  fm::heap h({.cache = 8 << 20, .local_memory = 64 << 20, .local_region = 1 << 20, .dump_cache = argc > 1});
  const auto remote = h.make<shown>({.value = 1});
  if (h.evict_all() != fm::errc::ok) return 1;
  fm::vector<int> v(h);
  for (int i = 0; i < 5'000; ++i) v.push_back(i * 3);
  const auto inner = h.make<shown>({.value = 42, .name = h.str("inner name")});
  auto p = h.make<shown>({.value = 41, .name = h.str("outer name"), .next = inner, .numbers = v});
  p.write()->back = inner;
  const fm::map<int, int> m(h);
  const fm::set<int> s(h);
  for (int i = 0; i < 3'000; ++i) m.insert(i, i);
  for (int i = 0; i < 1'000; ++i) m.erase(i);
  stopped(p, remote, v, inner.read(), nullptr, m, s);
}
