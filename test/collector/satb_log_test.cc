// The SATB log by itself: it is bounded, it loses nothing, and it needs no memory that may not be there.
#include "collector/roots/satb_log.h"

#include "base/limits.h"
#include "support/marking.h"
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <new>
#include <thread>
#include <vector>

namespace {

using namespace fm::literals;
using fm::detail::slot_t;
using fm::test::marking_on;
namespace satb = fm::detail::satb;
namespace limits = fm::detail::limits;

thread_local bool no_memory = false;

constexpr std::uint32_t tablets_used = 24;
std::vector<std::uint32_t> all_tablets() {
  std::vector<std::uint32_t> t(tablets_used);
  for (std::uint32_t i = 0; i < tablets_used; ++i) t[i] = i;
  return t;
}

struct seen_slots {
  std::vector<bool> seen = std::vector<bool>(tablets_used * fm::detail::tablet_slots);
  std::uint64_t different = 0;
  static void note(slot_t s, void* self) {
    auto& at = *static_cast<seen_slots*>(self);
    if (!at.seen.at(s)) ++at.different;
    at.seen[s] = true;
  }
  void take() { satb::take(all_tablets(), note, this); }
  // What is in chunks that are not full, too.
  void take_rest() {
    REQUIRE(fm::detail::epochs::pause(
        std::chrono::minutes(10),
        [](void*) {
          satb::take_rest(
              all_tablets(), [](slot_t, void*) { return true; }, nullptr);
        },
        nullptr));
    take();
  }
};

void log_range(slot_t from, slot_t to) {
  for (slot_t s = from; s < to; ++s) fm::detail::log_overwritten(s);
}

constexpr slot_t more_than_chunks_hold = (limits::log_chunks_max + 100) * limits::log_slots;
static_assert(more_than_chunks_hold < tablets_used * fm::detail::tablet_slots);

}  // namespace

// Only of this form: the others throw, and a test that has none left could not tell.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (no_memory) return nullptr;
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

TEST_CASE("a log that nobody takes keeps to its bound, and what did not fit is not lost") {
  const fm::heap h({.cache = 1_MiB, .local_memory = 16_MiB, .local_region = 1_MiB, .collect = false});
  const marking_on now;
  const std::uint64_t before = satb::overflowed();
  log_range(1, more_than_chunks_hold);
  CHECK(satb::overflowed() - before >= 99 * limits::log_slots);
  seen_slots s;
  s.take_rest();
  CHECK(s.different == more_than_chunks_hold - 1);
  // There is room again.
  const std::uint64_t then = satb::overflowed();
  log_range(1, 100 * limits::log_slots);
  CHECK(satb::overflowed() == then);
  seen_slots again;
  again.take_rest();
  CHECK(again.different == 100 * limits::log_slots - 1);
}

TEST_CASE("a log that is set aside between pages has room for any number of stores") {
  const fm::heap h({.cache = 1_MiB, .local_memory = 16_MiB, .local_region = 1_MiB, .collect = false});
  const marking_on now;
  const std::uint64_t before = satb::overflowed();
  const slot_t step = 8 * limits::log_slots;
  for (slot_t s = 1; s + step < more_than_chunks_hold; s += step) {
    log_range(s, s + step);
    satb::set_aside();
  }
  CHECK(satb::overflowed() == before);
  seen_slots s;
  s.take_rest();
  CHECK(s.different == (more_than_chunks_hold - 1) / step * step);
}

TEST_CASE("a thread that finds no memory for its log loses nothing, and the program goes on") {
  const fm::heap h({.cache = 1_MiB, .local_memory = 16_MiB, .local_region = 1_MiB, .collect = false});
  const marking_on now;
  // All chunks that there are by now are full or this thread's, and it ends with what it has.
  std::thread([] {
    log_range(1, 1 + limits::log_slots / 2);
    no_memory = true;
    log_range(1 + limits::log_slots / 2, more_than_chunks_hold);
  }).join();
  std::thread([] {
    no_memory = true;  // for the log itself, unless one of a thread that ended is left
    log_range(more_than_chunks_hold, more_than_chunks_hold + 100);
  }).join();
  seen_slots s;
  s.take_rest();
  CHECK(s.different == more_than_chunks_hold + 99);
}

TEST_CASE("the final pause keeps what is asked for, and forgets the rest") {
  const fm::heap h({.cache = 1_MiB, .local_memory = 16_MiB, .local_region = 1_MiB, .collect = false});
  const marking_on now;
  log_range(1, more_than_chunks_hold);  // some in chunks, some as bits, some in this thread's chunk
  bool any = false;
  const auto odd = [](void* to) {
    *static_cast<bool*>(to) = satb::take_rest(
        all_tablets(), [](slot_t s, void*) { return s % 2 == 1; }, nullptr);
  };
  REQUIRE(fm::detail::epochs::pause(std::chrono::minutes(10), odd, &any));
  CHECK(any);
  seen_slots s;
  s.take();
  CHECK(s.different == more_than_chunks_hold / 2);
  CHECK(s.seen[1]);
  CHECK_FALSE(s.seen[2]);
  REQUIRE(fm::detail::epochs::pause(std::chrono::minutes(10), odd, &any));
  CHECK_FALSE(any);
}
