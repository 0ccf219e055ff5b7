// Threads that work on one pool's blocks at a time: the lock of its structure, whose frames are whose, who waits for whom, and that
// compaction packs the blocks of all of them.
#include <atomic>
#include <functional>
#include <shared_mutex>
#include <thread>

#include "agent/pools/blocks/structure_lock.h"
#include "pool/agent/blocks_fixture.h"
#include "support/await.h"

namespace {

using namespace blocks_test;
using fm::agent::held;
using fm::agent::outcome;
using fm::agent::serving_number;
using fm::agent::structure_lock;
using fm::test::await;

/// As messages do it: with others, and alone when that is not enough. For any thread.
template <class F>
errc done(structure_lock& structure, F&& operation) {
  {
    const std::shared_lock lock(structure);
    if (const outcome e = operation(held::shared)) return *e;
  }
  const std::lock_guard lock(structure);
  return operation(held::exclusive).value();
}

using words = std::array<std::uint64_t, 3>;
std::span<const std::byte> bytes_of(const words& w) { return std::as_bytes(std::span(w)); }

void check_packed(const world& w, std::uint32_t size_class) {
  std::vector<std::uint32_t> fill = w.blocks.fill(size_class);
  std::sort(fill.begin(), fill.end());
  if (fill.size() >= 2) CHECK(fill[0] + fill[1] > w.blocks.layout().slots(size_class));
}

}  // namespace

TEST_CASE("who has a structure exclusively is alone, and those who share it are not") {
  structure_lock lock;
  std::uint64_t a = 0, b = 0;
  std::atomic<int> inside{0};
  std::atomic<bool> together{false}, torn{false};
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < 4000; ++i) {
        if (i % 8 == t) {
          const std::lock_guard alone(lock);
          if (inside.load() != 0) torn = true;
          ++a;
          ++b;
        } else {
          const std::shared_lock shared(lock);
          inside.fetch_add(1);
          if (a != b) torn = true;
          inside.fetch_sub(1);
        }
      }
    });
  for (std::thread& t : all) t.join();
  const auto meet = [&] {
    const std::shared_lock shared(lock);
    inside.fetch_add(1);
    return await([&] { return inside.load() == 2; });
  };
  std::thread other([&] { together = meet(); });
  CHECK(meet());
  other.join();
  CHECK_FALSE(torn.load());
  CHECK(together.load());
  CHECK(a == 2000);
  CHECK(b == 2000);
}

TEST_CASE("who wants a structure exclusively is not kept out by those who go on sharing it") {
  structure_lock lock;
  std::atomic<bool> inside{false}, leave{false}, left{false}, had{false}, too_early{false};
  std::thread first([&] {
    const std::shared_lock shared(lock);
    inside = true;
    await([&] { return leave.load(); });
    left = true;
  });
  REQUIRE(await([&] { return inside.load(); }));
  std::thread exclusive([&] {
    const std::lock_guard alone(lock);
    if (!left.load()) too_early = true;
    had = true;
  });
  std::thread sharing([&] {
    await([&] {
      const std::shared_lock shared(lock);
      return had.load();
    });
  });
  CHECK(await([&] { return lock.is_waited_for(); }));  // it queues now, behind the one who waits for the first
  leave = true;
  first.join();
  exclusive.join();
  sharing.join();
  CHECK(had.load());
  CHECK_FALSE(too_early.load());
}

TEST_CASE("who waits to share a structure does so before it is had exclusively again") {
  structure_lock lock;
  std::atomic<int> had{0}, shared{0};
  std::atomic<bool> over{false};
  lock.lock();
  std::thread sharing([&] {
    const std::shared_lock inside(lock);
    shared = had.load() + 1;
  });
  const bool queued = await([&] { return lock.is_waited_for(); });
  std::thread exclusive([&] {
    while (!over.load()) {
      const std::lock_guard alone(lock);
      ++had;
    }
  });
  lock.unlock();
  CHECK(await([&] { return shared.load() != 0; }));
  over = true;
  sharing.join();
  exclusive.join();
  CHECK(queued);
  CHECK(shared.load() == 1);  // before any of those who came after it
}

