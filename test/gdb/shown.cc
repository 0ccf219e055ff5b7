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
  fm::optional<int> some;
  fm::optional<int> none;
  fm::variant<int, fm::ref<shown>, double> number;
  fm::variant<int, fm::ref<shown>, double> link;
};
struct tables {
  fm::hash_map<fm::string, int> sizes;
  fm::hash_set<int> numbers;
  fm::queue<int> jobs;
  fm::map<fm::string, fm::ref<shown>> by_name;
  fm::hash_map<int, int> far;
  fm::queue<int> far_jobs;
  fm::map<int, int> far_tree;
};

[[gnu::noinline]] void stopped(const fm::ptr<shown>& p, const fm::ptr<shown>& remote, const fm::vector<int>& v,
                               const fm::read_pin<shown>& pin, const fm::ptr<fm::object>& any,
                               const fm::map<int, int>& m, const fm::set<int>& s, const tables& t) {
  std::printf("%d %zu %d %d %zu\n", p->value, v.size(), pin->value, remote ? 1 : 0, m.size() + s.size());
  if (!any) std::puts("null");
  std::printf("%zu\n", t.sizes.size());
}

int main(int argc, char**) {
  fm::heap h(
      {.cache = 8 << 20, .local_memory = 64 << 20, .local_region = 1 << 20, .elastic = false, .dump_cache = argc > 1});
  const auto remote = h.make<shown>({.value = 1});
  const tables t{fm::hash_map<fm::string, int>(h),
                 fm::hash_set<int>(h),
                 fm::queue<int>(h),
                 fm::map<fm::string, fm::ref<shown>>(h),
                 fm::hash_map<int, int>(h),
                 fm::queue<int>(h),
                 fm::map<int, int>(h)};
  for (int i = 0; i < 600; ++i) t.far.insert(i, i + 7), t.far_jobs.push(i), t.far_tree.insert(i, i + 8);
  for (int i = 0; i < 200; ++i) t.far_jobs.pop();
  if (h.evict_all() != fm::errc::ok) return 1;
  // One page of the tables is back, one leaf and one block.
  if (!t.far.contains(1) || !t.far_tree.contains(500) || t.far_jobs.front() != 200) return 1;
  fm::vector<int> v(h);
  for (int i = 0; i < 5'000; ++i) v.push_back(i * 3);
  const auto inner = h.make<shown>({.value = 42, .name = h.str("inner name")});
  auto p = h.make<shown>({.value = 41, .name = h.str("outer name"), .next = inner, .numbers = v});
  p.write()->back = inner;
  p.write()->some = 51;
  p.write()->number = 2.5;
  p.write()->link = inner;
  t.sizes.insert("a text", 6);
  t.numbers.insert(61);
  for (int i = 71; i < 74; ++i) t.jobs.push(i);
  t.by_name.insert("the inner one", inner);
  const fm::map<int, int> m(h);
  const fm::set<int> s(h);
  for (int i = 0; i < 3'000; ++i) m.insert(i, i);
  for (int i = 0; i < 1'000; ++i) m.erase(i);
  stopped(p, remote, v, inner.read(), nullptr, m, s, t);
}
