// The local cache of one heap: resolves slots to frames, fetches what is away, allocates, and drives eviction. The
// barrier layer calls resolve() when a word's fast test fails; everything that changes a word for a mutator is here.
//
// Invariants owned here
//   - One usable frame per object: a word names at most one frame, and a frame stops being named only under the rules
//     of table/entry.h (cold and unpinned for a grace period, or lost an install race and was never named).
//   - Every transition is made inside a section.
//   - A frame is dirty until its newest bytes are acknowledged as indexed; there is at most one unacknowledged
//     write-back an object (frame::writing_bit).
#pragma once

#include "elastic.h"
#include "mutator.h"
#include "object/object.h"
#include "pages.h"
#include "remote/agent_session.h"
#include <farmem/detail/access.h>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fm::detail {

struct cache_options {
  std::uint64_t capacity_bytes = 256ull << 20;
  std::uint64_t segment_bytes = 1ull << 20;
  queue_policy queues;                                ///< units are segments
  duration memory_within = std::chrono::seconds(5);   ///< an allocation waits so long for memory, then cache_full
  duration access_within = std::chrono::seconds(10);  ///< a miss waits so long, then timed_out or agent_lost
  std::uint64_t hit_bytes = 0;                        ///< of the HIT that may be in memory; 0: all of it
  std::uint32_t hit_residents_max = 64;  ///< a page of the HIT that names more resident objects is not given back
  bool elastic = true;
  bool background_evictor = true;
};

class evictor;

/// Objects of one shape that were allocated together: consecutive slots, payloads at one stride. As new_object: what is to
/// live is rooted, or referred to from what is rooted, while this lives.
class [[nodiscard]] new_objects {
 public:
  new_objects(slot_t first, std::uint64_t count, char* payload, std::uint64_t stride) noexcept
      : first_(first), count_(count), payload_(payload), stride_(stride) {}
  ~new_objects() { epochs::leave(); }
  new_objects(const new_objects&) = delete;
  new_objects& operator=(const new_objects&) = delete;

  [[nodiscard]] slot_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] char* payload(std::uint64_t i) const noexcept { return payload_ + i * stride_; }

 private:
  slot_t first_;
  std::uint64_t count_;
  char* payload_;
  std::uint64_t stride_;
};

/// An object that has a frame, as list_resident shows it.
struct resident_object {
  slot_t slot = 0;
  slot_t in_frame = 0;  ///< what its frame's header says; the same
  std::uint32_t type = 0;
  std::uint64_t bytes = 0;  ///< that its home copy has, or would have; 0 when the header is damaged
};

class object_cache {
 public:
  using links = std::vector<std::unique_ptr<remote::agent_session>>;

  /// The links are opened by the heap; the cache owns their use, not their life.
  object_cache(const cache_options& options, links& agents);
  ~object_cache();
  object_cache(const object_cache&) = delete;
  object_cache& operator=(const object_cache&) = delete;

  /// The payload of the object, resident, warm, and for `write` dirty. Inside a section. Throws fm::error: null_handle,
  /// heap_closed, not_found, cache_full, agent_lost, timed_out, corrupt. O(1) when resident; one fetch otherwise.
  static char* resolve(slot_t slot, access how, section_kind section);

  /// Allocates an object: header and payload written from `init` (`init_bytes`, rest zero), dirty, warm. Not inside a user's
  /// section when avoidable: waits for memory outside of one. Throws cache_full, too_large, slots_exhausted, agent_lost,
  /// agent_full. The section in which the slot was taken stays open until the answer dies: root the object by then.
  new_object allocate(const type_descriptor& type, std::uint64_t length, const void* init, std::uint64_t init_bytes);

