// Eviction: cools segments, sweeps them, writes dirty objects back and handles the acknowledgements. One thread at a
// time does a step: the background thread, or a mutator that needs memory or waits for a fetch (dcm, section 3.3:
// eviction overlaps fetching).
//
//   cool         as soon as the segment is full, every word into it gets its cold bit; then the stamp; then it enters its
//                queue (frames/policy.h). A touch makes the word warm, and nothing else
//   sweep        at the end of the queue: clean untouched objects are dropped (word -> remote), dirty untouched ones are
//                copied to a batch, touched ones are marked as used and made cold again
//   move         a grace period later: used objects that are still cold are moved to active's young end
//   acknowledge  the batch is indexed: the frame's home is set; still cold and clean objects are dropped
//
// An empty segment is released. An object that stays is pinned, or was touched within the grace period. Objects that are
// touched in every grace period would hold their segment for ever, so after some rounds a short pause moves them.
//
// Invariants owned here
//   - A step is bounded (limits::frames_per_step), so that helping never stalls a mutator for long.
//   - A batch leaves after the section in which it was filled: who waits for credit holds no grace period up.
//   - An object is dropped, or moved, only a grace period after cooling, unpinned, and if it is dropped, clean and
//     without a write-back in flight. While a segment is swept its stamp is never_passed: what the sweep makes cold
//     again is not dropped by whoever acknowledges meanwhile.
//   - Moving ends: when some sweeps one after the other have only moved objects, used ones leave, too.
//
// Threads that wait for memory help; the collector holds steps back and releases dead segments; heap_core reads counts.
#pragma once

#include "cache/object_cache.h"
#include "cache/tablets/replica_set.h"
#include <algorithm>
#include <array>
#include <boost/intrusive/slist.hpp>
#include <mutex>
#include <thread>

namespace fm::detail {

class evictor {
 public:
  explicit evictor(object_cache& cache);
  ~evictor();

  /// One bounded step, if nobody else is at it. True when something moved. Never waits.
  bool help() noexcept;
  /// The same, or the background thread is woken if nothing moved. Outside of sections.
  void help_or_wake() noexcept {
    if (!help()) wake();
  }
  /// The table is over its budget, and a thread has just opened pages. Wakes the background thread; if that does not
  /// keep up, this thread does a bounded part of the work, unless it is in a section, which would wait for itself.
  void give_pages_back() noexcept;
  /// While the lock is held no step is made.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  /// Lets the segment that objects are moved to be full. While no step is made.
  void give_back_piece() noexcept;
  /// Hands open batches to their agent sessions, full or not: as long as memory is not short, nobody else would.
  void send() noexcept;
  /// Waits until nothing that was copied out is unacknowledged, or until the deadline.
  void await_acknowledged(time_point deadline) noexcept;
  /// The agent is lost: no batch that was to go to it, among others perhaps, is unacknowledged when this returns true. False at
  /// the deadline.
  bool end_batches(std::uint32_t agent, time_point deadline) noexcept;
  /// Calls `change`, which stores other replica sets, between two steps. Objects that are copied out from then on go to the
  /// new sets; those from before are in batches of at most the number that is returned. Outside of sections.
  template <class Change>
  std::uint64_t change_sets(Change&& change) {
    const std::lock_guard lock(mutex_);
    close_open_batches();
    change();
    submit_closed();
    return batches_begun_;
  }
  /// Waits until every batch up to that number that goes to the agent is acknowledged, or has failed. False at the
  /// deadline, and, if it `gives_way`, when the collector's thread, which waits here, is to look at the loss of an agent.
  bool await_batches(std::uint64_t number, std::uint32_t agent, time_point deadline, bool gives_way = false) noexcept;
  /// A new member of a set (replica_set::begin_joining) has missed a batch since `begin_join`.
  void begin_join() noexcept { join_missed_.store(false, std::memory_order_release); }
  [[nodiscard]] bool join_missed() const noexcept { return join_missed_.load(std::memory_order_acquire); }
  /// After a collection has freed frames: segments in which nothing else is go back at once, if nobody is inside a
  /// section that began before, and otherwise when those have ended.
  void release_dead() noexcept;
  /// Wakes the background thread.
  void wake() noexcept;
  void start();
  /// Ends the background thread and delivers nothing more. Batches under construction are given up.
  void stop() noexcept;

  /// Steps until nothing unpinned is left in any queue and all batches are acknowledged.
  errc drain(time_point deadline);

