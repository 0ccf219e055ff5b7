// Taking the addresses of an agent out of a tablet's words and frames, before another agent is asked for its objects.
//
// Words hold regions and generations of their tablet's agent. At another one the same numbers may be another object's
// bytes, or an old copy of the very slot, which no check of a header can tell.
//
// Invariant owned here: after forget_addresses no word and no clean frame of the tablet holds an address, if nobody was
// left who could put one there: whoever looked before has ended (await_readers), and who looks now finds the agent lost,
// or the tablet closed (src/cache/tablets/tablet_home.h).
//
// Re-homing and handing over use it, on the collector's thread, outside of sections.
#pragma once

#include "cache/object_cache.h"
#include <atomic>
#include <vector>

namespace fm::detail {

class address_sweep {
 public:
  /// `stopping`: the heap closes, and nothing is waited for any more.
  address_sweep(object_cache& cache, const std::atomic<bool>& stopping) noexcept : cache_(cache), stopping_(stopping) {}

  [[nodiscard]] bool ends() const noexcept;
  /// Sections that began before have ended, or read nothing at home. False at the deadline.
  bool await_readers(time_point deadline);
  /// The words of resident objects return to the table, of each tablet that `is_one(tablet)`. Nothing else of a page that
  /// is given back is near. While no page is given back (held_pages). Throws bad_alloc.
  template <class IsOne>
  void open_pages_aside(const IsOne& is_one) {
    std::vector<slot_t> aside;
    cache_.pages().for_each_sided([&](slot_t slot, word_t) {
      if (is_one(tablet_of(slot))) aside.push_back(slot);
    });
    open_aside(aside);
  }
  /// O(slots of a tablet); a fetch is waited for. False at the deadline.
  bool forget_addresses(std::uint32_t tablet, time_point deadline);
  /// Whether that is so still; for audits.
  [[nodiscard]] bool holds_no_address(std::uint32_t tablet);
  /// Waits for a moment, if a fetch is under way.
  void await_fetch(slot_t slot) noexcept;

 private:
  void open_aside(const std::vector<slot_t>& slots);
  /// The word and the frame hold no address of a home copy afterwards. False when the word belongs to a fetch.
  static bool forget_address(slot_t slot) noexcept;

  object_cache& cache_;
  const std::atomic<bool>& stopping_;
};

}  // namespace fm::detail
