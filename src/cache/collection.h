// What a collection asks of the cache: which slots are allocated at a moment, what frames know better than home copies,
// to let dead objects go, and to take their slots back. Called by layer gc; one collection at a time.
//
// Invariants owned here
//   - A slot is allocated from the section that takes it from a thread's run and publishes its word. So in a pause every slot
//     of the heap's tablets is allocated, or free: in a run, in a page of free slots, or in a tablet's rest.
//   - A slot is freed only while its word cannot be on its way anywhere: not fetching, not pinned, and without an
//     unacknowledged write-back. Then no message that will still be applied names it, and the slot may be used again.
#pragma once

#include "table/table.h"
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace fm::detail {

class object_cache;

/// Some slots of a page of 512: bit i stands for first + i.
struct slot_page {
  slot_t first = 0;
  std::array<std::uint64_t, page_slots / 64> bits{};
};

/// Bits for every slot of some tablets: allocated at the snapshot, newer here than at home, and marked since.
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
  std::uint64_t* newer(std::size_t i) noexcept { return newer_.data() + i * tablet_words; }
  /// Marks it; false when it was marked, or was not allocated at the snapshot. By one thread.
  bool mark(slot_t s) noexcept {
    if (!dead(s)) return false;
    marked_[index_of(s) * tablet_words + s % tablet_slots / 64] |= std::uint64_t{1} << (s % 64);
    return true;
  }
  /// Makes room for note_newer.
  void expect_newer() { newer_.resize(allocated_.size()); }
  /// The home copy may be older than the snapshot. The slot is covered. By one thread.
  void note_newer(slot_t s) noexcept {
    newer_[index_of(s) * tablet_words + s % tablet_slots / 64] |= std::uint64_t{1} << (s % 64);
  }
  [[nodiscard]] bool is_newer(slot_t s) const noexcept {
    const std::size_t at = position(s);
    return at != 0 && !newer_.empty() && bit(newer_.data() + (at - 1) * tablet_words, s);
  }
  /// Takes everything else for not allocated: what is dead is among what was noted.
  void only_newer() noexcept {
    for (std::size_t i = 0; i < allocated_.size(); ++i) allocated_[i] &= newer_[i];
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
  std::vector<std::uint64_t> allocated_, marked_, newer_;
};

/// Holds the sources of slots still, so that a pause can tell what is allocated. Waits for threads that are being granted
/// tablets.
class slot_hold {
 public:
  explicit slot_hold(object_cache& cache);
  ~slot_hold();
  slot_hold(const slot_hold&) = delete;
  slot_hold& operator=(const slot_hold&) = delete;

  /// In a pause: notes the threads' runs. O(threads).
  void note_runs() noexcept;
  /// Afterwards: everything of the tablets is allocated except what was free. With `news`, of the tablets that have any
  /// (object_cache::has_news).
  [[nodiscard]] std::unique_ptr<slot_marks> allocated(bool news = false);

 private:
  object_cache& cache_;
  std::vector<std::unique_lock<std::mutex>> locks_;
  std::vector<std::uint32_t> tablets_;
  std::vector<slot_page> free_pages_;
  struct run {
    slot_t first, end;
  };
  std::vector<run> free_runs_;
};

/// What scan_frames finds.
class frame_visitor {
 public:
  virtual ~frame_visitor() = default;
  /// A frame: `newer` than its home copy, or it may be; `young`, which is newer, too (frame.h). Whether references() is wanted.
  virtual bool frame(slot_t slot, bool newer, bool young) = 0;
  /// The slots that the frame refers to, null ones left out. Not called for types without references.
  virtual void references(slot_t slot, std::span<const slot_t> refs) = 0;
  /// The object is pinned.
  virtual void pinned(slot_t slot) = 0;
  /// Called now and then outside of sections: the only place to wait in.
  virtual void between_pages() = 0;
};

}  // namespace fm::detail
