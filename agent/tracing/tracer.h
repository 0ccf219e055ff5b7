// The agent's part of one collection cycle of one heap: it marks the objects stored here that are reachable.
//
// Slots to mark come from the owner (post), from other agents (receive), and from scanned objects. A slot is queued
// when it is marked. The queue is bounded: a stack for each worker, and one that all of them share.
// If a slot finds no room, it is marked, and its tablet is listed: all marked slots of a listed tablet are scanned
// again later.
// A reference to another agent's tablet is a remote reference. It goes to the outbox for that agent, from which
// agent/peers carries it there. If that agent does not talk, is lost, or is not known, it goes to the outbox for the
// owner.
// Slots that the owner has declared dirty go to the owner as well, which scans its own copy. While an outbox is full,
// workers that have a reference for it wait.
//
// Invariants owned here
//   - Mark bits only go up, and only between the construction and the return of end(). A thread that changes them has
//     entered.
//   - `idle` is said only when no slot is queued, no tablet is listed, nobody is busy, no reference waits for the
//     owner, and every reference for another agent was acknowledged by it.
//   - A worker is busy from before it takes work until all that came of the work is marked, queued, or in an outbox.
//     So is a message that brings slots.
//   - A remote reference is in an outbox or under way until its receiver has marked and queued it. If an agent may not
//     have received it, that agent is lost, and the reference goes to the owner. It may arrive twice, which changes
//     nothing.
//   - A reference from another agent is counted only when it is marked and queued (src/collector/marking/termination.h).
//   - A region stays entered until the end of the step at most, so that retiring regions are freed soon.
//   - A reference is loaded once, and everything that came from a home copy is checked: its owner may change the
//     bytes.
// Lock order: a heap's mutex before this one's. Workers never hold a heap's mutex inside a step.
#pragma once

#include <array>
#include <condition_variable>
#include <optional>

#include "agent/heaps/heap.h"
#include "trace_peers.h"

namespace fm::agent {

/// Wakes the tracing threads of a store, or the thread that carries remote references. Outlives all tracers.
struct trace_bell {
  std::atomic<std::uint32_t> work{0};  ///< goes up when there may be something to trace
  std::atomic<std::uint32_t> sleepers{0};
  void ring() noexcept {
    work.fetch_add(1);
    if (sleepers.load() != 0) os::futex_wake(work, 1 << 20);
  }
};

struct trace_limits {
  std::uint64_t queue_slots;
  std::uint64_t references_max;  ///< that wait for the owner; and as many that wait for other agents
  std::uint32_t workers;
  duration peer_within;
};

/// What other agents show to send remote references; none: nobody may.
using trace_ticket = std::optional<std::array<std::uint64_t, 2>>;

/// What a step of tracing came to.
struct step_result {
  bool more = false;  ///< there is more to do at once
  bool tell = false;  ///< the owner should be told (heap::tell_traced)
};

class tracer final : public heap_cycle {
 public:
  /// Throws fm::error (out_of_memory).
  tracer(heap& h, std::uint64_t cycle, const trace_limits& limits, const trace_ticket& t, trace_bell& bell,
         trace_bell& peers_bell);
  tracer(const tracer&) = delete;
  tracer& operator=(const tracer&) = delete;
  ~tracer() override;

  const trace_ticket ticket;

  // ---- for messages; they return false when the cycle has ended meanwhile ----

  /// What the owner scans instead of this agent. Also false when tracing has begun.
  bool add_dirty(std::span<const slot_bits> pages);

  enum class sequence { ok, stale, gap };
  /// What a trace message is answered with.
  struct reply {
    trace_answer answer;
    std::optional<trace_counts> counts;  ///< if the owner has told of peers
    std::vector<slot_t> remote_references;
  };
  /// Applies one trace message, unless its number is out of `how`; fills in the answer.
  bool post(const trace_body& m, std::span<const slot_t> slots, sequence& how, reply& out);

  // ---- for other agents, and for who carries remote references to them (trace_peers.cc) ----

  /// Who they are. Also false when tracing has begun.
  bool set_peers(trace_peer_set peers);
  /// Remote references from another agent, which has shown the ticket. False when the cycle has ended.
  bool receive(std::span<const slot_t> slots);
  [[nodiscard]] std::uint32_t peer_count() const noexcept { return peer_count_.load(std::memory_order_acquire); }
  struct dispatch {
    remote_references_body body;
    std::string url;
    std::uint32_t number;
    std::vector<slot_t> slots;
  };
  /// Takes what may be sent to a peer now; false when there is nothing, or it has not answered the last.
  bool take(std::uint32_t peer, dispatch& out);
  /// How that went: ok when the peer has acknowledged it. Otherwise the peer is lost.
  step_result delivered(std::uint32_t peer, std::uint32_t number, errc how);

  /// Nobody enters any more; those inside leave soon. Thread-safe.
  void abandon() noexcept override;
  /// Abandons, and waits until nobody is inside. Bounded by the time between two looks of a worker.
  void end() noexcept override;

  // ---- for workers ----

  /// One bounded step of worker `w`, for which nobody else may call at the same time.
  step_result step(std::uint32_t w);

