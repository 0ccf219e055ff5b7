// Notices of deaths with a state: it comes to the notice once, moved, and holds no root.
#include <farmem/farmem.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "support/error_code.h"

using namespace fm::literals;

namespace {

struct document {
  int descriptor = 0;
  fm::ref<document> next;
};
struct notice_counters {
  int value = 0;
};
struct closing {
  int descriptor = 0;
  std::string path;
  std::vector<int>* log = nullptr;
};
/// States that are refused, or not.
struct with_root {
  std::string name;
  std::vector<fm::ptr<document>> documents;
};
struct with_weak {
  fm::weak<document> again;
  fm::ptr<notice_counters> counters;
  std::unique_ptr<int> own;
};
struct unseen_base {
  fm::ptr<document> p;
};
template <class S>
constexpr bool refused = fm::detail::holds_root<S, document>();

static_assert(refused<fm::ptr<document>>);
static_assert(refused<fm::ptr<const document>>);
static_assert(refused<fm::ptr<fm::object>>);
static_assert(refused<fm::ptr<fm::one_of<notice_counters, document>>>);
static_assert(refused<fm::read_pin<document>>);
static_assert(refused<fm::write_pin<document>>);
static_assert(refused<fm::member_pin<document, int>>);
static_assert(refused<std::array<fm::ptr<document>, 2>>);
static_assert(refused<std::pair<int, fm::ptr<document>>>);
static_assert(refused<std::unique_ptr<unseen_base>>);
static_assert(refused<with_root>);
static_assert(fm::detail::holds_root<fm::string, fm::string>());
static_assert(!refused<with_weak>);
static_assert(!refused<fm::ptr<notice_counters>>);
static_assert(!refused<fm::ptr<fm::one_of<notice_counters, fm::string>>>);
static_assert(!refused<std::string>);
static_assert(!refused<int>);
static_assert(!refused<fm::vector<int>>);
static_assert(!refused<closing>);

fm::heap_options small() {
  return {.cache = 1_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 32_KiB, .collect = false};
}
void add_descriptor(closing c) { c.log->push_back(c.descriptor + static_cast<int>(c.path.size())); }

}  // namespace

TEST_CASE("a notice with a state gets it once, when its object has died") {
  fm::heap h(small());
  std::vector<int> log;
  auto a = h.make<document>({.descriptor = 40}), b = h.make<document>({.descriptor = 50});
  h.on_dead(a, closing{a->descriptor, "ab", &log}, [](closing c) { c.log->push_back(c.descriptor); });
  h.on_dead(a, closing{a->descriptor, "ab", &log}, add_descriptor);
  h.on_dead(b, closing{b->descriptor, "", &log}, add_descriptor);
  REQUIRE(h.collect("alive").ok());
  REQUIRE(log.empty());
  a = nullptr;
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.collect("dead").ok());
  REQUIRE(h.collect("once more").ok());
  std::sort(log.begin(), log.end());  // notices of one collection come in any order
  REQUIRE(log == std::vector<int>{40, 42});
  h.close();
  REQUIRE(log.size() == 2);
}

TEST_CASE("a state may be moved only, and may name its object weakly") {
  fm::heap h(small());
  static std::atomic<int> said{0};
  said = 0;
  const auto counters = h.make<notice_counters>({.value = 0});
  {
    const auto p = h.make<document>({.descriptor = 1});
    h.on_dead(p, with_weak{p, counters, std::make_unique<int>(7)}, [](with_weak&& s) {
      said += *s.own;
      s.counters.write()->value += s.again.lock() ? 100 : 1;
    });
  }
  REQUIRE(h.collect("dead").ok());
  REQUIRE(said == 7);
  REQUIRE(counters->value == 1);
}

TEST_CASE("a notice with a state of a null handle is refused") {
  fm::heap h(small());
  REQUIRE(fm::test::code_of([&] { h.on_dead(fm::ptr<document>(), 1, [](int) {}); }) == fm::errc::null_handle);
}
