// Elastic fetch (dcm, section 4, for objects): how many bytes a miss reads beyond its object, learnt for every 64 KiB
// of a region. STRETCH when misses come close after one another or neighbours turn out to be used, REDUCE when
// neighbours are evicted untouched. A part's score is a saturating counter; the window doubles every 32 points.
//
// All parts share an account. A neighbour that comes along costs 1, and brings 2 when it is touched. No more come along
// than there is credit for. So in the long run at least half of the neighbours are used, whatever the mix of accesses.
// Without credit, one in many misses tries again with one neighbour, by which a program that begins to walk is noticed.
//
// Invariant: a score is a guess that correctness does not depend on, so lost updates between threads are allowed.
// Misses ask for windows; touches and the evictor teach them.
#pragma once

#include "os/os.h"
#include "table/table.h"
#include <atomic>

namespace fm::detail {

class elastic_windows {
 public:
  static constexpr std::uint32_t part_bytes = limits::window_part_bytes;
  static constexpr std::uint32_t window_max = limits::window_max;

  elastic_windows() : parts_(std::uint64_t{home_address::region_limit} * parts_per_region * sizeof(part), page_bytes) {}

  /// A miss at `at`: bytes to read from there, at least `object_bytes`; learns from how close the last miss was.
  std::uint32_t window(const home_address& at, std::uint32_t object_bytes) noexcept {
    part& p = of(at);
    const auto line = static_cast<std::uint16_t>(at.offset % part_bytes / 64);
    const std::uint16_t last = p.last.exchange(line, std::memory_order_relaxed);
    std::uint32_t score = p.score.load(std::memory_order_relaxed);
    const std::uint32_t reach = std::max<std::uint32_t>(512u << (score / 32), 2 * object_bytes) / 64;
    // Reads go forward, so only a miss a little after the last one is evidence.
    if (line > last && std::uint32_t{line} - last <= reach)
      p.score.store(static_cast<std::uint8_t>(score = std::min(score + 16, 255u)), std::memory_order_relaxed);
    if (score < 32) return object_bytes;
    std::int32_t credit = account_.load(std::memory_order_relaxed);
    if (credit <= 0) {
      if (!try_again()) return object_bytes;
      credit = 1;
    }
    const std::uint64_t affordable = std::uint64_t{object_bytes} * (1 + static_cast<std::uint32_t>(credit));
    const std::uint32_t learnt = std::min<std::uint32_t>(256u << (score / 32), window_max);
    return std::max(object_bytes, static_cast<std::uint32_t>(std::min<std::uint64_t>(learnt, affordable)));
  }
  /// So many neighbours came along.
  void note_brought(std::uint32_t neighbours) noexcept {
    if (neighbours != 0) account_.fetch_sub(static_cast<std::int32_t>(neighbours), std::memory_order_relaxed);
  }
  /// A neighbour that came along was touched.
  void stretch(const home_address& at) noexcept {
    if (account_.load(std::memory_order_relaxed) < limits::neighbours_credit_max)
      account_.fetch_add(2, std::memory_order_relaxed);
    part& p = of(at);
    const auto s = p.score.load(std::memory_order_relaxed);
    if (s < 254) p.score.store(static_cast<std::uint8_t>(s + 2), std::memory_order_relaxed);
  }
  /// A window held nothing that was still remote: walks that go backwards, or garbage.
  void useless(const home_address& at) noexcept {
    part& p = of(at);
    const auto s = p.score.load(std::memory_order_relaxed);
    p.score.store(static_cast<std::uint8_t>(s > 32 ? s - 32 : 0), std::memory_order_relaxed);
  }
  /// A neighbour that came along was evicted untouched.
  void reduce(const home_address& at) noexcept {
    part& p = of(at);
    const auto s = p.score.load(std::memory_order_relaxed);
    p.score.store(static_cast<std::uint8_t>(s > 2 ? s - 2 : 0), std::memory_order_relaxed);
  }

 private:
  // Lost updates between threads only blur the statistics.
  struct part {
    std::atomic<std::uint16_t> last;  // line of the last miss
    std::atomic<std::uint8_t> score;
  };
  static constexpr std::uint64_t parts_per_region = home_address::offset_limit / part_bytes;
  part& of(const home_address& at) noexcept {
    return reinterpret_cast<part*>(parts_.base())[at.region * parts_per_region + at.offset / part_bytes];
  }
  // Now and then without credit.
  bool try_again() noexcept {
    return without_.fetch_add(1, std::memory_order_relaxed) % limits::misses_without_neighbours == 0;
  }

  os::reservation parts_;
  std::atomic<std::int32_t> account_{limits::neighbours_credit_first};
  std::atomic<std::uint32_t> without_{1};
};

}  // namespace fm::detail
