// References whose type is found at run time: an expression tree of closed alternatives, and lists of anything, under
// evictions and collections.
#include <farmem/farmem.h>

#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {

struct literal {
  std::int64_t value = 0;
};
struct negation;
struct sum;
using expression = fm::one_of<literal, negation, sum>;
struct negation {
  fm::ref<expression> of;
};
struct sum {
  fm::ref<expression> left, right;
};

struct entry {
  fm::ref<fm::object> what;
  fm::ref<entry> next;
};

fm::heap_options small() { return {.cache = 1_MiB, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 32_KiB}; }

std::int64_t value_of(const fm::ptr<const expression>& e) {
  struct evaluate {
    std::int64_t operator()(const fm::ptr<const literal>& l) const { return l->value; }
    std::int64_t operator()(const fm::ptr<const negation>& n) const {
      const fm::ptr<const expression> of = n->of;
      return -value_of(of);
    }
    std::int64_t operator()(const fm::ptr<const sum>& s) const {
      const fm::ptr<const expression> left = s->left, right = s->right;
      return value_of(left) + value_of(right);
    }
  };
  return fm::visit(evaluate(), e);
}

/// A tree of `leaves` literals 1, 2, 3, ..., each negated where it is even.
fm::ptr<expression> tree(fm::heap& h, std::int64_t first, std::int64_t leaves) {
  if (leaves == 1) {
    const auto l = h.make<literal>({.value = first});
    if (first % 2 == 0) return h.make<negation>({.of = l});
    return l;
  }
  const auto left = tree(h, first, leaves / 2), right = tree(h, first + leaves / 2, leaves - leaves / 2);
  return h.make<sum>({.left = left, .right = right});
}

template <class F>
fm::error error_of(F&& f) {
  try {
    f();
  } catch (const fm::error& e) {
    return e;
  }
  return {fm::errc::ok, "nothing"};
}

}  // namespace

TEST_CASE("a handle to any object says what it is and becomes a typed one again") {
  fm::heap h(small());
  const auto l = h.make<literal>({.value = 5});
  const auto numbers = h.array<std::uint32_t>(3);
  const fm::string text(h, "text");
  const fm::vector<int> v(h);
  fm::ptr<fm::object> any = l;
  REQUIRE(any == l);
  REQUIRE(l == any);
  REQUIRE(fm::type_of(any) == fm::type_of(l));
  REQUIRE(fm::type_of(any).name.find("literal") != std::string_view::npos);
  REQUIRE(fm::type_of(any).bytes == 8);
  REQUIRE_FALSE(fm::type_of(any).is_array);
  REQUIRE(fm::cast<literal>(any) == l);
  REQUIRE(fm::as<literal>(any)->value == 5);
  REQUIRE(fm::cast<sum>(any) == nullptr);
  REQUIRE(error_of([&] { (void)fm::as<sum>(any); }).code() == fm::errc::wrong_type);
  REQUIRE(std::string(error_of([&] { (void)fm::as<sum>(any); }).what()).find("literal") != std::string::npos);
  any = numbers;
  REQUIRE(fm::type_of(any).is_array);
  REQUIRE(fm::cast<std::uint32_t[]>(any).read()->size() == 3);
  REQUIRE(fm::cast<std::int32_t[]>(any) == nullptr);
  any = text;
  REQUIRE(fm::string(fm::cast<fm::string>(any)) == "text");
  REQUIRE(fm::cast<fm::vector<int>>(any) == nullptr);
  any = v;
  REQUIRE(fm::vector<int>(fm::cast<fm::vector<int>>(any)).empty());
  any = nullptr;
  REQUIRE(fm::cast<literal>(any) == nullptr);
  REQUIRE(error_of([&] { (void)fm::as<literal>(any); }).code() == fm::errc::null_handle);
  const fm::ptr<const fm::object> reader = l;
  STATIC_REQUIRE(std::is_same_v<decltype(fm::cast<literal>(reader)), fm::ptr<const literal>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<fm::ptr<fm::object>, fm::ptr<literal>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<fm::ptr<const literal>, fm::ptr<fm::object>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<fm::ptr<entry>, fm::ptr<expression>>);
  STATIC_REQUIRE(std::is_convertible_v<fm::ptr<fm::one_of<literal, sum>>, fm::ptr<expression>>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<fm::ptr<expression>, fm::ptr<fm::one_of<literal, sum>>>);
}

TEST_CASE("a tree of alternatives larger than the cache is evaluated while it is evicted, collected and evacuated") {
  fm::heap h(small());
  constexpr std::int64_t leaves = 40'000;
  std::int64_t expected = 0;
  for (std::int64_t i = 1; i <= leaves; ++i) expected += i % 2 == 0 ? -i : i;
  const auto root = tree(h, 1, leaves);
  std::int64_t moved = 0;
  for (int round = 0; round < 3; ++round) {
    REQUIRE(value_of(root) == expected);
    REQUIRE(h.evict_all() == fm::errc::ok);
    const fm::cycle_report report = h.collect("the test", fm::evacuate::all);
    REQUIRE(report.ok());
    moved += static_cast<std::int64_t>(report.agents[0].evacuated_objects);
    for (int i = 0; i < 1'000; ++i) (void)tree(h, 1, 20);
  }
  REQUIRE(value_of(root) == expected);
  REQUIRE(moved > leaves);
  REQUIRE(h.stats().misses > 0);
  REQUIRE(h.verify().ok());
}

TEST_CASE("what only a reference of no type refers to stays, and what it referred to goes") {
  fm::heap h(small());
  constexpr std::uint64_t n = 20'000;
  fm::ptr<entry> head;
  for (std::uint64_t i = 0; i < n; ++i) {
    fm::ptr<fm::object> what;
    if (i % 3 == 0) what = h.make<literal>({.value = static_cast<std::int64_t>(i)});
    if (i % 3 == 1) what = fm::string(h, std::to_string(i));
    if (i % 3 == 2) what = h.make<entry>({.what = h.make<literal>({.value = static_cast<std::int64_t>(i)})});
    head = h.make<entry>({.what = what, .next = head});
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.collect().ok());
  const auto check = [&](std::uint64_t i, const fm::ptr<fm::object>& what) {
    if (const auto l = fm::cast<literal>(what)) return i % 3 == 0 && l->value == static_cast<std::int64_t>(i);
    if (const fm::string s = fm::cast<fm::string>(what)) return i % 3 == 1 && s == std::to_string(i);
    const auto inner = fm::as<entry>(what);
    return i % 3 == 2 && fm::as<literal>(inner->what)->value == static_cast<std::int64_t>(i);
  };
  std::uint64_t wrong = 0, i = n;
  for (fm::ptr<entry> at = head; at; at = at->next) wrong += !check(--i, at->what);
  REQUIRE(i == 0);
  REQUIRE(wrong == 0);
  // Overwritten by something else, by nothing, and by what it is compared with.
  head.write()->what = h.make<literal>({.value = -1});
  REQUIRE(fm::cast<literal>(head->what)->value == -1);
  head.write()->what = nullptr;
  REQUIRE(fm::cast<literal>(head->what) == nullptr);
  const fm::ptr<fm::object> mine = h.make<literal>({.value = 7});
  REQUIRE(head.write()->what.compare_exchange(nullptr, mine));
  REQUIRE(head->what == mine);
  REQUIRE(h.collect().ok());
  REQUIRE(fm::as<literal>(head->what)->value == 7);
  REQUIRE(h.verify().ok());
}
