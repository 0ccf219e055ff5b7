// The owner's half of the store protocol: one agent session per (heap, agent). It opens the heap there, keeps it open
// across reconnects, grants tablets, fetches home copies, and carries batches until the agent has indexed them.
//
// Invariants owned here
//   - Index messages leave in sequence, and a batch's bytes are kept until its number is acknowledged as applied, so
//     that a reconnect can send it again. An acknowledgement is delivered once per batch, in order.
//   - A region's `readable` bound never exceeds what the agent acknowledged as indexed or announced as sealed.
//   - A home address is readable only with the generation that region_generation() gives; a retired region is
//     acknowledged to the agent only when the owner has called retired(): no read of it is in flight then.
#pragma once

#include "fabric/client/client.h"
#include "object/object.h"
#include "protocol/heap_messages.h"
#include <atomic>
#include <memory>
#include <optional>

namespace fm::remote {

using namespace protocol;

/// A batch under construction: bytes that will stand at `region`:`offset`. Filled by one thread, with home copies
/// (header, payload) back to back after the batch header, which the agent session writes at submit.
struct batch {
  std::byte* data = nullptr;  ///< start; the first sizeof(batch_header) bytes are the agent session's
  std::uint32_t capacity = 0;
  std::uint32_t used = sizeof(batch_header);
  std::uint32_t count = 0;
  std::uint32_t region = 0;
  std::uint32_t generation = 0;
  std::uint32_t offset = 0;  ///< of `data` in the region
  std::uint64_t seq = 0;     ///< set by submit
  bool imports = false;      ///< copies of another member of the replica set (protocol index_import); set before submit
  void* owner = nullptr;     ///< the caller's own word, untouched by the agent session
  /// What the acknowledgement calls, from the thread that sees it, once: ok = indexed; anything else = outcome unknown
  /// or failed, every object in it stays dirty. Must not block. The batch is recycled when it returns.
  void (*on_acknowledged)(batch&, errc) noexcept = nullptr;

  [[nodiscard]] bool fits(std::uint64_t home_bytes) const { return home_bytes <= capacity - used; }
  /// Home address of the next copy to be appended.
  [[nodiscard]] detail::home_address next(std::uint64_t home_bytes) const {
    return {.region = region,
            .generation = generation,
            .offset = offset + used,
            .size_class = detail::size_class::of(home_bytes)};
  }
};

/// A heap that an earlier owner has detached (protocol/heap_messages.h, "Detaching").
struct detached_heap {
  std::string name, secret;
  std::vector<std::byte> record;  ///< what the earlier owner left: the agent must have the same
  std::uint64_t lineage[2] = {0, 0};
};

/// What a session tells of its agent, beside its loss.
enum class agent_news : std::uint8_t { silent, back, full, leaving, staying };

struct agent_session_options {
  fabric::session_options session;
  std::string heap_name;
  std::uint64_t heap_id[2] = {0, 0};
  std::uint64_t incarnation = 0;
  const detached_heap* attaches = nullptr;  ///< in place of opening heap_id; only until the session is open
  std::uint64_t quota_bytes = 0;            ///< 0: the agent's default
  std::uint32_t lease_ms = 0;               ///< 0: the agent's default
  std::uint32_t batch_bytes = 256 << 10;
  std::uint32_t batches_in_flight = 16;  ///< begin_batch waits beyond this
  fabric::service* in_process = nullptr;
  /// The agent may be given up when it was not heard of for so long, if `is_replaceable` says so then. 0: only after
  /// session.reconnect_for, and nobody asks it for signs of life.
  duration suspect_within{};
  /// Whether everything that the agent stores is on another one, too, that answers.
  bool (*is_replaceable)(void* context) noexcept = nullptr;
  /// Called with a region that the agent wants back; the owner calls agent_session::retired later, after a grace
  /// period. False: it has no memory to note it. The agent tells it again, on the next connection.
  bool (*on_retire)(void* context, std::uint32_t region, std::uint32_t generation) noexcept = nullptr;
  /// The agent is idle in cycle `cycle`, or has remote references to be taken.
  void (*on_traced)(void* context, std::uint64_t cycle) noexcept = nullptr;
  void (*on_lost)(void* context, errc why) noexcept = nullptr;
  /// From threads of the session, in order; must not block.
  void (*on_news)(void* context, agent_news what) noexcept = nullptr;
  void* context = nullptr;
};

struct agent_session_stats {
  std::uint64_t batches = 0, batch_bytes = 0, objects_written = 0;
  std::uint64_t fetches_by_slot = 0, reconnects = 0, batches_resent = 0;
  std::uint64_t regions = 0, retired = 0;
  std::uint64_t errands_most = 0;   ///< messages that nobody waits for, under way at once
  std::uint64_t buffer_bytes = 0;   ///< of batches and of what they are sent from
  std::uint64_t bytes_bounced = 0;  ///< of one-sided transfers, copied because their memory is not registered
};

/// The answer to a fetch by slot.
struct slot_answer {
  errc status = errc::ok;
  detail::word_t entry = 0;          ///< 0: granted, nothing stored; word::free: no such object
  std::vector<detail::word_t> page;  ///< 512 entries of the slot's page, or empty
  std::vector<std::byte> copy;       ///< header and payload, or empty when larger than asked for
};

/// What an agent is told of another one.
struct trace_peer {
  std::string url;
  std::uint64_t heap_id[2] = {0, 0};
  std::uint64_t ticket[2] = {0, 0};
  std::vector<tablet_range> tablets;
};

class agent_session {
 public:
  /// Connects and opens the heap; throws fm::error naming the URL (unreachable, refused, quota_exceeded, ...).
  static std::unique_ptr<agent_session> open(const std::string& url, const agent_session_options& options);
  virtual ~agent_session() = default;

