// The objects that a traversal has met: a set of slots that knows the number of each. The number stands for a reference
// in a graph on its way. An interval tree (Naos, section 3.1), over slots, because a slot stays what it is when its
// object moves or leaves the cache; and objects that were made one after the other have consecutive slots.
//
//   hot     the slot before or after the last one met: the interval grows          O(1)
//   warm    beyond the last interval and before the next: a new one between them    O(1)
//   cold    anywhere else                                                          O(log intervals)
//
// Where intervals stay short (few objects each, many of them) a tree is the wrong thing, and a hash table takes over,
// once.
//
// An interval has a direction, because a list that was made back to front is met from the highest slot down. The number
// of a slot is base + |slot - start|, in 64 bits, whichever way.
#pragma once

#include "table/table.h"
#include <set>
#include <utility>
#include <vector>

namespace fm::detail {

class visited_set {
 public:
  struct answer {
    std::uint64_t number;  ///< of the slot, from 0 in the order of being met
    bool added;            ///< it was met for the first time
  };
  visited_set() { clear(); }
  visited_set(const visited_set&) = delete;
  visited_set& operator=(const visited_set&) = delete;

  /// Finds a slot (not 0), or adds it with the next number. Throws std::bad_alloc.
  answer add(slot_t slot) {
    if (hashed()) return add_hashed(slot);
    const interval& c = *current_;
    if (count_ != 0 && slot - c.low < c.count) return {c.number_of(slot), false};
    if (c.base + c.count == count_ && c.count != 0) {
      // The last slot met is at one of its ends, and the neighbour there is new unless it begins another interval.
      if (slot == c.low + c.count && !(c.down && c.count > 1) && (next_ == tree_.end() || slot < next_->low)) {
        if (c.count == 1) c.down = false;
        ++c.count;
        return {count_++, true};
      }
      if (slot + 1 == c.low && (c.down || c.count == 1) && !before_current(slot)) {
        c.down = true;
        --c.low;
        ++c.count;
        return {count_++, true};
      }
    }
    if (count_ != 0 && slot > c.low && (next_ == tree_.end() || slot < next_->low)) return insert(next_, slot);
    return add_cold(slot);
  }

  /// Slots met so far.
  [[nodiscard]] std::uint64_t size() const noexcept { return count_; }
  /// Intervals in the tree; 0 once the table has taken over.
  [[nodiscard]] std::size_t intervals() const noexcept { return hashed() ? 0 : tree_.size(); }
  void clear();
  /// For tests: the next slot that is new gets this number.
  void set_next_number(std::uint64_t n) noexcept { count_ = n; }

  static constexpr std::size_t intervals_max = 4096;    ///< above so many ...
  static constexpr std::uint64_t objects_each_min = 8;  ///< ... with fewer objects each than this, the table is better

 private:
  struct interval {
    mutable slot_t low;
    mutable std::uint64_t count;
    std::uint64_t base;  ///< number of its first slot: the lowest, or the highest if it grew downwards
    mutable bool down;

    [[nodiscard]] std::uint64_t number_of(slot_t s) const noexcept {
      return down ? base + (low + count - 1 - s) : base + (s - low);
    }
  };
  struct by_low {
    using is_transparent = void;
    bool operator()(const interval& a, const interval& b) const noexcept { return a.low < b.low; }
    bool operator()(slot_t a, const interval& b) const noexcept { return a < b.low; }
    bool operator()(const interval& a, slot_t b) const noexcept { return a.low < b; }
  };
  using tree = std::set<interval, by_low>;
  struct cell {
    slot_t slot = 0;
    std::uint64_t number = 0;
  };

  [[nodiscard]] bool hashed() const noexcept { return !cells_.empty(); }
  [[nodiscard]] bool before_current(slot_t slot) const noexcept {
    if (current_ == tree_.begin()) return false;
    const interval& p = *std::prev(current_);
    return slot - p.low < p.count;
  }
  answer insert(tree::const_iterator hint, slot_t slot);
  answer add_cold(slot_t slot);
  answer add_hashed(slot_t slot);
  void begin_hashing();
  [[nodiscard]] std::size_t place_of(slot_t slot) const noexcept {
    return static_cast<std::size_t>(slot * 0x9e3779b97f4a7c15u >> shift_);
  }

  tree tree_;
  tree::const_iterator current_, next_;  ///< the interval that was added to last, and the one above it
  std::uint64_t count_ = 0;
  std::vector<cell> cells_;  ///< open addressing, at most half full; empty while the tree is used
  std::size_t used_ = 0;
  int shift_ = 64;
};

}  // namespace fm::detail