  /// Why an agent refuses what is written back to it; ok when its last write-back went well.
  [[nodiscard]] errc refusal(std::size_t agent) const noexcept {
    return static_cast<errc>(refusals_[agent].load(std::memory_order_relaxed));
  }
  /// Of one of those that store the slot.
  [[nodiscard]] errc refusal_of(slot_t slot) const noexcept {
    const replica_set set = replica_set::of(slot);
    errc some = refusal(set.primary());
    set.for_each_backup([&](std::uint32_t a) {
      if (some == errc::ok && refusal(a) != errc::agent_lost) some = refusal(a);
    });
    return some;
  }
  /// The refusal of some agent, of one that is full if there is such; ok when there is none.
  [[nodiscard]] errc last_error() const noexcept;
  [[nodiscard]] bool some_agent_is_full() const noexcept { return is_full(last_error()); }
  /// An agent is lost, and there is no other that could have its tablets.
  void note_lost(std::size_t agent) noexcept { note_refusal(agent, errc::agent_lost); }
  /// What an agent that is lost refused is of no account when its tablets have other agents.
  void forget_refusal(std::size_t agent) noexcept { note_refusal(agent, errc::ok); }

  struct counters {
    owned_counter written, written_bytes, relocated;  ///< of whoever makes a step
    std::atomic<std::uint64_t> cooled{0}, dropped{0}, acknowledged{0}, cancelled{0};
    std::atomic<std::uint64_t> write_failures{0}, elastic_untouched{0}, stragglers{0};
    std::atomic<std::uint64_t> pauses{0}, pauses_abandoned{0};
    std::atomic<std::uint64_t> segments_released{0}, unbatched{0};
  } counts;

 private:
  struct written_object {
    slot_t slot;
    word_t home;  ///< at the primary
  };
  /// The batch of one member of the set.
  struct member_batch {
    std::uint32_t agent = 0;
    bool joins = false;
    errc outcome = errc::ok;
    remote::batch* batch = nullptr;
  };
  /// A batch and what is in it, from copy-out to acknowledgement.
  struct batch_record : boost::intrusive::slist_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    evictor* owner = nullptr;
    std::uint64_t number = 0;  ///< from begin to the last answer; 0: free. Under records_mutex_
    replica_set set;           ///< as it was when the first object was copied
    std::uint32_t count = 0;   ///< of members
    std::array<member_batch, limits::replicas_max> members;  ///< the primary first; all have the same bytes
    std::atomic<std::uint32_t> unanswered{0};                ///< members
    std::vector<written_object> objects;

    [[nodiscard]] bool fits(std::uint64_t bytes) const noexcept {
      return std::all_of(members.begin(), members.begin() + count,
                         [&](const member_batch& m) { return m.batch->fits(bytes); });
    }
    [[nodiscard]] bool goes_to(std::uint32_t agent) const noexcept {
      return std::any_of(members.begin(), members.begin() + count,
                         [&](const member_batch& m) { return m.agent == agent; });
    }
    /// Without a batch: they go back to their sessions.
    void give_back_batches(object_cache& cache) noexcept;

    /// Of one more object, so that noting it cannot fail while its word is busy. False without memory.
    bool make_room() noexcept;
  };
  using record_list = boost::intrusive::slist<batch_record, boost::intrusive::constant_time_size<false>,
                                              boost::intrusive::cache_last<true>>;
  enum class job : std::uint8_t { none, cooling, sweeping };
  static constexpr std::uint64_t never_passed = ~std::uint64_t{0};