  /// Allocates at least one and at most `count` objects of the same type and length, as many as go together, and lets
  /// `fill(i, payload)` write the whole payload of each before anybody can see it: the length of an array, and no
  /// reference to anything but what is alive. `fill` does not throw. Waits and throws as allocate. O(objects).
  template <class Fill>
  new_objects allocate_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count, Fill&& fill) {
    static_assert(noexcept(fill(std::uint64_t{}, static_cast<char*>(nullptr))),
                  "the slots are taken when it is called");
    const taken t = begin_together(type, length, count);
    for (std::uint64_t i = 0; i < t.count; ++i) fill(i, t.payload + i * t.stride);
    publish_together(t, type);
    return {t.first, t.count, t.payload, t.stride};
  }

  /// Starts fetching what is away, without waiting; returns how many fetches were posted. Stops when its records are all
  /// in flight. Never throws for an object that cannot be had: the access that needs it will.
  std::size_t prefetch(const slot_t* slots, std::size_t n);

  /// One look at an object that the caller awaits: its payload, resident, warm and pinned (the caller's pin now), or null while
  /// it is on its way (awaited::why says what for); the first look posts its fetch. Waits for nothing, except for one answer by
  /// slot when nothing is known of the object or what is known is old. Throws what resolve throws, timed_out and cache_full
  /// when the look comes after the deadline. Outside of sections.
  static char* look_for(awaited& a);
  /// Handles what has come for any fetch of this heap, without blocking; returns how much that was.
  std::size_t poll() noexcept;
  /// Detached fetches of this thread that have ended, for sleep_until_completed.
  std::uint32_t completions() { return here().completed.load(std::memory_order_seq_cst); }
  /// Sleeps until one more has ended than `seen`, or until `deadline`.
  void sleep_until_completed(std::uint32_t seen, time_point deadline);
  /// Sleeps until memory was released after `seen` (arena::release_count), or until `deadline`; wakes the evictor first.
  void sleep_until_released(std::uint32_t seen, time_point deadline) noexcept;

  /// This thread's state in this heap.
  mutator& here() {
    mutator* m = this_thread.mutators[index_];
    return __builtin_expect(m != nullptr, 1) ? *m : attach_thread();
  }

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept { return object_bytes_max_; }
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  [[nodiscard]] const cache_options& options() const noexcept { return options_; }
  arena& memory() noexcept { return arena_; }
  links& agents() noexcept { return links_; }
  evictor& eviction() noexcept { return *evictor_; }
  hit_pages& pages() noexcept { return pages_; }
  elastic_windows& windows(std::uint32_t agent) noexcept { return *windows_[agent]; }
  remote::agent_session& link_of(slot_t s) noexcept {
    return *links_[tablet_info_of(s).agent.load(std::memory_order_relaxed)];
  }

  /// Hands a thread's segments over; when it ends, and for all threads when the heap closes.
  void detach_thread(mutator& m) noexcept;
  /// Evicts until everything unpinned is away; for tests and benches.
  errc evict_all(time_point deadline);
  /// Stops eviction, fails whoever still asks, forgets all words. The links are closed by the heap afterwards.
  void close() noexcept;

  /// Waits until the heap is no longer short of memory, evicting meanwhile, and for collections when the agents are full; returns at
  /// the deadline too, and when collections are in vain. `m`: the calling thread's. Outside of sections.
  void wait_at_gate(mutator& m, time_point deadline) noexcept;
  /// Threads that are, or are about to be, in wait_at_gate: close() waits until they have left.
  std::atomic<std::uint32_t> gate_waiters{0};

  /// A region that an agent wants back: acknowledged when no read of it can be in flight any more.
  void on_retire(std::uint32_t agent, std::uint32_t region, std::uint32_t generation) noexcept;
  /// Acknowledges what has become safe; called by the evictor's rounds.
  void acknowledge_retired() noexcept;

  /// All mutators ever attached, for stats.
  template <class Visit>
  void for_each_mutator(Visit&& visit) {
    const std::lock_guard lock(mutators_mutex_);
    for (auto& m : mutators_) visit(*m);
  }
  /// Tablets in use: (first slot, slots handed out to threads).
  [[nodiscard]] std::vector<std::uint32_t> tablets() const;

  // ---- for counting by type (src/cache/census.cc); pages must be held ----
  /// Adds the resident objects whose words are aside. They may come to the table meanwhile, and nothing goes aside.
  void list_aside(std::vector<resident_object>& out);
  /// Adds those that the words of `slots` slots from `first` on name, whole pages, in the order of their slots.
  void list_resident(slot_t first, std::uint64_t slots, std::vector<resident_object>& out);

  // ---- for tracing on this node (src/gc/compute_tracer.h) ----
  /// What a resident object refers to, null left out, without touching it; false when it is not resident. In a section.
  bool read_references(slot_t slot, std::vector<slot_t>& out);
  /// The same for a payload that stays where it is meanwhile: what resolve gave, in its section.
  static void references_in(char* payload, std::vector<slot_t>& out);
  /// What was copied out goes home now, and not when its batch is full: until it is acknowledged, its objects cannot be freed.
  void send_batches() noexcept;
  /// Does so, and waits for that, at most until the deadline. Outside of sections.
  void await_batches(time_point deadline) noexcept;
  /// One step of eviction, if nobody else is at it. Outside of sections.
  void help_eviction() noexcept;
  /// Lets the segments that this thread fills enter their queues, so that they can be evicted.
  void retire_segments() noexcept {
    if (mutator* m = this_thread.mutators[index_]) retire_segments(*m);
  }

  // ---- for collections (cache/collection.h, src/cache/collection.cc) ----
  /// Shows every frame of these tablets that is pinned, or newer than its home copy. Concurrent with everything; a frame that
  /// becomes newer meanwhile may or may not be shown. Pages must be held. O(slots), in sections of a page each.
  void scan_frames(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor);
  /// As scan_frames, for collections of young objects: pages in which nothing can be newer than at home are left out. By one
  /// thread.
  void scan_news(const std::vector<std::uint32_t>& tablets, frame_visitor& visitor);
  /// Whether scan_news would look at any page of the tablet.
  [[nodiscard]] static bool has_news(std::uint32_t tablet) noexcept;
  /// What a copy refers to that is not acknowledged yet is not young any more (frame.h): of an array `elements` elements from
  /// `from` on. In a section. Returns where to go on; 0 when that was all. The references are not trusted.
  std::uint64_t end_youth(std::uint64_t h, const char* payload, std::uint64_t from, std::uint64_t elements) noexcept;
  void no_longer_young(slot_t slot) noexcept;
  /// It has ceased to be young, just now in this section.
  void grew_up(slot_t slot) noexcept;
  /// After free_dead: the memory of segments in which nothing else is goes back. Outside of sections.
  void release_dead() noexcept;
  /// Keeps pages of the HIT from being given back, or lets them go again. Holds add up.
  void hold_pages(bool hold);
  /// Makes the words of dead slots free and drops their frames, dirty or not; appends to `freed` which could be: the others are
  /// in use by a write-back or a fetch, and stay as they are. Nobody may be able to reach the dead. `dead`: the tablet's 1024
  /// words, of which those in [from, to) count; whole pages. With `young` only what is young still; returns the bytes that
  /// their home copies would have had, and 0 without it.
  std::uint64_t free_dead(std::uint32_t tablet, std::size_t from, std::size_t to, const std::uint64_t* dead,
                          std::vector<slot_page>& freed, bool young = false);
  /// These slots may be allocated again: their agent has forgotten them, or never heard of them.
  void return_slots(std::uint32_t agent, std::span<const slot_page> pages);
  /// Who collects; set once, before anything is allocated. `f(context)` is called from any thread and must not block; null when nothing
  /// that is asked for would come. `log(slot)`, in a section, when an object ceases to be young.
  void collect_with(void (*f)(void*) noexcept, void* context, void (*log)(slot_t) noexcept) noexcept;
  /// Calls it once when the heap has allocated `bytes` more. It is called besides when the agents are full, once until
  /// collected().
  void when_allocated(std::uint64_t bytes) noexcept;
  /// Whether a thread waits for a cycle, because the agents are full; until the next one has ended.
  [[nodiscard]] bool awaits_collection() const noexcept { return awaits_collection_.load(std::memory_order_acquire); }
  /// A cycle has ended. `made_room`: on the agents, as far as is worth waiting for another one.
  void collected(bool made_room) noexcept {
    if (!made_room) collected_in_vain_.fetch_add(1, std::memory_order_acq_rel);
    awaits_collection_.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t allocated_bytes() const noexcept {
    return allocated_reported_.load(std::memory_order_relaxed);
  }
  /// How many objects these were.
  [[nodiscard]] std::uint64_t allocated_objects() const noexcept {
    return objects_reported_.load(std::memory_order_relaxed);
  }
  /// What the cycle found dead, until no weak cell names it; null otherwise. Changes to non-null in a pause only. Read in
  /// sections.
  std::atomic<const slot_marks*> dying{nullptr};
  /// What the cycle found dead, while the sweep frees it: eviction does not copy it out any more. Null before any of the slots
  /// may be used again. As `dying`.
  std::atomic<const slot_marks*> doomed{nullptr};
  /// A collection of young objects marks: what ceases to be young is logged. Changes in pauses, and at the end of one that was
  /// given up. In other cycles it would keep garbage that is written home just then.
  std::atomic<bool> young_marking{false};

  histogram miss_ns, stall_ns;
  std::atomic<std::uint64_t> failed_misses{0};

  // ---- used by the other files of this layer ----
  /// Takes back the frame that bump_frame gave last, or leaves it dead.
  void unbump(bump& b, char* payload) noexcept;
  /// Whether a segment that was just filled enters proactive at once.
  bool promotes(mutator& m) const noexcept;
  /// A frame in `b`, retiring and taking segments as needed; null when there is no memory. Sets the shape.
  char* bump_frame(bump& b, bool proactive, std::uint64_t payload_bytes, std::uint32_t leave);
  /// Moves the object of a cold, grace-passed, unpinned word to a kept frame. True when the word is warm afterwards.
  bool relocate(std::atomic<word_t>& word, word_t seen, bump& to, std::uint32_t leave);
  /// Moves bytes, prefix and flags to `to`; the caller owns the word exclusively and publishes it.
  void move_frame(char* from, char* to) noexcept;
  /// Bytes of the home copy that a header and the first payload word describe; 0 when they describe nothing that exists.
  static std::uint64_t home_bytes(std::uint64_t header, const char* payload, std::uint64_t bytes_at_hand) noexcept;
  /// Lets a run for a large object enter its queue, once its frame is published.
  void settle(bump& b) noexcept;
  /// Waits until the word is no longer `fetching` by this record, or throws timed_out.
  void wait_for_fetch(std::atomic<word_t>& word, word_t seen, time_point deadline);

 private:
  /// The heap that a slot belongs to; throws when there is none.
  static object_cache& owner_of(slot_t slot);
  char* resolve_here(slot_t slot, access how, section_kind section);
  void touch(std::atomic<word_t>& word, word_t seen);

  // ---- misses (src/cache/miss.cc) ----
  void miss(slot_t slot, std::atomic<word_t>& word, word_t seen, section_kind section);
  void miss_unknown(slot_t slot, std::atomic<word_t>& word, section_kind section);
  /// Null when the section was left to wait for memory: the caller looks at the word again.
  char* frame_for_miss(mutator& m, slot_t slot, std::uint64_t payload_bytes, section_kind section);
  /// Fills the fetch's frame from home, by hint and if need be by slot; the word says `fetching`. Throws.
  word_t load(fetch& f, mutator& m, remote::agent_session& link);
  /// Reads the home copy at `from` into the frame, or a window of it into staging; the number of bytes of the object, 0 when
  /// the header names something else.
  std::uint64_t read_hint(fetch& f, mutator& m, remote::agent_session& link, const home_address& from,
                          std::uint32_t& window);
  /// How many were installed.
  std::uint32_t install_neighbours(mutator& m, std::uint32_t agent, const home_address& first, std::uint64_t skip,
                                   std::uint32_t window);

  // ---- detached fetches (src/cache/detached.cc) ----
  enum class posting : std::uint8_t { posted, changed, unreadable, no_record, no_memory };
  /// Posts a fetch for an away word, leaving `leave` segments; or adds it to `together`, which the caller posts in the same
  /// section. Inside a section.
  posting post_detached(mutator& m, slot_t slot, std::atomic<word_t>& word, word_t seen, std::uint32_t leave,
                        std::vector<fabric::request*>* together = nullptr);
  char* look_here(awaited& a);
  static void detached_done(fabric::request& r) noexcept;
  void finish_detached(fetch& f) noexcept;
  void end_fetch(fetch& f) noexcept;
  /// Waits for memory with eviction; outside of a section. Throws cache_full at the deadline.
  void wait_for_memory(std::uint32_t segments, time_point deadline);
  [[noreturn]] void throw_cache_full(std::uint64_t bytes);
  /// Wants a collection if the agents are full: garbage can make room. Once until collected(). False: none would help, or comes by
  /// itself.
  bool ask_for_room() noexcept;
  mutator& attach_thread();
  void retire_segments(mutator& m) noexcept;
  void refill_slots(mutator& m);
  bool next_run(mutator& m) noexcept;
  /// Whether its word says free now, or nothing, so that the slot may be used again; With `young` only if it is
  /// young, and its bytes are added.
  bool free_slot(slot_t slot, bool young, std::uint64_t& bytes) noexcept;
  static bool may_free(word_t w, bool young) noexcept;
  void report_allocated(mutator& m) noexcept;
  /// Of an object of that length; throws heap_closed, too_large.
  [[nodiscard]] std::uint64_t checked_payload_bytes(const type_descriptor& type, std::uint64_t length) const;
  /// A frame, for which it waits outside of sections when it can; throws cache_full.
  char* frame_for_new(mutator& m, std::uint64_t payload_bytes);
  void count_allocated(mutator& m, std::uint64_t objects, std::uint64_t payload_bytes) noexcept;
  /// Slots and frames without contents, and a section that is open.
  struct taken {
    slot_t first;
    std::uint64_t count;
    char* payload;
    std::uint64_t stride;
  };
  taken begin_together(const type_descriptor& type, std::uint64_t length, std::uint64_t count);
  void publish_together(const taken& t, const type_descriptor& type);
  void ask_for_collection() noexcept;
  void scan_aside(frame_visitor& visitor);
  void scan_page(std::uint64_t page, std::vector<slot_t>& refs, frame_visitor& visitor);
  std::atomic<bool> awaits_collection_{false};
  std::atomic<std::uint32_t> collected_in_vain_{0};
  friend class slot_hold;
  /// Objects of that size exist: a user's section begins only with room for one of them.
  void expect_large(std::uint64_t payload_bytes) noexcept;

  cache_options options_;
  links& links_;
  arena arena_;
  hit_pages pages_;
  std::uint32_t index_ = 0;
  std::uint64_t object_bytes_max_ = 0;
  std::atomic<std::uint32_t> reserve_segments_{1};  ///< left for misses inside sections that cannot wait
  std::atomic<bool> closed_{false};
  std::vector<std::unique_ptr<elastic_windows>> windows_;
  std::unique_ptr<evictor> evictor_;

  std::mutex mutators_mutex_;
  std::vector<std::unique_ptr<mutator>> mutators_;

  struct slot_source {
    slot_t next = 0, end = 0;           ///< of the tablet that is being used for the first time
    std::vector<slot_page> free_pages;  ///< slots whose objects died
    std::mutex mutex;
  };
  std::vector<std::unique_ptr<slot_source>> slot_sources_;  ///< one per agent
  mutable std::mutex tablets_mutex_;
  std::vector<std::uint32_t> tablets_;

  std::atomic<std::uint64_t> allocated_reported_{0}, objects_reported_{0};
  std::atomic<std::uint64_t> tell_at_{~std::uint64_t{0}};  ///< of allocated_reported_
  void (*tell_)(void*) noexcept = nullptr;                 ///< set once
  void* tell_context_ = nullptr;
  void (*log_)(slot_t) noexcept = nullptr;

  struct retirement {
    std::uint32_t agent, region, generation;
    std::uint64_t stamp;
  };
  std::mutex retirements_mutex_;
  std::vector<retirement> retirements_;
  std::atomic<std::uint32_t> retirements_pending_{0};
};

/// Heaps open in this process, by index. Used by thread ends.
object_cache* cache_at(std::uint32_t index) noexcept;

}  // namespace fm::detail
