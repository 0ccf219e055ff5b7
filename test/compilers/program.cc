// A program of a user, which compilers other than the one of the library compile, link and run.
#include <farmem/farmem.h>
#include <farmem/testing.h>

#include <array>

struct node {
  int value = 0;
  fm::ref<node> next;
  std::array<int, 3> items{1, 2, 3};
};

fm::task<int> value_of(fm::ptr<node> p) {
  const auto pin = co_await p.fetch();
  co_return pin->value;
}

int main() {
  fm::testing::agent agent;
  fm::heap h({.agents = {agent.url()}});
  const auto p = h.make<node>({.value = 1});
  p.write()->next = p;
  fm::vector<int> v(h);
  for (int i = 0; i < 1'000; ++i) v.push_back(i);
  fm::hash_map<std::uint64_t, std::uint64_t> m(h);
  m.insert_or_assign(1, 2);
  const fm::string s(h, "text");
  if (h.evict_all() != fm::errc::ok) return 2;
  const fm::ptr<fm::object> any = p;
  if (fm::as<node>(any)->next->value != 1) return 3;
  // Programs and agents know types by their names, so compilers and standard libraries have to agree.
  const fm::ptr<fm::object> table = m;
  if (fm::type_of(table).name.find("<unsigned long, unsigned long, std::hash<unsigned long>, ") == std::string::npos)
    return 6;
  if (fm::run(value_of(p)) != 1) return 3;
  int sum = 0;
  for (const int x : p.read(&node::items)) sum += x;
  for (const int x : v) sum += x;
  try {
    (void)v.at(1'000);
    return 4;
  } catch (const fm::error& e) {
    if (e.code() != fm::errc::out_of_range) return 5;
  }
  const fm::scope in;
  return sum == 499'506 && p.get(in)->value == 1 && m.find(1).value() == 2 && s == "text" ? 0 : 1;
}
