// fm::optional and fm::variant as fields, elements and values: what they hold survives eviction, and what their
// references refer to lives exactly as long as they hold it.
#include "fixture.h"

#include <random>
#include <thread>

using namespace fm::test;

namespace {

struct sum_point {
  std::int32_t x = 0, y = 0;
  friend bool operator==(const sum_point&, const sum_point&) = default;
};
struct sum_target {
  std::uint64_t id = 0;
  fm::ref<sum_target> next;
};
struct sum_other {
  std::uint64_t id = 0;
};
using plain = fm::variant<std::int64_t, double, sum_point>;
using mixed = fm::variant<std::uint64_t, fm::ref<sum_target>, sum_point, fm::ref<fm::string>, fm::ref<fm::vector<int>>>;
struct sum_holder {
  fm::optional<std::uint32_t> maybe;
  fm::optional<sum_point> where;
  plain number;
  mixed what;
  fm::variant<fm::ref<sum_target>, fm::ref<sum_other>> either;
};

static_assert(fm::managed<sum_holder>);
static_assert(fm::has_refs<mixed>);
static_assert(fm::managed_plain<plain>);
static_assert(std::is_trivially_copyable_v<plain>);
static_assert(std::is_trivially_copyable_v<fm::optional<sum_point>>);
static_assert(!std::is_copy_constructible_v<mixed>);
static_assert(sizeof(fm::optional<std::uint32_t>) == sizeof(std::optional<std::uint32_t>));
static_assert(sizeof(plain) == 16);
static_assert(sizeof(mixed) == 24);

}  // namespace

TEST_CASE("an optional holds a value or none, as std::optional does") {
  fm::optional<sum_point> o;
  REQUIRE_FALSE(o);
  REQUIRE(o == std::nullopt);
  REQUIRE(o.value_or({1, 2}) == sum_point{1, 2});
  REQUIRE(code_of([&] { (void)o.value(); }) == fm::errc::not_found);
  o = sum_point{3, 4};
  REQUIRE(o.has_value());
  REQUIRE(o->x == 3);
  o->y = 5;
  REQUIRE(*o == sum_point{3, 5});
  const std::optional<sum_point> standard = o;
  REQUIRE(standard == sum_point{3, 5});
  REQUIRE(fm::optional<sum_point>(standard) == o);
  REQUIRE(o.emplace(7, 8) == sum_point{7, 8});
  o.reset();
  REQUIRE(o == fm::optional<sum_point>());
  o = std::nullopt;
  REQUIRE_FALSE(o.has_value());
}

TEST_CASE("a variant holds its first alternative, then what it is given") {
  plain v;
  REQUIRE(v.index() == 0);
  REQUIRE(v.get<std::int64_t>() == 0);
  v = 2.5;
  REQUIRE(v.holds<double>());
  REQUIRE(v.get<double>() == 2.5);
  REQUIRE_FALSE(v.get_if<sum_point>());
  REQUIRE(code_of([&] { (void)v.get<sum_point>(); }) == fm::errc::wrong_type);
  v = sum_point{1, 2};
  plain copy = v;
  REQUIRE(copy.get<sum_point>() == sum_point{1, 2});
  struct size {
    std::size_t operator()(std::int64_t) const { return 1; }
    std::size_t operator()(double) const { return 2; }
    std::size_t operator()(const sum_point& p) const { return static_cast<std::size_t>(p.x + p.y); }
  };
  REQUIRE(v.visit(size()) == 3);
  REQUIRE(plain(std::int64_t{4}).visit(size()) == 1);
}

