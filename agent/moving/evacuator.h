// Evacuation of a heap's sparse regions, as its owner asks for it after a collection (protocol/heap_messages.h,
// "Evacuating"): in address order, or in traversal order, for locality (Semeru, section 4).
//
// Address order empties the regions one after the other, as the cleaner does. Traversal order takes all of them as one
// set. A first walk notes which slots live copies of the set refer to; a second one starts a traversal at each live
// copy that nobody in the set refers to; a third one at whatever is left: cycles, and what found no room on the stack.
// An object is moved when it is reached, if its entry still names the set.
//
// How much memory it may take. If the heap is low from the beginning: the reserve, in address order and for regions
// that surely fit into a fresh one. So every region taken brings another one back. Otherwise: only as much as leaves
// the heap not low. A set is chosen that fits, and if memory runs short meanwhile, the evacuation ends, not the owner's
// batches.
//
// Invariants owned here
//   - The bits at heap::moves_at are zero unless an evacuator exists, and nobody else touches them.
//   - The owner hears that an evacuation has ended only after that.
#pragma once

#include "mover.h"

namespace fm::agent {

/// Seams and limits of the store that a step needs.
struct move_options {
  std::uint64_t stack_slots;  ///< objects that a traversal has met and not moved
  void (*copied)(void*) noexcept;
  void* context;
};

/// Carries out one evacuation. Used under heap.mover.
class evacuator {
 public:
  evacuator(heap& h, std::shared_ptr<evacuation> e) : h_(h), evacuation_(std::move(e)) {}
  evacuator(const evacuator&) = delete;
  evacuator& operator=(const evacuator&) = delete;

  [[nodiscard]] const evacuation* carries_out() const noexcept { return evacuation_.get(); }
  /// One bounded step; true when there is more to do.
  bool step(const move_options& o);
  /// Ends it wherever it is, and zeroes the bits.
  void end();

 private:
  /// What is still to be done with the regions chosen.
  enum class phase : std::uint8_t { choose, in_address_order, note_references, from_starts, from_the_rest, over };
  struct chosen {
    region* source;
    std::uint32_t generation;
  };

  // ---- evacuator.cc ----
  void choose(const move_options& o);  ///< heap.mutex
  [[nodiscard]] bool traverses() const noexcept { return phase_ != phase::in_address_order; }
  /// Enters the next region to be walked, if the last one is done; false when all have been. heap.mutex.
  bool next_source();
  bool note_step();
  bool move_step(const move_options& o);
  void account(const move_batch::outcome& o, std::uint64_t cpu_ns);  ///< heap.mutex
  void finish();                                                     ///< heap.mutex

  // ---- traversal.cc ----
  void note_references(std::uint64_t header, const std::byte* copy, std::uint64_t bytes);
  /// Moves what is on the stack, and finds starts for more of it, until the batch is large enough.
  walked traverse(move_batch& batch);
  bool move_object(move_batch& batch, slot_t slot);
  void push_references(std::uint64_t header, const std::byte* copy, std::uint64_t bytes);
  void push(slot_t slot) noexcept;
  slot_t pop() noexcept;
  void push_back(slot_t slot) noexcept;  ///< the one that was popped last
  void prefetch_next();
  void prefetch_copy(slot_t slot);
  [[nodiscard]] std::uint64_t wrap(std::uint64_t i) const noexcept { return i < stack_max_ ? i : i - stack_max_; }
  [[nodiscard]] slot_t& met(std::uint64_t i) const noexcept {
    return reinterpret_cast<slot_t*>(stack_.base())[wrap(first_ + i)];
  }
  [[nodiscard]] bool in_set(home_address at) const noexcept {
    return at.region < set_.size() && set_[at.region].generation == at.generation && at.generation != 0;
  }
  const std::byte* enter(home_address at);
  void leave_regions() noexcept;
  /// The word of a slot's bits; null when its tablet is not granted.
  [[nodiscard]] heap::bits_t* bits_of(slot_t slot, bool taken) const noexcept;

  heap& h_;
  const std::shared_ptr<evacuation> evacuation_;
  phase phase_ = phase::choose;
  bool low_ = false;  ///< the heap was, when the regions were chosen
  std::vector<chosen> sources_;
  std::size_t source_ = 0;  ///< the one that is being walked
  bool walking_ = false;    ///< it has been begun
  heap::copy_walk at_;

  struct member {
    std::uint32_t generation;  ///< 0: not of the set
    const std::byte* base;     ///< while it is entered in this step, otherwise null
  };
  std::vector<member> set_;      ///< by region number; empty in address order
  std::vector<region*> inside_;  ///< entered in this step
  /// Slots that have been met, all of granted tablets: a ring of `stack_max_`, used as a stack or as a queue.
  os::reservation stack_;
  bool breadth_first_ = false;
  std::uint64_t stack_max_ = 0, first_ = 0, count_ = 0;
};

/// One bounded step of the evacuation that the heap's owner has asked for, if any; takes the heap's locks itself. True
/// when there is more to do.
bool evacuate_step(heap& h, const move_options& o);

}  // namespace fm::agent
