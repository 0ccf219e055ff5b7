// "Page give-back": which pages of the HIT go, what becomes of their words, and who holds a page back.
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>
#include <latch>
#include <optional>
#include <thread>

using namespace fm::detail;
using namespace fm::literals;

namespace {

/// A tablet of nobody's, and the keeper of its pages.
struct bench {
  explicit bench(std::uint64_t budget_pages) : pages(budget_pages * page_bytes, 8) {}
  ~bench() { give_back_tablets(tablet, 1); }
  slot_t page(std::uint64_t n) const { return tablet * tablet_slots + n * page_slots; }
  word_t word(slot_t s) const { return word_at(s).load(); }
  /// Steps until nothing more happens; the number of pages given back.
  std::uint64_t give_back() {
    const std::uint64_t before = pages.count().given_back;
    for (int i = 0; i < 1000 && pages.step([this] { return std::vector{tablet}; }); ++i) {
    }
    return pages.count().given_back - before;
  }

  std::uint32_t tablet = [] {
    reserve_hit(0);
    return take_tablets(nullptr, 0, 1);
  }();
  hit_pages pages;
};

word_t remote(std::uint32_t n) {
  return home_address{.region = 1, .generation = 1, .offset = 8 * n, .size_class = 3}.pack();
}
alignas(16) char frames[64][64];

}  // namespace

TEST_CASE("a page that is given back loses its hints and keeps its resident words, whatever their flags") {
  bench b(1);
  for (std::uint64_t p = 0; p < 2; ++p) b.pages.open(b.page(p));
  const word_t kept[] = {word::resident(frames[0], 0), word::resident(frames[1], word::clean_bit),
                         word::resident(frames[2], word::cold_bit | word::clean_bit),
                         word::resident(frames[3], word::cold_bit)};
  for (std::uint64_t i = 0; i < page_slots; ++i)
    word_at(b.page(0) + i).store(i % 100 == 1 && i / 100 < 4 ? kept[i / 100] : remote(unsigned(i)));
  REQUIRE(b.give_back() == 1);
  CHECK(b.pages.count().pages == 1);
  CHECK(b.pages.count().sided == 4);
  for (std::uint64_t i = 0; i < page_slots; ++i) REQUIRE(b.word(b.page(0) + i) == word::unknown);
  CHECK(b.pages.now(b.page(0) + 101) == kept[1]);
  CHECK(b.pages.now(b.page(0) + 102) == word::unknown);
  CHECK(page_of(b.page(0)).drops.load() == 1);

  b.pages.open(b.page(0) + 7);
  for (std::uint64_t i = 0; i < page_slots; ++i)
    REQUIRE(b.word(b.page(0) + i) == (i % 100 == 1 && i / 100 < 4 ? kept[i / 100] : 0));
  CHECK(b.pages.count().sided == 0);
  CHECK(b.pages.count().opened_again == 1);
}

TEST_CASE("a page stays that is within the budget, being filled, full of resident objects, or waits for a fetch") {
  bench b(2);
  for (std::uint64_t p = 0; p < 2; ++p) b.pages.open(b.page(p));
  CHECK(b.give_back() == 0);  // within the budget
  b.pages.begin_filling(b.page(2), page_slots);
  alignas(16) static char fetch[16];
  word_at(b.page(0)).store(word::fetching(fetch));
  for (std::uint64_t i = 0; i < 9; ++i) word_at(b.page(1) + i).store(word::resident(frames[i], 0));
  const fm::time_point before = fm::clock::now();
  CHECK(b.give_back() == 0);
  CHECK(b.word(b.page(0)) == word::fetching(fetch));
  CHECK(b.word(b.page(1) + 8) == word::resident(frames[8], 0));
  CHECK(b.pages.over());
  CHECK(b.pages.again_at() > before);  // a whole round was in vain: not again at once
}

TEST_CASE("while pages are held none is given back, and nobody is to look again") {
  bench b(1);
  for (std::uint64_t p = 0; p < 3; ++p) b.pages.open(b.page(p));
  REQUIRE(b.pages.wanting());
  b.pages.hold(true);
  b.pages.hold(true);
  CHECK(b.pages.over());
  CHECK_FALSE(b.pages.wanting());
  CHECK(b.pages.again_at() == fm::time_point::max());
  CHECK(b.give_back() == 0);
  b.pages.hold(false);
  CHECK_FALSE(b.pages.wanting());
  b.pages.hold(false);
  CHECK(b.pages.wanting());
  CHECK(b.give_back() == 2);
}

