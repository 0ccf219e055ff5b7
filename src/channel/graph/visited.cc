// The interval tree of slots that a traversal has met, and the hash table that takes over from it; see visited.h.
// Belongs to one graph_writer, on one thread.
#include "visited.h"

#include <iterator>

namespace fm::detail {

void visited_set::clear() {
  tree_.clear();
  // So that there is always a current interval: slot 0 is nobody's, and an interval of none.
  current_ = tree_.insert(interval{0, 0, 0, false}).first;
  next_ = tree_.end();
  count_ = 0;
  cells_.clear();
  used_ = 0;
  shift_ = 64;
}

visited_set::answer visited_set::insert(tree::const_iterator hint, slot_t slot) {
  current_ = tree_.insert(hint, interval{slot, 1, count_, false});
  next_ = std::next(current_);
  const answer a{count_++, true};
  if (tree_.size() > intervals_max && count_ / tree_.size() < objects_each_min) begin_hashing();
  return a;
}

visited_set::answer visited_set::add_cold(slot_t slot) {
  const auto above = tree_.upper_bound(slot);
  const interval& at = *std::prev(above);  // slot 0 is below all
  if (slot - at.low < at.count) return {at.number_of(slot), false};
  return insert(above, slot);
}

void visited_set::begin_hashing() {
  std::size_t objects = 0;
  for (const interval& i : tree_) objects += i.count;
  std::size_t size = 1024;
  shift_ = 54;
  for (; size < objects * 4; size *= 2) --shift_;
  std::vector<cell> cells(size);
  cells_.swap(cells);
  used_ = objects;
  for (const interval& i : tree_) {
    for (std::uint64_t k = 0; k < i.count; ++k) {
      const slot_t slot = i.low + k;
      std::size_t p = place_of(slot);
      while (cells_[p].slot != 0) p = (p + 1) & (size - 1);
      cells_[p] = {slot, i.number_of(slot)};
    }
  }
  tree_.clear();
}

visited_set::answer visited_set::add_hashed(slot_t slot) {
  const std::size_t mask = cells_.size() - 1;
  std::size_t p = place_of(slot);
  for (; cells_[p].slot != 0; p = (p + 1) & mask)
    if (cells_[p].slot == slot) return {cells_[p].number, false};
  if (2 * (used_ + 1) > cells_.size()) {
    std::vector<cell> old(cells_.size() * 2);
    old.swap(cells_);
    --shift_;
    for (const cell& c : old) {
      if (c.slot == 0) continue;
      std::size_t q = place_of(c.slot);
      while (cells_[q].slot != 0) q = (q + 1) & (cells_.size() - 1);
      cells_[q] = c;
    }
    p = place_of(slot);
    while (cells_[p].slot != 0) p = (p + 1) & (cells_.size() - 1);
  }
  cells_[p] = {slot, count_};
  ++used_;
  return {count_++, true};
}

}  // namespace fm::detail
