// Weak handles as fields of managed objects: null when their object has died, wherever they are and whatever has become of
// its slot, and until then a way to it.
#include "collector/roots/weak_cells.h"
#include "heap/heap_core.h"
#include "meddled_agent.h"
#include "support/temporary_folder.h"

#include <unistd.h>

#include <thread>

using namespace gc_test;

namespace {

struct part {
  std::uint64_t id = 0;
  fm::ref<part> next;
  fm::weak<part> whole;
  std::array<std::uint64_t, 3> rest{};
};
struct entry {
  std::uint64_t id = 0;
  fm::weak<part> named;
};

std::uint64_t bits_of(const fm::weak<part>& w) { return std::bit_cast<std::uint64_t>(w); }

/// `n` parts in a list, each of which names the one of `wholes` with its number.
fm::ptr<part> make_parts(fm::heap& h, const std::vector<fm::ptr<part>>& wholes) {
  fm::ptr<part> head;
  for (std::uint64_t i = 0; i < wholes.size(); ++i) head = h.make<part>({.id = i, .next = head, .whole = wholes[i]});
  return head;
}
std::vector<fm::ptr<part>> make_wholes(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<part>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<part>({.id = 1'000'000 + i}));
  return all;
}
/// How many of the parts find their whole; each that does finds its own.
std::uint64_t count_wholes(const fm::ptr<part>& head) {
  std::uint64_t found = 0;
  for (fm::ptr<part> at = head; at; at = at->next) {
    const fm::ptr<part> whole = at->whole.lock();
    if (!whole) continue;
    if (whole->id != 1'000'000 + at->id) FAIL("part " << at->id << " names " << whole->id);
    ++found;
  }
  return found;
}

/// Every third whole lives; then fields and objects go home, and slots are used again, several times.
void die_and_come_again(fm::heap& h, std::uint64_t n) {
  auto wholes = make_wholes(h, n);
  const auto parts = make_parts(h, wholes);
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "all live");
  REQUIRE(count_wholes(parts) == n);
  for (std::uint64_t i = 0; i < n; ++i)
    if (i % 3 != 0) wholes[i] = nullptr;
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto r = collect(h, "two of three dead");
  REQUIRE(r.dead == n / 3 * 2);
  REQUIRE(r.weak_cleared == n / 3 * 2);
  REQUIRE(count_wholes(parts) == n / 3);
  for (int round = 0; round < 3; ++round) {  // their slots are of others now, which are named as well
    const auto others = make_wholes(h, 2 * n);
    const auto others_parts = make_parts(h, others);
    REQUIRE(count_wholes(others_parts) == 2 * n);
    REQUIRE(count_wholes(parts) == n / 3);
    if (round == 1) REQUIRE(h.evict_all() == fm::errc::ok);
    collect(h, "others", fm::evacuate::all);
    REQUIRE(count_wholes(parts) == n / 3);
  }
  collect(h, "the others dead");
  require_sound_at_home(h);
}

}  // namespace

TEST_CASE("weak fields become null with their objects, and never name who gets the slot") {
  for (const std::size_t agents : {1, 3}) {
    auto o = small(agents);
    o.verify_cycles = true;
    fm::heap h(o);
    die_and_come_again(h, 3'000);
  }
}

TEST_CASE("weak fields become null over transports, between agents that talk to each other") {
  for (const std::string scheme : {"tcp", "shm"}) {
    const fm::test::temporary_folder folder;
    std::vector<std::unique_ptr<meddled_agent>> agents;
    auto o = small();
    o.agents.clear();
    for (std::size_t i = 0; i < 2; ++i) {
      agents.push_back(std::make_unique<meddled_agent>(folder.url(scheme, i)));
      o.agents.push_back(agents.back()->url());
    }
    o.verify_cycles = true;
    fm::heap h(o);
    die_and_come_again(h, 300);
  }
}

TEST_CASE("weak fields of old objects become null when a young object dies") {
  auto o = small();
  o.cache = 32_MiB;
  o.verify_cycles = true;
  fm::heap h(o);
  auto old = make_wholes(h, 10);
  const auto parts = make_parts(h, old);
  REQUIRE(h.evict_all() == fm::errc::ok);
  auto young = make_wholes(h, 10);
  std::uint64_t i = 0;
  for (fm::ptr<part> at = parts; at; at = at->next, ++i)
    if (at->id % 2 == 0) at.write()->whole = young[at->id];
  young.resize(5);
  auto r = h.collect_young("test");
  require_ok(r);
  REQUIRE(r.weak_cleared == 2);  // of 0, 2, …, 8: 6 and 8
  REQUIRE(count_wholes(parts) == 8);
  old.clear();
  young.clear();
  REQUIRE(h.collect_young("again").weak_cleared == 3);
  REQUIRE(collect(h).weak_cleared == 10);  // the other five had been named before
  REQUIRE(count_wholes(parts) == 0);
  require_sound_at_home(h);
}

TEST_CASE("what a weak field names is not kept alive, and lock() keeps what it returns alive") {
  fm::heap h(small());
  std::atomic<bool> stop{false}, failed{false};
  std::thread collecting([&] {
    while (!stop.load()) failed = failed || !h.collect("always").ok();
  });
  // The only root goes while the field is being locked: the object is there as a whole or not at all.
  std::uint64_t locked = 0, gone = 0;
  for (int round = 0; round < 20; ++round) {
    const auto holder = h.make<entry>({.id = 1});
    holder.write()->named = h.make<part>({.id = 7, .next = h.make<part>({.id = 8})});
    for (int tries = 0; tries < 50; ++tries) {
      const auto back = holder->named.lock();
      if (!back) break;
      for (int i = 0; i < 100; ++i) (void)h.make<part>({.id = 9});  // takes free slots, and fills the cache
      if (back->id != 7 || back->next->id != 8) FAIL("another object");
      ++locked;
    }
    if (!h.collect("nobody holds it").ok()) failed = true;
    if (!holder->named.lock()) ++gone;
  }
  stop = true;
  collecting.join();
  REQUIRE_FALSE(failed);
  REQUIRE(locked >= 20);
  REQUIRE(gone == 20);
}

TEST_CASE("containers hold weak handles as values and as elements") {
  auto o = small();
  o.verify_cycles = true;
  fm::heap h(o);
  constexpr std::uint64_t n = 500;
  auto wholes = make_wholes(h, n);
  fm::hash_map<std::uint64_t, fm::weak<part>> map(h);
  fm::hash_map<std::uint64_t, entry> entries(h);
  fm::vector<fm::weak<part>> vector(h);
  fm::queue<entry> queue(h);
  for (std::uint64_t i = 0; i < n; ++i) {
    map.insert_or_assign(i, wholes[i]);
    entries.insert_or_assign(i, {.id = i, .named = wholes[i]});
    vector.push_back(wholes[i]);
    queue.push({.id = i, .named = wholes[i]});
  }
  for (std::uint64_t i = 1; i < n; i += 2) wholes[i] = nullptr;
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(collect(h).weak_cleared == n / 2);
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto popped = queue.try_pop();
    REQUIRE(popped->id == i);
    for (const fm::weak<part>& w : {*map.find(i), entries.find(i)->named, fm::weak<part>(vector[i]), popped->named}) {
      const auto p = w.lock();
      REQUIRE(bool(p) == (i % 2 == 0));
      if (p) REQUIRE(p == wholes[i]);
    }
  }
  require_sound_at_home(h);
}

