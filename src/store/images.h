// What the owner's frames refer to, by slot: the images of one cycle. An image stands for the slot's home copy, which may
// be older than the snapshot.
//
// Invariants owned here
//   - A record, once added, neither moves nor changes, so it is read without a lock.
//   - Never more than the bytes that were allowed, the index included.
// add() and find() belong to the tracer's mutex until tracing starts; from then on find() is for everybody, and only
// add_unlinked() still adds, under that mutex.
#pragma once

#include <farmem/os.h>
#include <farmem/table.h>

#include <memory>
#include <span>

namespace fm::store::node {

class image_store {
 public:
  explicit image_store(std::uint64_t bytes_max);
  ~image_store();
  image_store(const image_store&) = delete;
  image_store& operator=(const image_store&) = delete;

  /// Bytes that `records` records with `slots` references in all take, at most.
  [[nodiscard]] static constexpr std::uint64_t bytes_for(std::uint64_t records, std::uint64_t slots) {
    return records * (record_bytes + index_bytes) + slots * 8;
  }
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept { return bytes <= bytes_max_ - bytes_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Adds a record of `count` little-endian slots to the slot's image; there is room.
  void add(detail::slot_t slot, const std::byte* slots, std::uint32_t count);
  /// Adds a record that find() does not find, and returns where it is.
  std::uint64_t add_unlinked(const std::byte* slots, std::uint32_t count);

  /// Where the slot's first record is; 0: it has no image. O(1).
  [[nodiscard]] std::uint64_t find(detail::slot_t slot) const noexcept;
  /// The next record of the same slot, or 0.
  [[nodiscard]] std::uint64_t next(std::uint64_t record) const noexcept { return words()[record]; }
  [[nodiscard]] std::span<const detail::slot_t> slots(std::uint64_t record) const noexcept {
    return {words() + record + 2, words()[record + 1]};
  }

 private:
  static constexpr std::uint64_t record_bytes = 16;  ///< next, count
  static constexpr std::uint64_t index_bytes = 40;   ///< of one slot, at the index's lowest load
  struct index;

  [[nodiscard]] std::uint64_t* words() const noexcept { return reinterpret_cast<std::uint64_t*>(memory_.base()); }

  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::uint64_t end_ = 1;  ///< in words; 0 is no record
  os::reservation memory_;
  std::unique_ptr<index> index_;
};

}  // namespace fm::store::node
