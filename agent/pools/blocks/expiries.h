// When objects of one frame of a pool expire: their times, by slot, and the soonest first.
//
// Only objects that expire are in here. Each takes 10 to 20 bytes, and a frame without one has no such record at all.
// A binary heap has the times, and an index leads from a slot to its place in the heap.
//
// Invariants owned here
//   - A slot is in the heap at most once, and the index has exactly the places of the heap.
//   - bytes() is the memory that this has. It shrinks with what is in it.
// It belongs to the frame's mutex, but for `queued` (blocks.h).
#pragma once

#include "frame_books.h"
#include <cstdint>
#include <vector>

namespace fm::agent {

/// A moment on the agent's clock, in ms.
using expiry = std::uint64_t;
constexpr expiry no_expiry = ~expiry{0};

class frame_expiries {
 public:
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(heap_.size()); }
  [[nodiscard]] std::uint64_t bytes() const {
    return sizeof *this + heap_.capacity() * sizeof(heap_[0]) + index_.bytes();
  }
  /// no_expiry: whoever lives in the slot does not expire. O(1) expected.
  [[nodiscard]] expiry of(std::uint32_t slot) const {
    const std::uint16_t at = find(slot);
    return at == slot_index::no_slot ? no_expiry : time_of(heap_[at]);
  }
  /// no_expiry if nothing is in here. O(1).
  [[nodiscard]] expiry soonest() const { return heap_.empty() ? no_expiry : time_of(heap_.front()); }
  /// Of an object with that time. Something is in here.
  [[nodiscard]] std::uint32_t soonest_slot() const { return slot_of(heap_.front()); }
  /// Calls `f` with each slot, in no order.
  template <class F>
  void for_each_slot(F&& f) const {
    for (const entry e : heap_) f(slot_of(e));
  }

  /// True if the slot had no time before. O(log size()).
  bool set(std::uint32_t slot, expiry time) {
    const std::uint16_t known = find(slot);
    if (known != slot_index::no_slot) {
      heap_[known] = pack(time, slot);
      settle(known);
      return false;
    }
    if (heap_.size() == heap_.capacity()) heap_.reserve(room_for(heap_.size() + 1));
    heap_.push_back(pack(time, slot));
    index_.add(hash_of_slot(slot), static_cast<std::uint16_t>(size() - 1), hash_at{*this});
    rise(size() - 1);
    return true;
  }
  /// False if the slot has no time. O(log size()) amortized.
  bool drop(std::uint32_t slot) {
    const std::uint16_t at = find(slot);
    if (at == slot_index::no_slot) return false;
    const std::uint32_t last = size() - 1;
    if (at != last) exchange(at, last);
    index_.remove(hash_of_slot(slot), static_cast<std::uint16_t>(last), hash_at{*this});
    heap_.pop_back();
    if (at != last) settle(at);
    if (heap_.capacity() > 2 * heap_.size() + 8) {
      std::vector<entry> less;
      less.reserve(room_for(heap_.size()));
      less.assign(heap_.begin(), heap_.end());
      heap_.swap(less);
    }
    return true;
  }

  expiry queued = no_expiry;  ///< what the pool has this frame queued for: not later than soonest()

 private:
  using entry = std::uint64_t;  ///< 63..16 time | 15..0 slot: in the order of the times
  static entry pack(expiry time, std::uint32_t slot) { return time << 16 | slot; }
  static expiry time_of(entry e) { return e >> 16; }
  static std::uint32_t slot_of(entry e) { return e & 0xffff; }
  static std::size_t room_for(std::size_t n) { return n + n / 4 + 4; }
  static std::uint32_t hash_of_slot(std::uint32_t slot) { return slot * 0x9e3779b1u; }
  struct hash_at {  ///< what slot_index asks for: under which hash a place of the heap is in it
    const frame_expiries& of;
    std::uint32_t operator()(std::uint16_t at) const { return hash_of_slot(slot_of(of.heap_[at])); }
  };
  [[nodiscard]] std::uint16_t find(std::uint32_t slot) const {
    return index_.find(hash_of_slot(slot), [&](std::uint16_t at) { return slot_of(heap_[at]) == slot; });
  }
  void exchange(std::uint32_t a, std::uint32_t b) {
    index_.exchange(hash_of_slot(slot_of(heap_[a])), static_cast<std::uint16_t>(a), hash_of_slot(slot_of(heap_[b])),
                    static_cast<std::uint16_t>(b));
    std::swap(heap_[a], heap_[b]);
  }
  void rise(std::uint32_t at) {
    for (; at > 0 && heap_[at] < heap_[(at - 1) / 2]; at = (at - 1) / 2) exchange(at, (at - 1) / 2);
  }
  void sink(std::uint32_t at) {
    for (std::uint32_t child = 2 * at + 1; child < size(); at = child, child = 2 * at + 1) {
      if (child + 1 < size() && heap_[child + 1] < heap_[child]) ++child;
      if (heap_[at] <= heap_[child]) return;
      exchange(at, child);
    }
  }
  void settle(std::uint32_t at) {
    rise(at);
    sink(at);
  }

  std::vector<entry> heap_;
  slot_index index_;  ///< of places in heap_
};

}  // namespace fm::agent