TEST_CASE("who waits to share a structure does not want it exclusively, and who wants that says so") {
  structure_lock lock;
  lock.lock();
  std::thread sharing([&] { const std::shared_lock inside(lock); });
  const bool queued = await([&] { return lock.is_waited_for(); });
  const bool mistaken = lock.is_wanted_exclusively();
  std::thread exclusive([&] { const std::lock_guard alone(lock); });
  const bool wanted = await([&] { return lock.is_wanted_exclusively(); });
  lock.unlock();
  sharing.join();
  exclusive.join();
  CHECK(queued);
  CHECK_FALSE(mistaken);
  CHECK(wanted);
  CHECK_FALSE(lock.is_wanted_exclusively());
  CHECK_FALSE(lock.is_waited_for());
}

TEST_CASE("threads that live at the same time have numbers of their own, as long as there are some") {
  std::vector<unsigned> numbers(fm::agent::serving_numbers + 10);
  std::atomic<std::size_t> counted{0};
  std::vector<std::thread> all;
  for (unsigned& n : numbers)
    all.emplace_back([&] {
      n = serving_number();
      if (n != serving_number()) n = ~0u;
      ++counted;
      await([&] { return counted.load() == numbers.size(); });
    });
  for (std::thread& t : all) t.join();
  CHECK(std::all_of(numbers.begin(), numbers.end(), [](unsigned n) { return n < fm::agent::serving_numbers; }));
  // Other threads of this program may have some, but not many.
  CHECK(std::set<unsigned>(numbers.begin(), numbers.end()).size() > fm::agent::serving_numbers / 2);
  std::thread([&] { numbers[0] = serving_number(); }).join();
  std::thread([&] { numbers[1] = serving_number(); }).join();
  CHECK(numbers[0] == numbers[1]);  // it was given back
}

TEST_CASE("two threads never allocate in one block, and one has to ask for the structure only for a block more") {
  world w;
  structure_lock structure;
  std::vector<where> mine, theirs;
  std::atomic<int> failed{0}, exclusive{0};
  (void)serving_number();  // so that the other thread, however short it lives, has another one
  const auto allocate = [&](std::vector<where>& to) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      where at;
      const errc e = done(structure, [&](held how) {
        if (how == held::exclusive) ++exclusive;
        return w.blocks.allocate(bytes_of(words{i, i, i}), 0, at, how);
      });
      if (e != errc::ok) ++failed;
      to.push_back(at);
    }
  };
  std::thread other([&] { allocate(theirs); });
  allocate(mine);
  other.join();
  CHECK(failed.load() == 0);
  std::set<std::uint32_t> blocks_of_mine, blocks_of_theirs;
  for (const where& at : mine) blocks_of_mine.insert(at.id.vblock);
  for (const where& at : theirs) {
    CHECK(blocks_of_mine.count(at.id.vblock) == 0);
    blocks_of_theirs.insert(at.id.vblock);
  }
  CHECK(std::size_t(exclusive.load()) == blocks_of_mine.size() + blocks_of_theirs.size());
  w.check();
}