  [[nodiscard]] virtual const std::string& url() const noexcept = 0;
  /// The heap's id on this agent.
  [[nodiscard]] virtual std::span<const std::uint64_t, 2> heap_id() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t region_bytes() const noexcept = 0;
  /// What the agent gives this heap.
  [[nodiscard]] virtual std::uint64_t quota_bytes() const noexcept = 0;
  /// It has ended for good: the agent does not have the heap any more, or the owner has left it.
  [[nodiscard]] virtual bool lost() const noexcept = 0;
  /// The owner has left it (leave).
  [[nodiscard]] virtual bool left() const noexcept = 0;
  /// It knows leave_tablets: what it was the primary of may be another agent's.
  [[nodiscard]] virtual bool can_be_left() const noexcept = 0;
  /// It knows detach_heap.
  [[nodiscard]] virtual bool can_be_detached() const noexcept = 0;
  /// See agent_session_options::suspect_within.
  virtual void set_suspect_within(duration within) noexcept = 0;
  // An agent is being left while it asks for that, or somebody of the owner does. No new tablets go there meanwhile. Once
  // the owner is going, none of them can take it back.
  [[nodiscard]] bool is_leaving() const noexcept { return leaving_.load(std::memory_order_acquire) != 0; }
  /// The agent asks for it, or not any more. False: it has said so before, or the owner is going.
  bool set_asks_to_be_left(bool asks) noexcept {
    return change_leaving([=](std::uint32_t w) { return asks ? w | agent_asks : w & ~agent_asks; });
  }
  /// One more of the owner wants to leave, until end_leaving. Both are false if the owner is going.
  bool begin_leaving() noexcept {
    return change_leaving([](std::uint32_t w) { return w + one_owner; });
  }
  bool end_leaving() noexcept {
    return change_leaving([](std::uint32_t w) { return w - one_owner; });
  }
  /// The owner goes, unless stay() comes before leave(). False: nobody wants to leave.
  bool begin_going() noexcept {
    return change_leaving([](std::uint32_t w) { return w != 0 ? w | going : w; });
  }
  void stay() noexcept { leaving_.fetch_and(~going, std::memory_order_acq_rel); }
  /// Who waits until the agent is left is to give that up.
  void keep() noexcept { kept_.fetch_add(1, std::memory_order_acq_rel); }
  [[nodiscard]] std::uint32_t times_kept() const noexcept { return kept_.load(std::memory_order_acquire); }
  /// leave() has ended: the agent has forgotten the heap, or cannot be told.
  void set_gone() noexcept { leaving_.fetch_or(gone, std::memory_order_acq_rel); }
  [[nodiscard]] bool is_gone() const noexcept { return (leaving_.load(std::memory_order_acquire) & gone) != 0; }
  /// Bytes of new objects that may go there. Wait-free.
  [[nodiscard]] std::uint64_t room_bytes() const noexcept { return lost() || is_leaving() ? 0 : left_bytes(); }
  /// It has been connected and answers, as far as is known. Wait-free.
  [[nodiscard]] virtual bool up() const noexcept = 0;
  /// Its failure domain (protocol open_heap_answer::zone).
  [[nodiscard]] virtual std::uint16_t zone() const noexcept = 0;
  /// Bytes that the agent can still take of this heap, as it told last; 0 from its refusal until a region has come back.
  /// Other heaps of the agent may have taken them meanwhile. Wait-free.
  [[nodiscard]] virtual std::uint64_t left_bytes() const noexcept = 0;
  /// How busy the agent was when it was last asked: the processor time that its threads asked for, of what it can have; more
  /// than 1 if they waited. None: it has not answered since, or is too old to tell. Wait-free.
  [[nodiscard]] virtual std::optional<double> busy() const noexcept = 0;
  /// Forgets that, and asks anew; does not wait for the answer.
  virtual void ask_busy() noexcept = 0;
  virtual fabric::session& session() noexcept = 0;