  bool step() noexcept;
  /// A step, unless the last one moved nothing, nobody has called since, and its rest is not over.
  bool step_if_worth_it() noexcept;
  void release(segment& s) noexcept;
  void note_refusal(std::size_t agent, errc why) noexcept;
  void forget_old_refusals() noexcept;
  [[nodiscard]] static bool is_full(errc e) noexcept { return e == errc::agent_full || e == errc::quota_exceeded; }
  /// Objects and segments that have left, or are on their way.
  [[nodiscard]] std::uint64_t left_so_far() const noexcept;
  /// Segments that are available when eviction begins to hurry, and when it rests.
  [[nodiscard]] std::uint32_t low() const noexcept { return std::max(3u, arena_.capacity_segments() / 16); }
  [[nodiscard]] std::uint32_t high() const noexcept { return std::max(low() + 1, arena_.capacity_segments() / 8); }
  [[nodiscard]] bool short_of_memory() const noexcept;
  bool release_passed() noexcept;
  bool pick_job();
  segment* to_sweep() noexcept;
  /// The object was touched since it was cooled: it is cold again, and used.
  void cool_again(char* payload, std::atomic<word_t>& word, word_t seen);
  /// False when the object is to leave.
  bool move_on(char* payload, std::atomic<word_t>& word, word_t seen);
  /// A clean object has left; the caller counts it.
  void note_left(slot_t slot, const segment& s, std::uint32_t shape, word_t home) noexcept;
  void run_cooling();
  void run_sweeping();
  bool sweep_aside(slot_t slot, char* payload);
  void finish_sweep();
  bool end_sweep(segment& s);
  void after_sweep(bool released);
  bool relocate_stragglers(segment& s);
  [[nodiscard]] bool waits_for_home(slot_t slot) noexcept;
  /// False when no batch can be had now.
  bool copy_out(char* payload, std::atomic<word_t>& word, word_t seen);
  /// True while there is more to do; then nothing else is copied out, and its batch stays.
  bool grow_up() noexcept;
  /// Nothing more is copied into it, and it leaves when the step is outside of its section.
  void close(std::size_t agent) noexcept;
  bool close_open_batches() noexcept;
  /// Outside of sections of the evictor's own: it may wait for credit.
  void submit_closed() noexcept;
  bool submit_open_batches() noexcept;
  static void acknowledged(remote::batch& b, errc code) noexcept;
  /// All members have answered.
  void acknowledge(batch_record& r) noexcept;
  /// What became of its objects.
  void settle(batch_record& r) noexcept;
  /// What the answers of all members come to: ok when every live one has indexed it.
  errc outcome_of(const batch_record& r, std::uint32_t& refused_by) const noexcept;
  /// Batches for all members of the set, of at least so many bytes. False: none are to be had now, or there is no memory to
  /// note them.
  bool open_batch(const replica_set& set, std::uint64_t bytes_min) noexcept;
  bool ask_member(batch_record& r, std::uint32_t agent, bool joins, std::uint64_t bytes_min) noexcept;
  [[nodiscard]] bool has_members_enough(const replica_set& set) const noexcept;
  batch_record* take_record() noexcept;  ///< null without memory
  void give_back_record(batch_record* r) noexcept;
  void run() noexcept;

  object_cache& cache_;
  arena& arena_;
  std::mutex mutex_;  ///< one step at a time; mutators only try it, but for give_pages_back, outside of sections
  job job_ = job::none;
  segment* segment_ = nullptr;
  char* cursor_ = nullptr;
  std::uint32_t kept_ = 0;  ///< that were touched: the segment is swept again a grace period later
  std::uint32_t pinned_ = 0, dirty_kept_ = 0;
  std::uint32_t waiting_ = 0;  ///< frames that this sweep saw, or put, in a batch that was not acknowledged
  std::uint64_t kept_bytes_ = 0;
  std::uint32_t dropped_ = 0, copied_ = 0;  ///< that this step has not yet counted in counts and in the segment
  std::uint64_t stamp_ = 0;                 ///< of the segment, before it was swept
  bool draining_ = false;
  bool starved_ = false;  ///< this step found no batch for a dirty object, or only segments that cannot be emptied now
  std::uint64_t left_ = 0;    ///< objects that had left, when this sweep began
  std::uint32_t futile_ = 0;  ///< sweeps one after the other by which nothing left
  std::uint32_t moving_ = 0;  ///< the same, by which something was moved
  std::uint64_t moved_so_far_ = 0;
  std::uint32_t coolings_due_ = 0;  ///< before the next sweep
  std::uint32_t sweeps_since_submit_ = 0;
  os::nap rest_{limits::memory_nap_first, limits::memory_nap_most};
  bool in_vain_ = false;                  ///< the last step moved nothing ...
  std::uint32_t in_vain_at_ = 0;          ///< ... at this count of work_ ...
  time_point again_at_{};                 ///< ... and the next one is worth it from then on
  bump moved_{fill_kind::kept, nullptr};  ///< where objects are moved to
  time_point no_pause_before_{};
  std::vector<batch_record*> open_;  ///< per primary
  record_list closed_;               ///< of batches that leave at the end of this step
  std::uint64_t steps_ = 0;
  std::uint32_t held_ = 0;  ///< steps in which the sweep waited at an object for a batch, since there was one
  std::vector<std::uint64_t> denied_;  ///< per agent: the step in which it had no batch for us; not asked again in it
  struct {
    std::uint64_t header = 0;
    const char* payload = nullptr;  ///< in its frame; null: all of its references were looked at
    std::uint64_t next = 0;         ///< element
  } growing_;                       ///< the object that was copied out last
  std::mutex records_mutex_;
  std::vector<std::unique_ptr<batch_record>> records_;
  record_list free_records_;  ///< of records_
  std::uint64_t batches_begun_ = 0;
  std::atomic<bool> join_missed_{false};
  std::atomic<std::uint32_t> batches_unacknowledged_{0};  ///< of a set, each once
  std::vector<std::atomic<std::uint16_t>> refusals_;      ///< by agent; written when they change only
  std::atomic<std::uint32_t> work_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fm::detail