TEST_CASE("what would change the structure says so while it is shared, and has done nothing") {
  const outcome none;
  world w;
  const auto allocate = [&](held how, where& at) { return w.blocks.allocate(bytes_of({1, 1, 1}), 0, at, how); };
  where first;
  CHECK(allocate(held::shared, first) == none);  // the first block
  CHECK(w.frames.used_bytes() == 0);
  std::vector<where> all;
  for (std::uint64_t i = 0; i < w.slots() * std::uint64_t{2}; ++i) all.push_back(w.make(i));
  CHECK(allocate(held::shared, first) == none);  // both are full
  // Of each a quarter is left, and then both are in one, under two names.
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (i % 4 != 0) REQUIRE(w.blocks.free(all[i], held::shared) == errc::ok);
  w.compact();
  REQUIRE(w.blocks.fill(w.size_class()).size() == 1);
  REQUIRE(w.blocks.vblocks_mapped() == 2);
  // The block that is not the frame's own any more ends with the last object that was born in it, by either way.
  where o = all[0];
  REQUIRE(w.blocks.release(o) == errc::ok);
  const std::size_t begin = o.id == all[0].id ? w.slots() : 4, end = begin / w.slots() * w.slots() + w.slots() - 4;
  for (std::size_t i = begin; i < end; i += 4) REQUIRE(w.blocks.free(all[i], held::shared) == errc::ok);
  where& last = all[end];
  const where before = last;
  CHECK(w.blocks.free(last, held::shared) == none);
  CHECK(w.blocks.release(last, held::shared) == none);
  CHECK(last.id == before.id);
  CHECK(w.value(last) == end);
  CHECK(w.blocks.vblocks_mapped() == 2);
  w.check();
  CHECK(w.blocks.release(last) == errc::ok);
  CHECK(w.blocks.vblocks_mapped() == 1);
  w.check();
  // An empty frame is buried, unless it is the one that an arena keeps.
  world small;
  const where only = small.make(1);
  CHECK(small.blocks.free(only, held::shared) == none);
  CHECK(small.value(only) == 1);
  CHECK(small.blocks.free(only) == errc::ok);
  const where again = small.make(2);
  CHECK(small.blocks.free(again, held::shared) == errc::ok);
  CHECK(small.blocks.graves() == 0);
  small.check();
  // A block that is out of generations.
  world old({}, 0xffffffffu - 1);
  (void)old.make(1);
  (void)old.make(2);
  where third;
  CHECK(old.blocks.allocate(bytes_of({3, 3, 3}), 0, third, held::shared) == none);
  CHECK(old.blocks.allocate(bytes_of({3, 3, 3}), 0, third) == errc::ok);
  old.check();
}

TEST_CASE("without memory for a block more, a thread takes over one with room that another has") {
  world w;
  std::vector<where> all;
  for (;;) {
    where at;
    const errc e = *w.blocks.allocate(bytes_of(words{1, 2, 3}), 0, at);
    if (e != errc::ok) {
      CHECK(e == errc::quota_exceeded);
      break;
    }
    all.push_back(at);
  }
  const std::uint64_t freed = 300;
  for (std::uint64_t i = 0; i < freed; ++i) REQUIRE(w.blocks.free(all[i * (w.slots() + 1)]) == errc::ok);
  w.check();
  std::uint64_t made = 0;
  std::thread([&] {
    where at;
    while (*w.blocks.allocate(bytes_of(words{4, 5, 6}), 0, at) == errc::ok) ++made;
  }).join();
  CHECK(made == freed);
  w.check();
}

