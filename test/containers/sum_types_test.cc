// fm::optional and fm::variant as fields, elements and values: what they hold survives eviction, and what their
// references refer to lives exactly as long as they hold it.
#include <random>
#include <variant>

#include "containers/transports.h"

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

/// Fields of one managed array beside what they must hold. Targets come in pairs, one referring to the other.
class sum_oracle {
  struct target_of {
    std::uint64_t id = 0;
  };
  struct field {
    std::optional<sum_point> where;
    std::variant<std::uint64_t, target_of, sum_point, std::string> what;
  };

 public:
  sum_oracle(fm::heap& h, std::uint64_t seed, std::size_t n)
      : heap_(h), rng_(seed), all_(h.array<fm::ref<sum_holder>>(n)), oracle_(n) {
    const auto out = all_.write();
    for (std::size_t i = 0; i < n; ++i) (*out)[i] = h.make<sum_holder>();
  }

  void step(std::uint64_t id) {
    const std::size_t i = rng_() % oracle_.size();
    check(i);
    if (rng_() % 4 == 0) return move(i, rng_() % oracle_.size());
    const fm::ptr<sum_holder> holder = holder_of(i);
    field& f = oracle_[i];
    // What is stored is made first: nothing is made while a pin is held.
    const auto target = heap_.make<sum_target>({.id = id, .next = heap_.make<sum_target>({.id = id + 1})});
    const auto text = heap_.str(std::to_string(id));
    const auto out = holder.write();
    const sum_point point{std::int32_t(id), -std::int32_t(id)};
    switch (rng_() % 6) {
      case 0: out->what = id, f.what = id; break;
      case 1: out->what = target, f.what = target_of{id}; break;
      case 2: out->what = point, f.what = point; break;
      case 3: out->what = text, f.what = std::to_string(id); break;
      case 4: out->where = point, f.where = point; break;
      default: out->where.reset(), f.where.reset(); break;
    }
  }
  void check(std::size_t i) {
    const auto in = holder_of(i).read();
    const field& f = oracle_[i];
    REQUIRE(std::optional<sum_point>(in->where) == f.where);
    REQUIRE(in->what.index() == f.what.index());
    if (f.what.index() == 0) REQUIRE(in->what.get<std::uint64_t>() == std::get<0>(f.what));
    if (f.what.index() == 1) {
      const auto t = in->what.get<fm::ref<sum_target>>();
      const std::uint64_t id = std::get<1>(f.what).id;
      REQUIRE((t->id == id && t->next->id == id + 1));
    }
    if (f.what.index() == 2) REQUIRE(in->what.get<sum_point>() == std::get<2>(f.what));
    if (f.what.index() == 3) REQUIRE(in->what.get<fm::ref<fm::string>>() == std::get<3>(f.what));
  }
  /// Objects: the array, a holder for each field, and what they refer to.
  [[nodiscard]] std::uint64_t reachable() const {
    std::uint64_t n = 1 + oracle_.size();
    for (const field& f : oracle_) n += f.what.index() == 1 ? 2 : f.what.index() == 3 ? 1 : 0;
    return n;
  }

 private:
  /// A reference goes to another field. Between, a handle alone keeps what it refers to.
  void move(std::size_t from, std::size_t to) {
    const fm::ptr<sum_holder> source = holder_of(from), destination = holder_of(to);
    const auto target = source->what.get_if<fm::ref<sum_target>>();
    if (!target) return;
    source.write()->what = std::uint64_t{0};
    destination.write()->what = *target;
    oracle_[to].what = std::exchange(oracle_[from].what, std::uint64_t{0});
    check(to);
  }
  fm::ptr<sum_holder> holder_of(std::size_t i) { return all_.read()->at(i); }

  fm::heap& heap_;
  std::mt19937_64 rng_;
  const fm::ptr<fm::ref<sum_holder>[]> all_;
  std::vector<field> oracle_;
};

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

TEST_CASE("optionals and variants agree with the standard's over every transport, under collections without end") {
  heap_over over(GENERATE("local", "tcp", "shm"));
  fm::heap& h = over.heap;
  constexpr std::size_t fields = 500;
  sum_oracle all(h, 5, fields);
  beside_collections(h, effort(8'000), [&](std::uint64_t step) {
    all.step(step);
    if (step % 1'000 == 0) REQUIRE(h.evict_all() == fm::errc::ok);
  });
  require_sound(h);
  for (std::size_t i = 0; i < fields; ++i) all.check(i);
  REQUIRE(h.collect("still").ok());
  REQUIRE(h.collect("still").marked == all.reachable());
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