  /// Tells the agent of types 1..type_count() that it does not know yet; submit does so by itself. Blocking.
  virtual errc register_types() noexcept = 0;
  /// Asks for tablets; the numbers are the owner's choice. Blocking, bounded by the session's deadline.
  virtual errc grant_tablets(std::uint32_t first, std::uint32_t count) noexcept = 0;
  /// The same as a backup; what it had of them as a backup is forgotten. unsupported: the agent is too old.
  virtual errc replicate_tablets(std::uint32_t first, std::uint32_t count) noexcept = 0;
  /// The agent becomes the primary of tablets that it is a backup of.
  virtual errc promote_tablets(std::uint32_t first, std::uint32_t count) noexcept = 0;
  /// The agent forgets what it has of the tablets, of which it was the primary or a backup. unsupported: it is too old.
  virtual errc leave_tablets(std::uint32_t first, std::uint32_t count) noexcept = 0;

  // ---- reading ----
  /// Current generation of a region as the owner knows it; 0 when unknown or retired. Wait-free.
  [[nodiscard]] virtual std::uint32_t region_generation(std::uint32_t region) const noexcept = 0;
  /// Bytes from the region's start that may be read one-sidedly: an upper clip for elastic reads. Wait-free.
  [[nodiscard]] virtual std::uint64_t readable(std::uint32_t region) const noexcept = 0;
  /// Learns of a region that a hint named and region_generation does not know (the agent's cleaner made it). Blocking.
  virtual errc learn_region(std::uint32_t region) noexcept = 0;
  /// Prepares `r` as a one-sided read of `bytes` at `from` into `sg[0]`; false when the address is not readable
  /// (unknown or other generation). The caller posts and waits on session().
  virtual bool prepare_read(fabric::request& r, const detail::home_address& from, void* to,
                            std::size_t bytes) noexcept = 0;
  /// A read that was posted at `since` has timed out. If nothing was heard of the agent since then, the connection is as
  /// good as broken, and is replaced.
  virtual void unanswered(time_point since) noexcept = 0;
  /// A read that was posted at `since` has come home: the agent is not silent.
  virtual void answered(time_point since) noexcept = 0;
  /// Asks by slot: always right, one round trip. Retries across reconnects until `deadline`, then agent_lost/timed_out.
  virtual slot_answer fetch_slot(detail::slot_t slot, bool with_page, std::uint32_t bytes_max,
                                 time_point deadline) noexcept = 0;

  /// The entries of so many slots, of one tablet or more, as the agent has them. Blocking, until `deadline` or for
  /// `operation_within`.
  virtual errc read_entries(detail::slot_t first, std::uint32_t count, std::vector<detail::word_t>& out,
                            time_point deadline = time_point::max()) noexcept = 0;

  // ---- writing back ----
  /// A batch with room for at least one home copy of `bytes_min`; waits for acknowledgements when too many are in
  /// flight, until `deadline` (null then: timed_out, agent_full, quota_exceeded, agent_lost in `why`). Thread-safe.
  virtual batch* begin_batch(std::uint64_t bytes_min, time_point deadline, errc& why) noexcept = 0;
  /// Sends it. Never blocks on the network beyond posting. An empty batch is given back without a message.
  virtual void submit(batch* b) noexcept = 0;
  /// Handles acknowledgements that have come; never blocks. Returns how many batches were acknowledged.
  virtual std::size_t poll() noexcept = 0;
  /// Waits until everything submitted is acknowledged or failed, or until `deadline`.
  virtual errc flush(time_point deadline) noexcept = 0;
  [[nodiscard]] virtual std::uint32_t batches_in_flight() const noexcept = 0;

  /// The owner's acknowledgement that nothing reads the region any more.
  virtual void retired(std::uint32_t region, std::uint32_t generation) noexcept = 0;