TEST_CASE("an operation in one frame does not wait for an operation in another, and compaction waits for both") {
  struct hook {
    std::atomic<std::thread::id> held_up{};
    std::atomic<bool> inside{false}, leave{false};
    bool in_time = true;
  } h;
  settings s;
  s.context = &h;
  s.in_frame = [](void* context, std::uint32_t) {
    hook& k = *static_cast<hook*>(context);
    if (k.held_up.load() != std::this_thread::get_id()) return;
    k.inside = true;
    k.in_time = await([&] { return k.leave.load(); });
  };
  world w(s);
  structure_lock structure;
  std::vector<where> all;
  for (std::uint64_t i = 0; i < w.slots() + 10; ++i) all.push_back(w.make(i));  // one block full, another open
  std::atomic<bool> written{false}, too_early{false};
  errc first = errc::timed_out;
  std::thread held_up([&] {
    h.held_up = std::this_thread::get_id();
    std::uint32_t bytes = 0;
    first = done(structure, [&](held) -> outcome {
      const errc e = w.blocks.write(all[0], bytes_of(words{7, 7, 7}), bytes);
      written = true;
      return e;
    });
  });
  REQUIRE(await([&] { return h.inside.load(); }));
  // It is in the middle of an operation on the first frame. Everything that can be done to objects of the second:
  const std::size_t there = w.slots();
  const auto shared = [&](auto&& operation) {
    const std::shared_lock lock(structure);
    return operation() == outcome(errc::ok);
  };
  std::vector<std::byte> out;
  std::uint32_t bytes = 0;
  where made;
  CHECK(shared([&] { return w.blocks.allocate(bytes_of(words{9, 9, 9}), 0, made, held::shared); }));
  CHECK(shared([&]() -> outcome { return w.blocks.write(all[there], bytes_of(words{8, 8, 8}), bytes); }));
  CHECK(shared([&]() -> outcome { return w.blocks.read(all[there], out); }));
  CHECK(shared([&] { return w.blocks.release(all[there], held::shared); }));
  CHECK(shared([&] { return w.blocks.free(all[there + 1], held::shared); }));
  CHECK_FALSE(written.load());
  std::thread compactor([&] {
    const std::lock_guard lock(structure);
    if (!written.load()) too_early = true;
    w.compact();
  });
  h.leave = true;
  held_up.join();
  compactor.join();
  CHECK(h.in_time);
  CHECK(first == errc::ok);
  CHECK_FALSE(too_early.load());
  CHECK(w.value(all[0]) == 7);
  CHECK(w.value(all[there]) == 8);
  CHECK(w.value(made) == 9);
  w.check();
}

TEST_CASE("a round of compaction packs the blocks of all threads, which go on meanwhile") {
  for (const naming named : {naming::birth, naming::random_16}) {
    world w({.arenas = 2, .wanted = named});
    structure_lock structure;
    std::atomic<int> running{4}, failed{0}, rounds{0};
    std::vector<std::map<std::uint64_t, where>> left(4);
    std::vector<std::thread> all;
    for (std::uint64_t t = 0; t < 4; ++t)
      all.emplace_back([&, t] {
        std::mt19937_64 random(t + 1);
        std::map<std::uint64_t, where>& mine = left[t];
        const auto check = [&](errc e) { failed += e == errc::ok ? 0 : 1; };
        // Three rounds are seen, whoever is given the processor.
        for (std::uint64_t i = 0; i < 1500 || (rounds.load() < 3 && i < 1'000'000); ++i) {
          const std::uint64_t value = t << 32 | i;
          auto some = mine.lower_bound(t << 32 | random() % (i + 1));
          if (some == mine.end()) some = mine.begin();
          if (mine.size() < 300 && random() % 3 != 0) {
            const auto arena = static_cast<std::uint32_t>(random());
            check(done(structure, [&](held h) {
              return w.blocks.allocate(bytes_of({value, value, value}), arena, mine[value], h);
            }));
          } else if (mine.empty()) {
            continue;
          } else if (random() % 4 == 0) {
            check(done(structure, [&](held h) { return w.blocks.release(some->second, h); }));
          } else {
            check(done(structure, [&](held h) { return w.blocks.free(some->second, h); }));
            mine.erase(some);
          }
        }
        --running;
      });
    int faults = 0;
    while (running.load() != 0) {
      {
        const std::lock_guard lock(structure);
        w.blocks.begin_round();
      }
      for (bool more = true; more;) {
        const std::lock_guard lock(structure);
        more = w.blocks.compact_step(16);
        w.blocks.reclaim(w.blocks.epoch());
      }
      const std::lock_guard lock(structure);
      std::string text;
      if (w.blocks.audit(text).faults != 0) ++faults;
      ++rounds;
    }
    for (std::thread& t : all) t.join();
    CHECK(faults == 0);
    CHECK(failed.load() == 0);
    w.compact();
    if (named == naming::birth) check_packed(w, w.size_class());
    w.check();
    for (auto& mine : left)
      for (auto& [value, at] : mine) CHECK(w.value(at) == value);
  }
}