TEST_CASE("a section that saw the page open holds its end back, and a writer that finds it closing keeps it") {
  bench b(1);
  for (std::uint64_t p = 0; p < 3; ++p) b.pages.open(b.page(p));
  const auto tablets = [&] { return std::vector{b.tablet}; };
  std::latch inside(1), leave(1);
  std::thread other([&] {
    const section s;
    inside.count_down();
    leave.wait();
  });
  inside.wait();
  REQUIRE(b.pages.step(tablets));  // marked
  CHECK(page_of(b.page(0)).state.load() == page_closing);
  CHECK_FALSE(b.pages.step(tablets));
  CHECK(b.pages.count().given_back == 0);
  {
    const section s;
    CHECK(b.pages.may_install(b.page(1), 0));  // as an answer to an old question does
    CHECK(page_of(b.page(1)).state.load() == page_open);
  }
  leave.count_down();
  other.join();
  CHECK(b.pages.step(tablets));
  CHECK(b.pages.count().given_back == 1);
  CHECK(page_of(b.page(1)).state.load() == page_open);
}

TEST_CASE("an answer is not put over a word whose page was given back since the question") {
  bench b(1);
  for (std::uint64_t p = 0; p < 2; ++p) b.pages.open(b.page(p));
  const std::uint32_t asked_at = page_of(b.page(0)).drops.load();
  REQUIRE(b.give_back() == 1);
  const section s;
  CHECK_FALSE(b.pages.may_install(b.page(0), asked_at));  // given back
  b.pages.open(b.page(0));
  CHECK_FALSE(b.pages.may_install(b.page(0), asked_at));  // open again, but not the same
  CHECK(b.pages.may_install(b.page(0), asked_at + 1));
}

TEST_CASE("the second page of a group that is asked for brings the others, as far as the budget goes") {
  const std::uint64_t budget = GENERATE(0u, 5u);
  bench b(budget);
  constexpr std::uint64_t n = limits::pages_asked_together;
  static_assert(n == 16 && pages_per_tablet % n == 0);
  const section s;
  const hit_pages::group one = b.pages.open_group(b.page(3) + 9);
  CHECK(one.first == b.page(0) / page_slots);
  CHECK(one.opened == 1u << 3);  // nobody has been here before
  CHECK(b.pages.open_group(b.page(3) + 10).opened == 1u << 3);
  CHECK(b.pages.open_group(b.page(n)).opened == 1);  // of another group
  CHECK(b.pages.count().pages == 2);

  const std::uint32_t others =
      budget == 0 ? 0xfff7 : 0x8003;  // the page itself, and from the first on what there is room for
  const hit_pages::group all = b.pages.open_group(b.page(n - 1));
  CHECK(all.opened == others);
  CHECK(b.pages.count().pages == (budget == 0 ? n + 1 : budget));
  for (std::uint64_t p = 0; p < n; ++p) {
    CAPTURE(p);
    CHECK(page_of(b.page(p)).state.load() == ((others >> p & 1) != 0 || p == 3 ? page_open : page_given_back));
    CHECK(b.pages.may_install(b.page(p), all.drops[p]) == ((others >> p & 1) != 0 || p == 3));
  }
}

TEST_CASE("what a group was asked about is not put over a page of it that was given back since") {
  bench b(17);
  std::optional<hit_pages::group> g;
  {
    const section s;
    (void)b.pages.open_group(b.page(0));
    g = b.pages.open_group(b.page(1));
    REQUIRE(g->opened == 0xfffe);
    b.pages.open(b.page(40));
    b.pages.open(b.page(41));
    for (std::uint64_t i = 0; i < 9; ++i)  // these two stay, and so does the first
      for (const std::uint64_t p : {0, 40, 41}) word_at(b.page(p) + i).store(word::resident(frames[i], 0));
  }
  REQUIRE(b.give_back() == 1);
  const section s;
  b.pages.open(b.page(1));
  word_at(b.page(2) + 1).store(word::resident(frames[0], 0));
  std::vector<word_t> answer(page_slots);
  for (std::uint32_t i = 1; i < page_slots; ++i) answer[i] = remote(i);
  answer[3] = word::free;
  CHECK_FALSE(b.pages.put(b.page(1), g->drops[1], answer));
  for (std::uint64_t i = 0; i < page_slots; ++i) REQUIRE(b.word(b.page(1) + i) == word::unknown);
  CHECK(b.pages.put(b.page(2), g->drops[2], answer));
  for (std::uint32_t i = 4; i < page_slots; ++i) REQUIRE(b.word(b.page(2) + i) == remote(i));
  CHECK(b.word(b.page(2)) == word::unknown);
  CHECK(b.word(b.page(2) + 1) == word::resident(frames[0], 0));  // it was there already
  CHECK(b.word(b.page(2) + 3) == word::unknown);                 // nothing is stored there
}