  // ---- collecting (protocol/heap_messages.h, "Collecting"); each is one message that is repeated across reconnects
  // until the deadline ----
  /// `talks`: the agent takes remote references of other agents that show it this ticket.
  virtual errc begin_cycle(std::uint64_t cycle, time_point deadline, bool& talks, begin_cycle_answer& out) noexcept = 0;
  /// Tells an agent that talks of its peers, before the first trace of the cycle. As many of their tablets go as a
  /// message holds.
  virtual errc trace_peers(std::uint64_t cycle, std::span<const trace_peer> peers, time_point deadline) noexcept = 0;
  virtual errc add_dirty(std::uint64_t cycle, std::span<const slot_bits> slots, time_point deadline) noexcept = 0;
  /// Brings slots to mark (with scan_at_home, some of them) and takes remote references. `number` is one more than that
  /// of the cycle's last trace. `counts` is null unless the agent was told of peers in this cycle.
  virtual errc trace(std::uint64_t cycle, std::uint32_t number, std::span<const detail::slot_t> slots,
                     std::uint32_t references_max, time_point deadline, trace_answer& out, trace_counts* counts,
                     std::vector<detail::slot_t>& remote_references) noexcept = 0;
  /// Mark bits of `count` tablets (at most marks_tablets_max), 8 KiB each, to `out`.
  virtual errc read_marks(std::uint64_t cycle, std::uint32_t first_tablet, std::uint32_t count, void* out,
                          time_point deadline) noexcept = 0;
  virtual errc release_slots(std::uint64_t cycle, std::span<const slot_bits> pages, time_point deadline,
                             release_answer& out) noexcept = 0;
  virtual errc end_cycle(std::uint64_t cycle, time_point deadline, end_cycle_answer& out) noexcept = 0;
  /// Asks for an evacuation, or how far it is (protocol/heap_messages.h, "Evacuating"). One message, repeated across
  /// reconnects.
  virtual errc evacuate(const evacuate_body& what, time_point deadline, evacuate_answer& out) noexcept = 0;

  /// The agent is lost, and nothing names its memory any more: what of it is mapped here goes.
  virtual void detach_all() noexcept = 0;

  // ---- introspection ----
  /// One step of counting by type (protocol/heap_messages.h, census): which of the slots have a home copy, and what
  /// those are. Blocking.
  virtual errc census(detail::slot_t first, std::uint32_t count, std::vector<std::uint64_t>& stored,
                      std::vector<census_record>& out) noexcept = 0;
  virtual errc audit(audit_answer& out, std::string& text) noexcept = 0;
  virtual errc statistics(std::string& json) noexcept = 0;
  [[nodiscard]] virtual agent_session_stats stats() const noexcept = 0;

  /// The agent keeps the heap for a next owner, as it is now, until it changes. conflict: another heap has the name.
  virtual errc detach_heap(const detached_heap& left, std::uint64_t keep_ms, std::string& why) noexcept = 0;
  /// What detach_heap left is of no use to anybody any more.
  virtual errc claim_heap() noexcept = 0;
  /// Whether close() leaves the heap where it is.
  virtual void keep_heap(bool keep) noexcept = 0;
  /// Closes the heap on the agent (its memory is freed at once) and the session. Idempotent.
  virtual void close() noexcept = 0;
  /// The same while the heap goes on without the agent, which stores nothing of it any more: lost() from then on.
  virtual void leave() noexcept = 0;

 private:
  static constexpr std::uint32_t agent_asks = 1, going = 2, gone = 4, one_owner = 8;
  /// False: the owner is going, or nothing changes.
  template <class Next>
  bool change_leaving(Next&& next) noexcept {
    for (std::uint32_t w = leaving_.load(std::memory_order_acquire);;) {
      const std::uint32_t then = next(w);
      if ((w & going) != 0 || then == w) return false;
      if (leaving_.compare_exchange_weak(w, then, std::memory_order_acq_rel)) return true;
    }
  }
  std::atomic<std::uint32_t> leaving_{0};
  std::atomic<std::uint32_t> kept_{0};
};

/// Reads what the owner of a detached heap has left at that agent; `options` are those of a session. Throws fm::error with
/// the URL: what the agent says (not_found, access_denied, conflict), or as opening a session.
std::vector<std::byte> read_record(const std::string& url, const std::string& name, const std::string& secret,
                                   const agent_session_options& options);

}  // namespace fm::remote
