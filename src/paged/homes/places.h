// Which places of an agent's regions are given out. A place has room for one stripe of the range.
//
// Invariants
//   - A place is one stripe's at a time.
//   - Nothing is given out in a region that is closed: it is on its way back to the agent.
//   - No more regions have places given out, or are closed, than the agent has promised.
// home_agent owns one; those who hold a page group's lock take and give places. Locks: its own, a leaf.
#pragma once

#include "os/os.h"
#include <mutex>
#include <vector>

namespace fm::detail {

class region_places {
 public:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  /// `regions` at most, of `each` places. Throws fm::error (out_of_memory). Once, before all others.
  void open(std::uint64_t regions, std::uint64_t each);
  /// So many regions may be in use; those that are, stay.
  void promise(std::uint64_t regions) noexcept;

  /// Takes a free place in the region of place `near` if there is one, so that stripes that are neighbours come and go
  /// together; otherwise in a region that is in use, and then in one that is not. `none` if all is taken. O(1) most
  /// often, O(regions) at worst.
  [[nodiscard]] std::uint64_t take(std::uint64_t near) noexcept;
  /// Gives a place back; true when its region has no other.
  bool give(std::uint64_t place) noexcept;
  /// Keeps a region that has no place given out from being used; false if it has, or is closed.
  [[nodiscard]] bool close(std::uint64_t region) noexcept;
  void reopen(std::uint64_t region) noexcept;

  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }
  /// Places that can still be taken, within what is promised.
  [[nodiscard]] std::uint64_t left() const noexcept;
  [[nodiscard]] bool is_taken(std::uint64_t place) const noexcept;
  [[nodiscard]] std::uint64_t regions_used() const noexcept;
  [[nodiscard]] bool is_used(std::uint64_t region) const noexcept;

 private:
  static constexpr std::uint32_t closed = 1u << 31;
  [[nodiscard]] std::uint64_t* bits() const noexcept { return reinterpret_cast<std::uint64_t*>(bits_.base()); }
  [[nodiscard]] std::uint64_t take_in(std::uint64_t region) noexcept;

  std::uint64_t each_ = 1;
  std::uint64_t promised_ = 0;                      ///< regions; all of these under mutex_
  os::reservation bits_;                            ///< a bit for each place: given out
  std::vector<std::uint32_t> used_;                 ///< by region: places given out, or `closed`
  std::uint64_t regions_used_ = 0;                  ///< regions of which used_ is not 0
  std::uint64_t partly_ = 0;                        ///< of those, with a free place, and not closed
  std::uint64_t partly_from_ = 0, empty_from_ = 0;  ///< no such region lies before it
  std::atomic<std::uint64_t> taken_{0};             ///< written under mutex_
  mutable std::mutex mutex_;
};

}  // namespace fm::detail