TEST_CASE("weak handles are equal if they were made for the same object") {
  fm::heap h(small());
  auto a = h.make<part>({.id = 1}), b = h.make<part>({.id = 2, .next = a});
  fm::weak<part> to_a(a), also_to_a(b->next), to_b(b);
  REQUIRE(to_a == also_to_a);
  REQUIRE(to_a != to_b);
  REQUIRE(fm::weak<part>() == fm::weak<part>(nullptr));
  REQUIRE(fm::weak<part>() == fm::weak<part>(fm::ptr<part>()));
  const fm::weak<fm::object> any(b);  // of a type that covers it
  REQUIRE(any.lock() == b);
  to_b.reset();
  REQUIRE(to_b == nullptr);
  b = a = nullptr;
  collect(h);
  REQUIRE(to_a == also_to_a);
  REQUIRE(to_a != nullptr);  // it was made for something
  REQUIRE_FALSE(to_a.lock());
  STATIC_REQUIRE(std::is_trivially_copyable_v<fm::weak<part>>);
}

TEST_CASE("weak fields to objects of a heap that is closed are null") {
  fm::heap h(small());
  const auto holder = h.make<part>({.id = 1});
  {
    fm::heap other(small());
    const auto there = other.make<part>({.id = 2});
    holder.write()->whole = there;
    REQUIRE(holder->whole.lock() == there);
  }
  REQUIRE_FALSE(holder->whole.lock());
  fm::heap third(small());
  const auto many = make_wholes(third, 1'000);  // with the numbers of the other one's slots
  REQUIRE_FALSE(holder->whole.lock());
  REQUIRE(count_wholes(make_parts(third, many)) == 1'000);
}

TEST_CASE("a weak cell whose versions are used up is never used again") {
  fm::heap h(small());
  const auto cell_of = [](const fm::weak<part>& w) -> fm::detail::weak_word& {
    const std::uint64_t number = bits_of(w) & ((std::uint64_t{1} << 40) - 1);
    return fm::detail::weak_chunks[number / fm::detail::limits::cells_per_weak_chunk]
        .load()[number % fm::detail::limits::cells_per_weak_chunk];
  };
  constexpr std::uint64_t last_version = (std::uint64_t{1} << 63) - (std::uint64_t{1} << 40);
  fm::weak<part> last;
  {
    const auto p = h.make<part>({.id = 1});
    auto& cell = cell_of(fm::weak<part>(p));
    cell = cell.load() | last_version;
    last = fm::weak<part>(p);
    REQUIRE(last.lock() == p);
  }
  collect(h);
  REQUIRE_FALSE(last.lock());
  const auto wholes = make_wholes(h, 5'000);
  for (const auto& p : wholes) REQUIRE(&cell_of(fm::weak<part>(p)) != &cell_of(last));
  REQUIRE_FALSE(last.lock());
}

TEST_CASE("threads that name one object at the same time give it one cell") {
  fm::heap h(small());
  for (int round = 0; round < 50; ++round) {
    const auto p = h.make<part>({.id = 1});
    std::array<fm::weak<part>, 4> named;
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (auto& w : named)
      threads.emplace_back([&] {
        ++ready;
        while (ready.load() < 4) std::this_thread::yield();
        w = fm::weak<part>(p);
      });
    for (auto& t : threads) t.join();
    for (const auto& w : named) REQUIRE(w == named[0]);
  }
  require_sound_at_home(h);
  collect(h);
}