  // ---- for reports ----
  [[nodiscard]] bool has_traced() const noexcept { return started_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t marked() const noexcept override { return marked_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t faults() const noexcept override { return faults_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t tracing_ns() const noexcept override {
    return tracing_ns_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t memory_bytes() const override;
  /// Whether as many bits are set in all tablets as were counted; null while somebody is at work, who may be in
  /// between. Nobody begins meanwhile. The heap's mutex is held. O(tablets).
  [[nodiscard]] std::optional<bool> marks_add_up() const override;

 private:
  struct worker;  ///< trace_worker.h
  struct item;

  // ---- tracer.cc ----
  [[nodiscard]] bool has_shared_work() const noexcept {  ///< mutex_
    return shared_count_ != 0 || !rescans_.empty();
  }
  /// Gives `count` slots to the stack that all share; how many found room. mutex_.
  std::uint64_t share(const slot_t* slots, std::uint64_t count) noexcept;
  void resize_shared(std::uint64_t count) noexcept;  ///< mutex_
  /// The slot is marked but not queued: its tablet is scanned again later. True when it must be put into the list.
  [[nodiscard]] static bool needs_rescan(std::byte* block) noexcept {
    // An exchange, so that whoever clears it sees every mark that was set before.
    return heap::record(block).rescan.exchange(1, std::memory_order_acq_rel) == 0;
  }
  bool begin_step(worker& w);
  step_result end_step(worker& w);
  /// Fills the worker's empty stack, or gives it something to resume; false when there is nothing.
  bool take_work(worker& w);
  void flush_remote_references(worker& w);  ///< mutex_
  /// Marks what a message has brought; what has to be scanned goes to `fresh`.
  void mark_all(std::span<const slot_t> slots, std::vector<slot_t>& fresh);
  void queue_all(const std::vector<slot_t>& fresh);  ///< mutex_
  [[nodiscard]] bool is_done() const noexcept {      ///< mutex_; but for remote references that wait for the owner
    return busy_ == 0 && !has_shared_work() && unacknowledged_ == 0;
  }
  /// Whether the owner should get a notice; it is taken to be sent then. mutex_.
  bool should_tell() noexcept;
  /// Gives half of the worker's stack to the others.
  void spill(worker& w);
  void push_overflow(worker& w, slot_t slot, std::byte* block);

  // ---- trace_peers.cc ----
  /// Puts a remote reference into the outbox that it belongs to; false when that is full. mutex_.
  bool queue_remote_reference(slot_t slot);
  void lose(trace_peer_box& p, const char* why);  ///< mutex_
  void lose_silent_peers();                       ///< mutex_

  // ---- trace_scan.cc ----
  void run(worker& w);
  [[nodiscard]] slot_t next_slot(worker& w);
  [[nodiscard]] item make_item(slot_t slot) const;
  void resolve(worker& w, item& it);
  /// Marks what the item refers to, from reference `from` on; false when that had to be put off (worker::resume).
  bool scan(worker& w, const item& it, std::uint64_t from);
  bool resume(worker& w);
  /// Marks one slot, or hands the remote reference on; false when there is no room for the remote reference.
  bool visit(worker& w, slot_t slot);
  bool add_remote_reference(worker& w, slot_t slot);
  /// False when there is no room.
  bool hand_over(worker& w, slot_t slot);
  [[nodiscard]] bool is_dirty(slot_t slot) const noexcept;
  const std::byte* enter_region(worker& w, home_address at);
  void leave_regions(worker& w) noexcept;
  void fault(slot_t slot, const char* what);

  heap& h_;
  trace_bell& bell_;
  trace_bell& peers_bell_;
  const std::uint64_t shared_max_;
  const std::uint64_t references_max_;
  const duration peer_within_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> started_{false};
  std::atomic<bool> wants_work_{false};  ///< there are several workers, and nothing for the others to take
  std::atomic<std::uint64_t> room_;      ///< slots that the shared stack can take, about
  std::atomic<std::uint64_t> marked_{0}, scanned_bytes_{0}, faults_{0}, tracing_ns_{0};

  mutable std::mutex mutex_;
  // ---- guarded by mutex_ ----
  std::condition_variable left_;
  std::uint32_t inside_ = 0;  ///< workers in a step, and messages being applied
  std::uint32_t busy_ = 0;
  std::uint64_t shared_count_ = 0;
  os::reservation shared_;              ///< slots, `shared_count_` of them
  std::vector<std::uint32_t> rescans_;  ///< tablets, each once
  std::vector<slot_t> outbox_;
  std::vector<slot_t> answered_;  ///< remote references of the last answer
  std::uint32_t last_number_ = 0;
  bool told_ = false;             ///< the owner has been sent a notice since its last message, or needs none
  bool told_references_ = false;  ///< that was, or another one followed, when there were remote references for it
  bool has_dirty_ = false;        ///< constant once tracing has begun

  // ---- also guarded by mutex_: other agents ----
  trace_peer_set peers_;
  std::atomic<std::uint32_t> peer_count_{0};  ///< boxes; constant once tracing has begun
  bool has_peers_ = false;                    ///< the owner has told, be it of nobody
  std::uint64_t peer_references_max_ = 0;     ///< in one outbox
  std::uint64_t unacknowledged_ = 0;          ///< in the outboxes for peers, and under way to them
  trace_counts counts_{};
  std::vector<slot_t> unqueued_;  ///< of mutation::acknowledge_references_early

  os::reservation seen_references_;  ///< atomic slots by hash: they have been given to a worker's remote references
  std::vector<std::unique_ptr<worker>> workers_;
};

/// The heap's cycle that runs, or null: nothing but tracers is ever given to heap::begin_cycle.
inline std::shared_ptr<tracer> running_tracer(const heap& h) {
  return std::static_pointer_cast<tracer>(h.running_cycle());
}

}  // namespace fm::agent
