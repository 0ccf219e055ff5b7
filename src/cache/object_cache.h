// The local cache of one heap: resolves slots to frames and makes objects. It owns the parts that do the work, and each
// part reaches the others through it:
//
//   mutators      the threads, and what each has of its own          mutators.h
//   frames        frames and segments, the reserve                   frames.h, frames/arena.h
//   pages         pages of the table that are given back             table/pages.h
//   leases        what threads have of their own           leases.h
//   slots         slots from the agents' tablets                     slots.h
//   losses        agents that are lost, and their objects            losses.h
//   requests      when a collection is asked for                     collection_requests.h
//   pressure      waiting for memory                                 pressure.h
//   misses        fetches that a thread waits for                    miss.h
//   detached      fetches that nobody, or a coroutine, waits for     detached.h
//   collections   what a collection sees and frees                   collection.h
//   young         when objects cease to be young                     young.h
//   retirements   regions that agents want back                      retirements.h
//   eviction      cooling, sweeping, write-back                      evictor.h
//
// Invariants owned here
//   - One usable frame per object: a word names at most one frame, and a frame stops being named only under the rules
//     of farmem/detail/barriers/word.h (cold and unpinned for a grace period, or lost an install race and was never named).
//   - Every transition of a word is made inside a section.
//   - A frame is dirty until its newest bytes are acknowledged as indexed; there is at most one unacknowledged
//     write-back an object (frame::writing_bit).
//
// The barriers call resolve() when a word's fast test fails, and handles call allocate(); heap, collector, channels and
// coroutines name the part that they mean.
#pragma once

#include "base/growing_list.h"
#include "cache/collections/collection.h"
#include "cache/collections/collection_requests.h"
#include "cache/collections/detached.h"
#include "cache/collections/young.h"
#include "cache/eviction/retirements.h"
#include "cache/frames/new_objects.h"
#include "cache/memory/frames.h"
#include "cache/memory/leases.h"
#include "cache/memory/pressure.h"
#include "cache_options.h"
#include "losses.h"
#include "miss.h"
#include "mutators.h"
#include "object/object.h"
#include "slots.h"
#include "table/pages.h"
#include <farmem/detail/barriers/access.h>

namespace fm::detail {

class evictor;

class object_cache {
 public:
  using links = const growing_list<remote::agent_session>;

  /// The heap opens the agent sessions; the cache owns their use, not their life.
  object_cache(const cache_options& options, links& agents);
  /// Makes ready for one more agent, whose number is that of agents so far; `add` adds it to the list. By the
  /// collector's thread, between two collections. Throws bad_alloc.
  void expect_agent(remote::agent_session& next, const std::function<void()>& add);
  ~object_cache();
  object_cache(const object_cache&) = delete;
  object_cache& operator=(const object_cache&) = delete;

  /// The payload of the object, resident, warm, and for `write` dirty. Inside a section, which is left while the thread
  /// waits. Throws fm::error: null_handle, heap_closed, not_found, cache_full, agent_lost, timed_out, corrupt. O(1) when
  /// resident; one fetch otherwise.
  static char* resolve(slot_t slot, access how) { return owner_of(slot).resolve_here(slot, how); }
  /// The same of a slot that is this heap's.
  char* resolve_here(slot_t slot, access how);
  /// The heap that a slot belongs to; throws when there is none.
  static object_cache& owner_of(slot_t slot);

  /// Allocates an object: header and payload written from `init` (`init_bytes`, rest zero), dirty, warm. Waits for
  /// memory and slots outside of sections. Throws cache_full, too_large, slots_exhausted, agent_lost, agent_full. The
  /// section in which the slot was taken stays open until the answer dies: root the object by then.
  new_object allocate(const type_descriptor& type, std::uint64_t length, const void* init, std::uint64_t init_bytes);

  /// Allocates at least one and at most `count` objects of the same type and length, as many as go together, and lets
  /// `fill(i, payload)` write the whole payload of each before anybody can see it: the length of an array, and no
  /// reference to anything but what is alive. `fill` does not throw. Waits and throws as allocate. O(objects).
  template <class Fill>
  new_objects allocate_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count, Fill&& fill) {
    static_assert(noexcept(fill(std::uint64_t{}, static_cast<char*>(nullptr))),
                  "the slots are taken when it is called");
    const taken_slots t = begin_together(type, length, count);
    for (std::uint64_t i = 0; i < t.count; ++i) fill(i, t.payload + i * t.stride);
    publish_together(t, type);
    return new_objects(t);
  }

  /// Evicts until everything unpinned is remote; for tests and benches.
  errc evict_all(time_point deadline);
  /// Lets what this thread fills be evicted.
  void give_back_pieces() noexcept;
  /// Stops eviction, fails whoever still asks, forgets all words. The heap closes the agent sessions afterwards.
  void close() noexcept;

