// Segments that several bumps fill at the same time, each a piece of its own. Of each kind one segment is open: pieces
// are cut from it in order. What a piece does not use comes back, is kept as a tail, and is the next piece's.
//
//   open       pieces are cut at `cut`
//   full       nothing more is cut; its last pieces are being filled, or lie about as tails
//   closing    as full, but what comes back becomes a filler instead of a tail: the segment is wanted in its queue
//
// Invariants owned here
//   - A segment enters its queue when no piece and no tail of it is left. From base + 8 to `used` there are frames and
//     nothing else then: what nobody filled is a filler, a frame without a header. One of 16 bytes has no room for a
//     prefix but for its size, so walkers look at the size first.
//   - At most limits::filling_share of the arena's segments are being filled.
//
// Not thread-safe: cache/leases.h has the lock.
#pragma once

#include "arena.h"
#include "policy.h"
#include <algorithm>
#include <array>
#include <vector>

namespace fm::detail {

/// A stretch of a segment that one bump fills from `at` on.
struct piece {
  segment* seg = nullptr;
  char* at = nullptr;
  char* end = nullptr;
  char* warm = nullptr;  ///< words into frames from here on may be warm
  [[nodiscard]] std::uint64_t room() const noexcept { return static_cast<std::uint64_t>(end - at); }
};

class shared_segments {
 public:
  shared_segments(arena& memory, const replacement_policy& policy) noexcept;

  enum class got : std::uint8_t { nothing, room, segment };
  /// Gives a piece of at least `need` bytes, and of `wish` if it has them, for what is left of `p`; it may be the same
  /// piece made longer. Nothing, and `p` as before, when there is no room, or when fewer than `leave` segments are or
  /// would be free: whoever opened a segment then may not have been able to wait.
  got exchange(piece& p, fill_kind kind, std::uint64_t need, std::uint64_t wish, std::uint32_t leave);
  /// What the piece did not use is the next one's, or a filler.
  void give_back(piece& p);
  /// What nobody fills just now enters its queue.
  void close();
  /// Segments that are not open, and not in their queues because of pieces and tails.
  [[nodiscard]] std::size_t lingering() const noexcept;
  /// Whether the piece holds up a segment that is not open.
  [[nodiscard]] bool lingers(const piece& p) const noexcept { return p.seg != nullptr && !is_open(*p.seg); }

 private:
  bool take_tail(piece& p, fill_kind kind, std::uint64_t need, std::uint64_t wish);
  bool open_next(fill_kind kind, std::uint32_t leave);
  piece cut(segment& s, std::uint64_t bytes) noexcept;
  [[nodiscard]] char* end_of(const segment& s) const noexcept { return s.base + arena_.segment_bytes() - 8; }
  void start_closing(segment& s);
  void retire_if_done(segment& s);
  [[nodiscard]] bool is_open(const segment& s) const noexcept {
    return std::find(open_.begin(), open_.end(), &s) != open_.end();
  }
  /// In a small cache the evictor shares segments with allocation, so that fewer are half full.
  [[nodiscard]] fill_kind kind_of(fill_kind wanted) const noexcept {
    return wanted == fill_kind::kept && arena_.capacity_segments() < limits::segments_of_kept_from ? fill_kind::made
                                                                                                   : wanted;
  }
  [[nodiscard]] std::size_t filling_max() const noexcept {
    return std::max<std::size_t>(limits::filling_min, arena_.capacity_segments() / limits::filling_share);
  }

  arena& arena_;
  const replacement_policy policy_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
  std::array<segment*, 3> open_{};  ///< by kind
  std::vector<segment*> filling_;   ///< the oldest first
  std::vector<piece> tails_;        ///< the newest last
};

/// Makes [at, at + bytes) a frame that sweeps pass over. A multiple of 16 bytes.
void make_filler(char* at, std::uint64_t bytes) noexcept;

}  // namespace fm::detail