TEST_CASE("fields that are optional or variant survive eviction, and keep alive what they hold") {
  fm::heap h(tiny());
  const auto p = h.make<sum_holder>(
      {.maybe = 7, .number = 1.5, .what = h.make<sum_target>({.id = 1}), .either = h.make<sum_other>({.id = 2})});
  require_sound(h);
  REQUIRE(h.collect("held").marked == 3);
  REQUIRE(p->maybe == fm::optional<std::uint32_t>(7));
  REQUIRE_FALSE(p->where.has_value());
  REQUIRE(p->number.get<double>() == 1.5);
  REQUIRE(p->what.get<fm::ref<sum_target>>()->id == 1);
  REQUIRE(p->either.get<fm::ref<sum_other>>()->id == 2);
  REQUIRE_FALSE(p->either.get_if<fm::ref<sum_target>>());

  const fm::weak<sum_target> gone(p->what.get<fm::ref<sum_target>>());
  p.write()->what = h.str("text");
  p.write()->where = sum_point{1, 2};
  p.write()->either = h.make<sum_target>({.id = 3});
  require_sound(h);
  REQUIRE(h.collect("replaced").marked == 3);
  REQUIRE_FALSE(gone.lock());
  const fm::string text = p->what.get<fm::ref<fm::string>>();
  REQUIRE(text == "text");
  REQUIRE(p->either.get<fm::ref<sum_target>>()->id == 3);

  p.write()->what = fm::vector<int>(h, {1, 2, 3});
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(p->what.get<fm::ref<fm::vector<int>>>().size() == 3);

  p.write()->what = std::uint64_t{44};
  REQUIRE(h.collect("a value").ok());
  REQUIRE(h.collect("a value").marked == 3);  // the holder, its target, and the text that `text` roots
  REQUIRE(p->what.visit([](const auto& v) {
    if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::uint64_t>)
      return v;
    else
      return std::uint64_t{0};
  }) == 44);
  require_sound(h);
}

TEST_CASE("variants that change between references and values agree with their shadow under collections") {
  auto o = tiny(1_MiB);
  o.verify_cycles = true;
  fm::heap h(o);
  const auto all = h.array<mixed>(2'000);
  struct shadow {
    std::size_t index = 0;
    std::uint64_t id = 0;
  };
  std::vector<shadow> shadows(2'000);
  std::atomic<bool> stop{false}, failed{false};
  std::thread collecting([&] {
    while (!stop.load()) failed = failed || !h.collect("always").ok();
  });
  std::mt19937_64 random(5);
  std::string wrong;
  for (std::uint64_t step = 1; step <= 20'000 && wrong.empty(); ++step) {
    const std::size_t i = random() % shadows.size();
    {
      const auto in = all.read();
      const mixed& m = (*in)[i];
      const shadow& s = shadows[i];
      if (m.index() != s.index) wrong = "another alternative";
      if (s.index == 0 && m.get<std::uint64_t>() != s.id) wrong = "another number";
      if (s.index == 1) {
        const auto t = m.get<fm::ref<sum_target>>();
        if (t->id != s.id || t->next->id != s.id + 1) wrong = "another target";
      }
      if (s.index == 3 && m.get<fm::ref<fm::string>>() != std::to_string(s.id)) wrong = "another text";
    }
    shadow& s = shadows[i];
    s.id = step;
    const auto fresh = h.make<sum_target>({.id = step, .next = h.make<sum_target>({.id = step + 1})});
    const auto text = h.str(std::to_string(step));
    const auto out = all.write();
    switch (random() % 3) {
      case 0: (*out)[i] = step, s.index = 0; break;
      case 1: (*out)[i] = fresh, s.index = 1; break;
      default: (*out)[i] = text, s.index = 3; break;
    }
  }
  stop = true;
  collecting.join();
  REQUIRE(wrong == "");
  REQUIRE_FALSE(failed);
  require_sound(h);
  std::uint64_t reachable = 1;
  for (const shadow& s : shadows) reachable += s.index == 1 ? 2 : s.index == 3 ? 1 : 0;
  REQUIRE(h.collect("still").ok());
  REQUIRE(h.collect("still").marked == reachable);
}

TEST_CASE("containers hold optionals and variants of values") {
  fm::heap h(tiny());
  fm::hash_map<int, fm::optional<sum_point>> map(h);
  fm::hash_map<int, plain> numbers(h);
  fm::vector<plain> vector(h);
  for (int i = 0; i < 2'000; ++i) {
    map.insert_or_assign(i, i % 2 == 0 ? fm::optional<sum_point>() : fm::optional<sum_point>({i, -i}));
    numbers.insert_or_assign(i, i % 2 == 0 ? plain(0.5) : plain(sum_point{i, 1}));
    vector.push_back(plain(std::int64_t{i}));
  }
  require_sound(h);
  for (int i = 0; i < 2'000; ++i) {
    REQUIRE(map.find(i).value().has_value() == (i % 2 == 1));
    if (i % 2 == 1) REQUIRE(numbers.find(i)->get<sum_point>().x == i);
    REQUIRE(plain(vector[static_cast<std::size_t>(i)]).get<std::int64_t>() == i);
  }
}
