// The table of guarantees in docs/how-to/containers.md: what a vector holds after a member threw, whichever access or
// allocation it was that failed.
#include <algorithm>
#include <functional>
#include <list>
#include <numeric>
#include <ranges>

#include "containers/failures.h"

using namespace fm::test;

namespace {

using numbers = std::vector<std::uint64_t>;
using managed = fm::vector<std::uint64_t>;

/// What a vector may hold when a member has thrown, as the table says.
enum class left {
  as_before,   ///< strong
  beginning,   ///< as before, or the first of what was to be appended stay
  all_and_gap  ///< basic: all that was not to be removed is there, in order
};

struct operation {
  const char* name;
  left when_it_throws;
  std::function<void(const managed&)> run;
  std::function<void(numbers&)> on_oracle;
};

constexpr std::uint64_t chunk = 1024;
constexpr std::uint64_t many = 5 * chunk + 100;  ///< elements, 1 to `many`
constexpr std::uint64_t added = 1'000'000;       ///< what is inserted and appended is this or more

numbers more(std::uint64_t n) {
  numbers all(n);
  std::iota(all.begin(), all.end(), added);
  return all;
}

const std::vector<operation> operations{
    {"push_back", left::as_before, [](auto& v) { v.push_back(added); }, [](auto& o) { o.push_back(added); }},
    {"emplace_back", left::as_before, [](auto& v) { v.emplace_back(added); }, [](auto& o) { o.push_back(added); }},
    {"pop_back", left::as_before, [](auto& v) { v.pop_back(); }, [](auto& o) { o.pop_back(); }},
    {"set", left::as_before, [](auto& v) { v.set(2000, added); }, [](auto& o) { o[2000] = added; }},
    {"clear", left::as_before, [](auto& v) { v.clear(); }, [](auto& o) { o.clear(); }},
    {"reserve", left::as_before, [](auto& v) { v.reserve(many + 3 * chunk); }, [](auto&) {}},
    {"shrink_to_fit", left::as_before, [](auto& v) { v.shrink_to_fit(); }, [](auto&) {}},
    {"resize to less", left::as_before, [](auto& v) { v.resize(1500); }, [](auto& o) { o.resize(1500); }},
    {"resize to more", left::as_before, [](auto& v) { v.resize(many + 3000); }, [](auto& o) { o.resize(many + 3000); }},
    {"resize with a value", left::beginning, [](auto& v) { v.resize(many + 3000, added); },
     [](auto& o) { o.resize(many + 3000, added); }},
    {"append", left::beginning, [](auto& v) { v.append(more(3000)); },
     [](auto& o) {
       const numbers m = more(3000);
       o.insert(o.end(), m.begin(), m.end());
     }},
    {"append of a list", left::beginning,
     [](auto& v) {
       const numbers m = more(1500);
       v.append(std::list<std::uint64_t>(m.begin(), m.end()));
     },
     [](auto& o) {
       const numbers m = more(1500);
       o.insert(o.end(), m.begin(), m.end());
     }},
    {"append of itself", left::beginning, [](auto& v) { v.append(v); },
     [](auto& o) {
       const numbers m = o;
       o.insert(o.end(), m.begin(), m.end());
     }},
    {"assign", left::as_before, [](auto& v) { v.assign(more(3000)); }, [](auto& o) { o = more(3000); }},
    {"assign of its own", left::as_before, [](auto& v) { v.assign(v.begin() + 10, v.end()); },
     [](auto& o) { o.erase(o.begin(), o.begin() + 10); }},
    {"insert at the end", left::as_before, [](auto& v) { v.insert(v.end(), added); },
     [](auto& o) { o.push_back(added); }},
    {"insert of many at the end", left::beginning, [](auto& v) { v.insert(v.end(), 3000, added); },
     [](auto& o) { o.insert(o.end(), 3000, added); }},
    {"insert into the last chunk", left::as_before, [](auto& v) { v.insert(v.begin() + 5 * chunk + 3, added); },
     [](auto& o) { o.insert(o.begin() + 5 * chunk + 3, added); }},
    {"insert of a vector into the last chunk", left::as_before,
     [](auto& v) { v.insert_range(v.begin() + 5 * chunk + 3, more(200)); },
     [](auto& o) {
       const numbers m = more(200);
       o.insert(o.begin() + 5 * chunk + 3, m.begin(), m.end());
     }},
    {"insert", left::all_and_gap, [](auto& v) { v.insert(v.begin() + 700, added); },
     [](auto& o) { o.insert(o.begin() + 700, added); }},
    {"insert of many", left::all_and_gap, [](auto& v) { v.insert(v.begin() + 700, 2500, added); },
     [](auto& o) { o.insert(o.begin() + 700, 2500, added); }},
    {"insert of a range", left::all_and_gap, [](auto& v) { v.insert_range(v.begin() + 700, more(2500)); },
     [](auto& o) {
       const numbers m = more(2500);
       o.insert(o.begin() + 700, m.begin(), m.end());
     }},
    {"insert of itself", left::all_and_gap, [](auto& v) { v.insert_range(v.begin() + 700, v); },
     [](auto& o) {
       const numbers m = o;
       o.insert(o.begin() + 700, m.begin(), m.end());
     }},
    {"erase from the end", left::as_before, [](auto& v) { v.erase(v.begin() + 1500, v.end()); },
     [](auto& o) { o.resize(1500); }},
    {"erase from the last chunk", left::as_before, [](auto& v) { v.erase(v.begin() + 5 * chunk + 3); },
     [](auto& o) { o.erase(o.begin() + 5 * chunk + 3); }},
    {"erase", left::all_and_gap, [](auto& v) { v.erase(v.begin() + 700); }, [](auto& o) { o.erase(o.begin() + 700); }},
    {"erase of many", left::all_and_gap, [](auto& v) { v.erase(v.begin() + 700, v.begin() + 2700); },
     [](auto& o) { o.erase(o.begin() + 700, o.begin() + 2700); }},
    {"erase_if", left::all_and_gap, [](auto& v) { erase_if(v, [](auto x) { return x > 1500 && x % 3 == 0; }); },
     [](auto& o) { std::erase_if(o, [](auto x) { return x > 1500 && x % 3 == 0; }); }},
};

/// Whether all of `some` are in `all`, in that order.
bool in_order(const numbers& some, const numbers& all) {
  auto at = some.begin();
  for (const std::uint64_t x : all)
    if (at != some.end() && *at == x) ++at;
  return at == some.end();
}

/// Looks at a vector whose member threw. `before` and `after` are what it held, and what it would hold.
void check_left(const managed& v, left what, const numbers& before, const numbers& after) {
  const numbers now(v.begin(), v.end());
  switch (what) {
    case left::as_before: REQUIRE(now == before); break;
    case left::beginning:
      REQUIRE((now.size() >= before.size() && now.size() <= after.size()));
      REQUIRE(std::equal(before.begin(), before.end(), now.begin()));
      // Either the new elements, or zeros that are to be filled.
      for (std::size_t i = before.size(); i < now.size(); ++i) REQUIRE((now[i] == after[i] || now[i] == 0));
      break;
    case left::all_and_gap: {
      REQUIRE((now.size() == before.size() || now.size() == after.size()));
      numbers stays;
      std::copy_if(before.begin(), before.end(), std::back_inserter(stays), [&](std::uint64_t x) {
        return after.size() > before.size() || std::find(after.begin(), after.end(), x) != after.end();
      });
      REQUIRE(in_order(stays, now));
      for (const std::uint64_t x : now) REQUIRE((x <= many || (x >= added && x < added + 3000)));
    }
  }
  const std::uint64_t n = v.size();
  v.resize(n + 2 * chunk);
  REQUIRE(std::all_of(v.begin() + std::ptrdiff_t(n), v.end(), [](auto x) { return x == 0; }));
}

numbers counted(std::uint64_t n) {
  numbers all(n);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

}  // namespace

TEST_CASE("a vector keeps what the table says, whichever fetch fails") {
  sparing_agent agent;
  fm::heap h(agent.options());
  const numbers before = counted(many);
  for (const operation& op : operations) {
    INFO(op.name);
    numbers after = before;
    op.on_oracle(after);
    fail_each_fetch(
        h, agent, [&] { return managed(h, before); }, op.run,
        [&](const managed& v, fm::errc result) {
          if (result == fm::errc::ok)
            REQUIRE(std::ranges::equal(v, after));
          else
            check_left(v, op.when_it_throws, before, after);
        });
  }
  require_sound(h);
}

TEST_CASE("a vector keeps what the table says when the cache is full") {
  const numbers before = counted(many);
  int failures = 0;
  for (const operation& op : operations) {
    INFO(op.name);
    numbers after = before;
    op.on_oracle(after);
    fm::heap h(impatient(std::chrono::milliseconds(5)));
    const managed v(h, before);
    fm::errc result{};
    failures += fail_without_room(h, op.when_it_throws == left::as_before, result, [&] { op.run(v); });
    if (result == fm::errc::ok)
      REQUIRE(std::ranges::equal(v, after));
    else
      check_left(v, op.when_it_throws, before, after);
    require_sound(h);
  }
  REQUIRE(failures > 20);
}

TEST_CASE("an exception of a range or a predicate leaves a vector as the table says") {
  fm::heap h(tiny());
  const numbers before = counted(many);
  struct enough {};
  for (const std::uint64_t at : {0ul, 1ul, 900ul, 3000ul}) {
    const auto failing = std::views::iota(added, added + 4000) | std::views::transform([at](std::uint64_t x) {
                           if (x == added + at) throw enough();
                           return x;
                         });
    const managed v(h, before);
    REQUIRE_THROWS_AS(v.append(failing), enough);
    REQUIRE_THROWS_AS(v.insert_range(v.begin() + 700, failing), enough);
    REQUIRE_THROWS_AS(v.insert(v.end(), failing.begin(), failing.end()), enough);
    REQUIRE_THROWS_AS(v.assign(failing), enough);
    REQUIRE_THROWS_AS(managed(h, failing), enough);
    REQUIRE(std::ranges::equal(v, before));
    std::uint64_t asked = 0;
    REQUIRE_THROWS_AS(erase_if(v,
                               [&](std::uint64_t x) {
                                 if (asked++ == at) throw enough();
                                 return x % 3 == 0;
                               }),
                      enough);
    REQUIRE(v.size() == many);
    numbers stays;
    for (const std::uint64_t x : before)
      if (x > at || x % 3 != 0) stays.push_back(x);
    REQUIRE(in_order(stays, numbers(v.begin(), v.end())));
  }
  require_sound(h);
}
