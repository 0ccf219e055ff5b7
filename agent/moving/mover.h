// The common part of the cleaner (cleaner.cc) and of evacuations (evacuator.h): walking the live copies of a region,
// appending copies to the heap's target, and publishing their new addresses.
//
// A copy is live exactly when its slot's entry names its address. A move has three parts: (1) under the heap's mutex, a
// batch is begun in the target; (2) without it, copies are added; (3) under it again, each entry is compare-exchanged
// from exactly the address that was copied. An index message that came between wins, and the copy is garbage. The owner
// reads the old copies until it has agreed to the source's retirement.
//
// Invariants owned here
//   - One mover a heap at a time: heap.mover is held for the step.
//   - A region is entered while its bytes are looked at or written.
//   - Bytes of a source may be mapped by the owner: headers are checked before anything is copied.
//   - A step for which there is no memory throws bad_alloc. Each object is where it was, or moved; the step can be made
//     again.
#pragma once

#include "agent/base/limits.h"
#include "agent/heaps/heap.h"

namespace fm::agent {

/// A region that a step has entered, or null: it is left when the step ends, however it does.
class entered_region {
 public:
  explicit entered_region(region_pool& pool) noexcept : pool_(pool) {}
  ~entered_region() {
    if (region_ != nullptr) pool_.leave(*region_);
  }
  entered_region(const entered_region&) = delete;
  entered_region& operator=(const entered_region&) = delete;
  /// Once. The region is of an open heap, so it can be entered.
  void enter(std::uint32_t number, std::uint32_t generation) {
    region_ = pool_.enter(number, generation);
    FM_CHECK(region_ != nullptr, "a region of an open heap could not be entered");
  }
  [[nodiscard]] region& operator*() const noexcept { return *region_; }

 private:
  region_pool& pool_;
  region* region_ = nullptr;
};

/// A batch of copies under construction in the heap's target. It must be published or dropped within the same step.
class move_batch {
 public:
  struct moved {
    entry_t* entry;
    word_t from, to;
  };

  explicit move_batch(heap& h) noexcept : target_(h.regions_pool) {}

  /// Begins one; opens a target if there is none, for `use`. False: there is no memory for it. heap.mutex is held.
  bool begin(heap& h, region_use use);
  /// Copies an object of `bytes`, whose checked header is `header`; false when the target has no room for it.
  bool add(entry_t& entry, word_t from, std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
    const region& target = *target_;
    if (end_ > target.memory.bytes() || bytes > target.memory.bytes() - end_) {
      full_ = true;
      return false;
    }
    std::byte* const to = target.memory.base() + end_;
    std::memcpy(to, &header, sizeof header);
    std::memcpy(to + sizeof header, copy + sizeof header, bytes - sizeof header);
    const home_address there{target.number, target.generation, static_cast<std::uint32_t>(end_),
                             detail::size_class::of(bytes)};
    copies_.push_back({&entry, from, there.pack()});
    end_ += bytes;
    return true;
  }
  /// Makes the copies one batch of the target, moves the entries, and gives a full target up. Takes heap.mutex itself,
  /// several times and briefly.
  struct outcome {
    std::uint64_t objects = 0, bytes = 0;  ///< bytes: of what was appended
    std::uint64_t lost = 0;                ///< to batches of the owner that came between
  };
  outcome publish(heap& h);

  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return end_ - begin_; }
  [[nodiscard]] bool full() const noexcept { return full_; }
  /// Nothing has been put into the target yet.
  [[nodiscard]] bool is_fresh() const noexcept { return begin_ == 0 && copies_.empty(); }

 private:
  entered_region target_;
  std::uint64_t begin_ = 0, end_ = 0;  ///< offsets in the target; the first bytes are the batch's header
  bool full_ = false;
  std::vector<moved> copies_;
};

/// Closes the heap's target; heap.mutex is held, and there is one.
inline void seal_target(heap& h) { h.seal(*std::exchange(h.move_target, nullptr)); }

/// Finds the next copy at or after `at` and moves `at` to it; `bytes` and `header` are the copy's. False: `all` of the
/// region is behind, or it is damaged there, or the budget, in bytes of headers looked at, is used up.
enum class walked : std::uint8_t { found, more, stopped, all, damaged };
walked find_copy(const heap& h, const region& source, heap::copy_walk& at, std::uint64_t& budget, std::uint64_t& bytes,
                 std::uint64_t& header);

/// What a visitor of walk_live wants next.
enum class visit : std::uint8_t { on, stop_here, stop_behind };

/// Calls `v(entry, address, header, copy, bytes)` for the live copies from `at` on, until it wants to stop, or about
/// `budget` bytes have been passed (`more`), or the region is at its end. `at` is where to go on. The region is
/// entered. Entries are random accesses: they are prefetched some copies ahead.
template <class Visitor>
walked walk_live(const heap& h, const region& source, heap::copy_walk& at, std::uint64_t budget, Visitor&& v) {
  struct seen {
    heap::copy_walk at;
    entry_t* entry;
    std::uint64_t header, bytes;
  };
  constexpr std::uint32_t ahead_max = limits::walk_ahead, mask = ahead_max - 1;
  seen ring[ahead_max];
  std::uint32_t parsed = 0, visited = 0;
  walked end = walked::found;
  heap::copy_walk next = at;
  for (;;) {
    while (end == walked::found && parsed - visited < ahead_max) {
      seen& s = ring[parsed & mask];
      end = find_copy(h, source, next, budget, s.bytes, s.header);
      if (end != walked::found) break;
      s.at = next;
      s.entry = h.entry(detail::header::slot(s.header));
      if (s.entry != nullptr) __builtin_prefetch(s.entry, 1);
      next.offset += s.bytes;
      ++parsed;
    }
    if (parsed == visited) {
      at = next;
      return end;
    }
    const seen& s = ring[visited++ & mask];
    const word_t here = home_address{source.number, source.generation, static_cast<std::uint32_t>(s.at.offset),
                                     detail::size_class::of(s.bytes)}
                            .pack();
    if (s.entry == nullptr || s.entry->load(std::memory_order_acquire) != here) continue;
    const visit wanted = v(*s.entry, here, s.header, source.memory.base() + s.at.offset, s.bytes);
    if (wanted == visit::on) continue;
    at = s.at;
    if (wanted == visit::stop_behind) at.offset += s.bytes;
    return walked::stopped;
  }
}

/// One bounded step of cleaning (cleaner.cc); takes the heap's mutex itself, twice and briefly. True when there is more
/// to do. `copied` is called between copying and publishing.
bool clean_step(heap& h, double below_live_ratio, void (*copied)(void*) noexcept, void* context);

/// Notes that live entries were left in a sealed region whose copies have all been walked: its bytes are not what was
/// indexed. Reads still find them. heap.mutex is held.
void note_unwalkable(const heap& h, region& r, const heap::copy_walk& at);

}  // namespace fm::agent