  /// Of objects that are made now; and of those that were made before, when the cache was larger, perhaps.
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept {
    return std::min(stored_bytes_max_, frames_.wanted_bytes() / limits::objects_of_cache);
  }
  [[nodiscard]] std::uint64_t stored_bytes_max() const noexcept { return stored_bytes_max_; }
  /// Bytes of the largest object that agents may have, which may be more than this cache takes.
  [[nodiscard]] std::uint64_t bytes_at_agents_max() const noexcept {
    return std::max(stored_bytes_max_, options_.stored_before_max);
  }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return frames_.capacity_bytes(); }
  [[nodiscard]] bool closed() const noexcept { return (unusual_.load(std::memory_order_acquire) & is_closed) != 0; }
  /// Tablets of a lost agent wait for a new one (losses.h); a hint that costs no look at the sessions.
  [[nodiscard]] bool any_stranded() const noexcept {
    return (unusual_.load(std::memory_order_acquire) & has_stranded) != 0;
  }
  void begin_stranded() noexcept { unusual_.fetch_or(has_stranded, std::memory_order_acq_rel); }
  /// An agent is lost, and its tablets wait from now on. From any thread.
  void note_lost_agent() noexcept {
    begin_stranded();
    losses_.note_loss();
  }
  void end_stranded() noexcept { unusual_.fetch_and(~has_stranded, std::memory_order_acq_rel); }
  /// Agents that are to store each object.
  void set_replicas(std::uint32_t n) noexcept { replicas_.store(n, std::memory_order_release); }
  [[nodiscard]] std::uint32_t replicas() const noexcept { return replicas_.load(std::memory_order_acquire); }
  [[nodiscard]] const cache_options& options() const noexcept { return options_; }
  links& agents() noexcept { return links_; }
  /// Acquires what was done to the tablet's words before the agent got it.
  static std::uint32_t agent_of(slot_t s) noexcept { return tablet_info_of(s).agent.load(std::memory_order_acquire); }
  remote::agent_session& link_of(slot_t s) noexcept { return *links_[agent_of(s)]; }

  /// This thread's state in this heap.
  mutator& here() { return mutators_.here(); }
  mutator_list& mutators() noexcept { return mutators_; }
  arena& memory() noexcept { return frames_.memory(); }
  frame_space& frames() noexcept { return frames_; }
  hit_pages& pages() noexcept { return pages_; }
  slot_sources& slots() noexcept { return slots_; }
  lost_agents& losses() noexcept { return losses_; }
  lease_book& leases() noexcept { return leases_; }
  collection_requests& requests() noexcept { return requests_; }
  memory_pressure& pressure() noexcept { return pressure_; }
  miss_handler& misses() noexcept { return misses_; }
  detached_fetches& detached() noexcept { return detached_; }
  collector_view& collections() noexcept { return collections_; }
  [[nodiscard]] const collector_view& collections() const noexcept { return collections_; }
  young_objects& young() noexcept { return young_; }
  region_retirements& retirements() noexcept { return retirements_; }
  evictor& eviction() noexcept { return *evictor_; }

 private:
  // ---- allocation.cc ----
  /// Of an object of that length; throws heap_closed, too_large.
  [[nodiscard]] std::uint64_t checked_payload_bytes(const type_descriptor& type, std::uint64_t length);
  /// In a section: a frame, and the thread has a slot. Waits for memory outside of sections when it can. Throws
  /// cache_full, and as slot_sources::refill; then there is no frame.
  char* have_room(mutator& m, std::uint64_t payload_bytes, std::uint64_t together);
  /// The same, and `write(payload)` has written the contents.
  template <class Write>
  char* write_with_room(mutator& m, std::uint64_t payload_bytes, const Write& write);
  /// In the section, the thread has a slot for the frame that it has bumped there. Throws as slot_sources::refill; then
  /// the frame is given back.
  void have_slot(mutator& m, char* payload, std::uint64_t together);
  void count_allocated(mutator& m, std::uint64_t objects, std::uint64_t payload_bytes) noexcept;
  /// Slots and frames without contents, and a section that is open.
  taken_slots begin_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count);
  void publish_together(const taken_slots& t, const type_descriptor& type);

  cache_options options_;
  links& links_;
  std::uint64_t stored_bytes_max_ = 0;
  std::atomic<std::uint32_t> replicas_{options_.replicas};
  enum unusual_bits : std::uint32_t { is_closed = 1, has_stranded = 2 };
  std::atomic<std::uint32_t> unusual_{0};  ///< one look tells an allocation that all is as usual
  mutator_list mutators_{*this};
  frame_space frames_{*this, options_};
  hit_pages pages_{options_.hit_bytes, options_.hit_residents_max};
  slot_sources slots_{*this};
  lost_agents losses_{*this};
  lease_book leases_{*this, options_};
  collection_requests requests_;
  memory_pressure pressure_{*this};
  miss_handler misses_{*this, std::max(options_.capacity_bytes, options_.capacity_bytes_most)};
  detached_fetches detached_{*this};
  collector_view collections_{*this};
  young_objects young_{*this};
  region_retirements retirements_{*this};
  std::unique_ptr<evictor> evictor_;
};

}  // namespace fm::detail
