// What the agent keeps of a frame of a pool beside the frame itself: which slots are taken, and where an object is that
// is not in the slot of its birth index.
//
// The header of an object, in its slot, says who it is (protocol/pool_format.h). Nobody but the agent writes a pool's
// frames, so these books repeat nothing of it: a bit a slot, and 2.5 to 4 bytes for an object in another slot than its
// index's. Merges move objects to other slots; a block that was never merged has none of those.
//
// Invariant owned here: bytes() is exactly the memory that each has, and that goes back when it is reset or shrinks.
// A frame's books belong to its mutex (blocks.h).
#pragma once

#include "base/base.h"
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace fm::agent {

/// A fixed number of bits.
class bitmap {
 public:
  bitmap() = default;
  explicit bitmap(std::uint32_t bits)
      : words_(std::make_unique<std::uint64_t[]>((bits + 63) / 64)), count_((bits + 63) / 64) {}
  bitmap(bitmap&& o) noexcept : words_(std::move(o.words_)), count_(std::exchange(o.count_, 0)) {}
  bitmap& operator=(bitmap&& o) noexcept {
    words_ = std::move(o.words_);
    count_ = std::exchange(o.count_, 0);
    return *this;
  }

  [[nodiscard]] bool test(std::uint32_t i) const { return (words_[i / 64] >> i % 64 & 1) != 0; }
  void set(std::uint32_t i) { words_[i / 64] |= std::uint64_t{1} << i % 64; }
  void clear(std::uint32_t i) { words_[i / 64] &= ~(std::uint64_t{1} << i % 64); }
  [[nodiscard]] std::span<const std::uint64_t> words() const { return {words_.get(), count_}; }
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{count_} * sizeof(std::uint64_t); }

 private:
  std::unique_ptr<std::uint64_t[]> words_;
  std::uint32_t count_ = 0;
};

/// Slots, or other numbers, by a hash of who is there: open addressing with linear probing, at most four fifths full. It
/// holds the numbers alone. The caller knows who lives in a slot: `is(slot)` tells whether it is the one that is looked for, and
/// `hash_of(slot)` whose place may have to move.
class slot_index {
 public:
  static constexpr std::uint16_t no_slot = 0xffff;

  slot_index() = default;
  slot_index(slot_index&& o) noexcept
      : places_(std::move(o.places_)), capacity_(std::exchange(o.capacity_, 0)), count_(std::exchange(o.count_, 0)) {}
  slot_index& operator=(slot_index&& o) noexcept {
    places_ = std::move(o.places_);
    capacity_ = std::exchange(o.capacity_, 0);
    count_ = std::exchange(o.count_, 0);
    return *this;
  }

  [[nodiscard]] std::uint32_t size() const { return count_; }
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{capacity_} * sizeof(std::uint16_t); }

  /// The slot for which `is` holds, no_slot if there is none. O(1) expected.
  template <class Is>
  [[nodiscard]] std::uint16_t find(std::uint32_t hash, Is&& is) const {
    if (capacity_ == 0) return no_slot;
    for (std::uint32_t at = home(hash); places_[at] != no_slot; at = after(at))
      if (is(places_[at])) return places_[at];
    return no_slot;
  }
  /// Adds a slot that is not in here. O(1) amortized.
  template <class HashOf>
  void add(std::uint32_t hash, std::uint16_t slot, HashOf&& hash_of) {
    if ((count_ + 1) * std::uint64_t{5} > capacity_ * std::uint64_t{4}) resize(count_ + 1, hash_of);
    put(hash, slot);
    ++count_;
  }
  /// Takes a slot out that is in here under this hash. O(1) amortized.
  template <class HashOf>
  void remove(std::uint32_t hash, std::uint16_t slot, HashOf&& hash_of) {
    if (capacity_ == 0) return;
    std::uint32_t at = home(hash);
    for (; places_[at] != slot; at = after(at))
      if (places_[at] == no_slot) return;
    // What follows without a gap moves up, so that no search ends too early.
    for (std::uint32_t next = after(at); places_[next] != no_slot; next = after(next)) {
      const std::uint32_t wants = home(hash_of(places_[next]));
      const bool may_move = at <= next ? wants <= at || wants > next : wants <= at && wants > next;
      if (!may_move) continue;
      places_[at] = places_[next];
      at = next;
    }
    places_[at] = no_slot;
    --count_;
    if (count_ == 0)
      *this = slot_index();
    else if (count_ * std::uint64_t{2} < capacity_)
      resize(count_, hash_of);
  }
  /// Two that are in here under these hashes change their places: each is in here under the other's hash then.
  void exchange(std::uint32_t hash, std::uint16_t slot, std::uint32_t other_hash, std::uint16_t other) {
    std::uint32_t at = home(hash), other_at = home(other_hash);
    while (places_[at] != slot) at = after(at);
    while (places_[other_at] != other) other_at = after(other_at);
    std::swap(places_[at], places_[other_at]);
  }

 private:
  [[nodiscard]] std::uint32_t home(std::uint32_t hash) const {
    return static_cast<std::uint32_t>(std::uint64_t{hash} * capacity_ >> 32);
  }
  [[nodiscard]] std::uint32_t after(std::uint32_t at) const { return at + 1 == capacity_ ? 0 : at + 1; }
  void put(std::uint32_t hash, std::uint16_t slot) {
    std::uint32_t at = home(hash);
    while (places_[at] != no_slot) at = after(at);
    places_[at] = slot;
  }
  /// Room for `n`, and a quarter more.
  template <class HashOf>
  void resize(std::uint32_t n, HashOf&& hash_of) {
    slot_index bigger;
    bigger.capacity_ = n * 25 / 16 + 4;
    bigger.places_ = std::make_unique<std::uint16_t[]>(bigger.capacity_);
    std::fill_n(bigger.places_.get(), bigger.capacity_, no_slot);
    for (std::uint32_t i = 0; i < capacity_; ++i)
      if (places_[i] != no_slot) bigger.put(hash_of(places_[i]), places_[i]);
    bigger.count_ = count_;
    *this = std::move(bigger);
  }

  std::unique_ptr<std::uint16_t[]> places_;
  std::uint32_t capacity_ = 0, count_ = 0;
};

}  // namespace fm::agent
