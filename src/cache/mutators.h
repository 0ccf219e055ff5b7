// The threads that have used one heap, and the heap's number in thread_state::mutators, by which a thread finds its
// state.
//
// Invariants owned here
//   - A mutator belongs to one thread at a time; one whose thread has ended is the next new thread's.
//   - A thread that ends gives back what it leases while the heap is open: closing the heap takes the same lock.
//
// Everything in the cache may ask for here(); visiting all of them is for statistics, retirements and snapshots.
#pragma once

#include "mutator.h"
#include "os/os.h"
#include <memory>
#include <mutex>
#include <vector>

namespace fm::detail {

class mutator_list {
 public:
  explicit mutator_list(object_cache& cache) noexcept : cache_(cache) {}
  /// Takes a number for the heap. Throws invalid_argument when all are in use.
  void open();
  /// All threads forget the heap, and its number is free.
  void close() noexcept;

  /// The calling thread's state in this heap. O(1) but for a thread's first call, which leaves its sections while it
  /// waits. `reaches`: the slot that it is about to reach; 0: none. Throws heap_closed in a child of the process whose
  /// heap it is.
  mutator& here(slot_t reaches = 0) {
    mutator* m = known();
    return __builtin_expect(m != nullptr, 1) ? *m : attach(reaches);
  }
  /// The same, or null when the thread has not used the heap yet.
  [[nodiscard]] mutator* known() const noexcept { return this_thread.mutators[index_]; }
  /// Gives back what a thread leases; when it ends.
  void detach(mutator& m) noexcept;
  /// Threads that have used the heap and have not ended.
  [[nodiscard]] std::size_t count() noexcept;
  /// All that were ever attached.
  template <class Visit>
  void for_each(Visit&& visit) {
    const std::lock_guard lock(mutex_);
    for (auto& m : all_) visit(*m);
  }

  /// The same, unless somebody has the list: then false.
  template <class Visit>
  [[nodiscard]] bool try_for_each(Visit&& visit) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    for (auto& m : all_) visit(*m);
    return true;
  }

 private:
  friend class slot_hold;
  mutator& attach(slot_t reaches);

  object_cache& cache_;
  const std::uint32_t opened_in_ = os::fork_depth();  ///< the process
  std::uint32_t index_ = 0;
  std::mutex mutex_;
  std::vector<std::unique_ptr<mutator>> all_;
  std::vector<mutator*> free_;  ///< of those, whose threads have ended; the next new threads'
};

}  // namespace fm::detail