TEST_CASE("a page that two threads fill and that is given back meanwhile is not opened by the end of filling") {
  bench b(1);
  b.pages.begin_filling(b.page(0), page_slots);  // its first slots, ...
  b.pages.begin_filling(b.page(0), page_slots);  // ... and some of them again, after their objects died
  word_at(b.page(0) + 1).store(word::resident(frames[0], 0));
  b.pages.end_filling(b.page(0), page_slots);
  b.pages.open(b.page(1));
  REQUIRE(b.give_back() == 1);
  REQUIRE(b.pages.count().sided == 1);
  b.pages.end_filling(b.page(0), page_slots);
  // A reader that finds the word unknown must still be led to the frame.
  CHECK(page_of(b.page(0)).state.load() == page_given_back);
  b.pages.open(b.page(0) + 1);
  CHECK(b.word(b.page(0) + 1) == word::resident(frames[0], 0));
}

TEST_CASE("a tiny budget gives pages back under a running heap, and every object is found again") {
  struct record {
    std::uint64_t id;
    std::uint64_t twice;
  };
  fm::heap h({.cache = 1_MiB, .local_memory = 32_MiB, .local_region = 1_MiB, .segment = 16_KiB, .hit = 32_KiB});
  constexpr std::uint64_t n = 100'000;
  std::vector<fm::ptr<record>> all;
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<record>({.id = i, .twice = 2 * i}));
  std::vector<fm::read_pin<record>> pinned;
  for (std::uint64_t i = 0; i < n; i += n / 50) pinned.push_back(all[i].read());
  REQUIRE(h.evict_all(std::chrono::milliseconds(300)) == fm::errc::timed_out);  // because of the pins
  for (int i = 0; i < 100 && h.stats().hit_bytes > 64_KiB; ++i) (void)h.evict_all(std::chrono::milliseconds(20));
  const fm::heap_stats s = h.stats();
  INFO(s.text());
  CHECK(s.hit_bytes <= 64_KiB);  // the pages that the last allocations stand in are still being filled
  CHECK(s.hit_pages_given_back > 150);
  CHECK(s.hit_words_aside > 0);
  CHECK(h.verify().ok());
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    const std::uint64_t id = i * (n / 50);
    REQUIRE(pinned[i]->twice == 2 * id);
    REQUIRE(all[id].read().get() == pinned[i].get());  // the same frame, not a copy from home
  }
  pinned.clear();
  for (std::uint64_t i = 0; i < n; ++i) REQUIRE(all[i]->twice == 2 * i);
  CHECK(h.stats().hit_pages_opened_again > 100);
  CHECK(h.verify().ok());
}

TEST_CASE("after a round in vain the table is looked at again when it has grown, or when much was evicted") {
  bench b(1);
  const auto full_page = [&](std::uint64_t p) {
    b.pages.open(b.page(p));
    for (std::uint64_t i = 0; i < 9; ++i) word_at(b.page(p) + i).store(word::resident(frames[i], 0));
  };
  for (std::uint64_t p = 0; p < 2; ++p) full_page(p);
  CHECK(b.give_back() == 0);
  for (std::uint64_t p = 2; p < 2 + limits::pages_over_before_help; ++p) b.pages.open(b.page(p));
  CHECK(b.pages.wanting());
  CHECK(b.pages.far_over());
  CHECK(b.give_back() == limits::pages_over_before_help);
  const fm::time_point before = fm::clock::now();
  CHECK(b.give_back() == 0);
  CHECK(b.pages.again_at() > before);
  b.pages.look_again();
  CHECK(b.pages.wanting());
}

TEST_CASE("the table keeps to its budget while a program makes objects, and at rest") {
  struct record {
    std::array<std::uint64_t, 32> words;
  };
  constexpr std::uint64_t budget_pages = 8, run_pages = limits::slots_per_run / page_slots;
  fm::heap h({.cache = 1_MiB,
              .local_memory = 128_MiB,
              .local_region = 1_MiB,
              .segment = 16_KiB,
              .hit = budget_pages * page_bytes,
              .collect = false});
  // The evictor's thread begins at the budget. Where it does not keep up, who makes objects helps, from the first bound on. If
  // a look came too early, because all was resident, the next one comes at the second.
  constexpr std::uint64_t bound = (budget_pages + 2 * limits::pages_over_before_help + 2 * run_pages) * page_bytes;
  std::vector<fm::ptr<record>> all;
  std::uint64_t most = 0;
  for (std::uint64_t i = 0; i < 600 * page_slots; ++i) {
    all.push_back(h.make<record>({.words = {i}}));
    if (i % 64 == 0) most = std::max(most, h.stats().hit_bytes);
  }
  CHECK(most <= bound);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);
  const std::uint64_t rest =
      (budget_pages + run_pages) * page_bytes;  // the pages of the last run are still being filled
  while (h.stats().hit_bytes > rest && fm::clock::now() < give_up) std::this_thread::yield();
  CHECK(h.stats().hit_bytes <= rest);
  for (std::uint64_t i = 0; i < all.size(); i += 97) REQUIRE(all[i]->words[0] == i);
  CHECK(h.verify().ok());
}
