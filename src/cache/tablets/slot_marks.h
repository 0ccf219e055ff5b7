// Sets of slots: some slots of one page, and bits for every slot of some tablets. A collection keeps in slot_marks what
// was allocated at its snapshot and what it has marked since.
//
// Invariant: a slot is dead in slot_marks when it was allocated at the snapshot and is not marked; `allocated` only
// shrinks and `marked` only grows. The collector writes the bits; sections of any thread may read dead() meanwhile.
#pragma once

#include "table/table.h"
#include <array>
#include <cstdint>
#include <vector>

namespace fm::detail {

/// Some slots of a page of 512: bit i stands for first + i.
struct slot_page {
  slot_t first = 0;
  std::array<std::uint64_t, page_slots / 64> bits{};
};

/// Bits for every slot of some tablets: allocated at the snapshot, dirty then or later, and marked since.
class slot_marks {
 public:
  static constexpr std::size_t tablet_words = tablet_slots / 64;

  explicit slot_marks(std::vector<std::uint32_t> tablets);

  [[nodiscard]] const std::vector<std::uint32_t>& tablets() const noexcept { return tablets_; }
  [[nodiscard]] bool covers(slot_t s) const noexcept { return position(s) != 0; }
  /// Allocated at the snapshot, and not marked. Wait-free.
  [[nodiscard]] bool dead(slot_t s) const noexcept {
    const std::size_t at = position(s);
    return at != 0 && bit(allocated_.data() + (at - 1) * tablet_words, s) &&
           !bit(marked_.data() + (at - 1) * tablet_words, s);
  }
  /// Bit i of the tablet: word i / 64, bit i % 64.
  std::uint64_t* allocated(std::size_t i) noexcept { return allocated_.data() + i * tablet_words; }
  std::uint64_t* marked(std::size_t i) noexcept { return marked_.data() + i * tablet_words; }
  std::uint64_t* dirty(std::size_t i) noexcept { return dirty_.data() + i * tablet_words; }
  /// Marks it; false when it was marked, or was not allocated at the snapshot. By one thread.
  bool mark(slot_t s) noexcept {
    if (!dead(s)) return false;
    marked_[index_of(s) * tablet_words + s % tablet_slots / 64] |= std::uint64_t{1} << (s % 64);
    return true;
  }
  /// Makes room for note_dirty.
  void expect_dirty() { dirty_.resize(allocated_.size()); }
  /// The home copy may be older than the snapshot. The slot is covered. By one thread.
  void note_dirty(slot_t s) noexcept {
    dirty_[index_of(s) * tablet_words + s % tablet_slots / 64] |= std::uint64_t{1} << (s % 64);
  }
  /// The same of 64 slots.
  void note_dirty(slot_t first, std::uint64_t slots) noexcept {
    dirty_[index_of(first) * tablet_words + first % tablet_slots / 64] |= slots;
  }
  [[nodiscard]] bool is_dirty(slot_t s) const noexcept {
    const std::size_t at = position(s);
    return at != 0 && !dirty_.empty() && bit(dirty_.data() + (at - 1) * tablet_words, s);
  }
  /// Takes everything else for not allocated: what is dead is among what was noted.
  void only_dirty() noexcept {
    for (std::size_t i = 0; i < allocated_.size(); ++i) allocated_[i] &= dirty_[i];
  }
  /// Of the tablet of a slot that is covered: where it is in tablets().
  [[nodiscard]] std::size_t index_of(slot_t s) const noexcept { return position(s) - 1; }
  /// Not allocated, after all.
  void except(slot_t first, std::uint64_t slots) noexcept;
  void except(const slot_page& p) noexcept;

 private:
  /// Of the slot's tablet in tablets(), plus 1; 0 when it is not there.
  [[nodiscard]] std::size_t position(slot_t s) const noexcept {
    const std::uint32_t t = tablet_of(s);
    return t < positions_.size() ? positions_[t] : 0;
  }
  static bool bit(const std::uint64_t* words, slot_t s) noexcept {
    const std::uint64_t i = s % tablet_slots;
    return (words[i / 64] >> (i % 64) & 1) != 0;
  }
  std::vector<std::uint32_t> tablets_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint64_t> allocated_, marked_, dirty_;
};

}  // namespace fm::detail
