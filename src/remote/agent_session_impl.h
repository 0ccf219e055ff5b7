// One session with an agent, its state and who guards it. The parts: agent_session.cc opens and closes; reconnect.cc
// takes the transport's events (handshake, resume, notices); batches.cc carries batches; calls.cc asks and waits;
// keeper.cc is the agent session's own thread, which does everything that nobody waits for.
//
// Locks: `mutex_` guards all fields below it. It is never held while posting, waiting on the session, or calling the
// owner back. Per object nothing is done here at all; per batch the mutex is taken a handful of times.
//
// Batches.  preparing ─► queued ─► posted ─► indexed            (acknowledged once everything before it is)
//                          ▲         ├─► queued                 (outcome unknown: the connection broke)
//                          │         └─► refused ─► told ─► queued as abandoned ─► posted ─► indexed
//                          └──────────────────────────────────────┘
//   A thread that finds something to send becomes the sender, and posts in sequence until nothing is left; so there is
//   one order on the wire without holding a lock while posting. When an outcome is unknown or a refusal breaks the
//   sequence, `rewinding_` stops the sender until everything posted has come back; sending then starts again at the
//   oldest batch that is not indexed. The agent ignores numbers that it has applied already.
#pragma once

#include "agent_session.h"
#include "object/object.h"
#include "os/os.h"
#include <atomic>
#include <boost/circular_buffer.hpp>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "protocol/heap_codec.h"
#include "regions.h"

namespace fm::remote::internal {

using namespace protocol::codec;

class agent_session_impl;

enum class flight_state : std::uint8_t { building, preparing, queued, posted, indexed, refused };

/// A batch and everything it needs to be sent, again if need be. `batch` is the part that the owner sees.
struct flight : batch {
  agent_session_impl* link = nullptr;
  carve place;
  flight_state state = flight_state::building;
  bool in_place = false;     ///< `data` is the region's own memory: there is nothing to write
  bool abandoned = false;    ///< no owner (any more): only its number and its bytes' header matter
  bool retried = false;      ///< a refusal as `stale` has been tried once more
  std::uint32_t breaks = 0;  ///< connections that broke while it was the oldest batch on them
  std::uint32_t sent_generation = 0;
  time_point sent_at{};
  errc code = errc::ok;                  ///< of a refusal
  std::unique_ptr<std::byte[]> staging;  ///< where `data` points when not in place
  std::uint32_t staging_bytes = 0;
  framed<index_body> message;
  std::atomic<std::uint32_t> requests{0};  ///< not done yet
  fabric::request write;
  fabric::request index;
};

/// A message that nobody waits for, and what its answer is for. At most limits::errands_max of those about regions are
/// under way; the regions that others are about wait in lists that name each once. There is one of each other kind at a
/// time. The lists are under the session's mutex and not lock-free: an errand is rare (one a region of megabytes), and
/// what its answer changes is under that mutex anyway.
struct errand {
  enum class kind : std::uint8_t { open_region, seal_region, retired_region, renew, register_types };
  agent_session_impl* link = nullptr;
  kind what = kind::renew;
  std::uint32_t region = 0, generation = 0;
  std::uint32_t types_to = 0;
  std::uint32_t session_generation = 0;
  time_point posted_at{};
  std::vector<std::byte> message;
  fabric::request request;
  bool done = false;  ///< under the session's mutex
};

class agent_session_impl final : public agent_session, public fabric::session_events {
 public:
  explicit agent_session_impl(const agent_session_options& options);
  ~agent_session_impl() override;
  void start(const std::string& url);

  [[nodiscard]] const std::string& url() const noexcept override { return url_; }
  [[nodiscard]] std::span<const std::uint64_t, 2> heap_id() const noexcept override { return heap_id_; }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept override { return region_bytes_; }
  [[nodiscard]] std::uint64_t quota_bytes() const noexcept override { return quota_bytes_; }
  // seq_cst: an owner that opens says where it is to be told, and looks here; a session that ends does it the other way
  // round. One of them sees the other.
  [[nodiscard]] bool lost() const noexcept override {
    const ended how = ended_.load();
    return how == ended::lost || how == ended::left;
  }
  [[nodiscard]] bool left() const noexcept override { return ended_.load() == ended::left; }
  [[nodiscard]] bool can_be_left() const noexcept override { return minor_ >= minor_of_leaving; }
  [[nodiscard]] bool can_be_detached() const noexcept override { return minor_ >= minor_of_detaching; }
  void set_suspect_within(duration within) noexcept override {
    suspect_within_.store(within.count(), std::memory_order_relaxed);
    const lock_type lock(mutex_);
    wake_keeper();
  }
  [[nodiscard]] bool up() const noexcept override { return usable(); }
  [[nodiscard]] std::uint16_t zone() const noexcept override { return zone_; }
  [[nodiscard]] std::uint64_t left_bytes() const noexcept override { return left_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<double> busy() const noexcept override {
    const std::int64_t told = busy_permille_.load(std::memory_order_relaxed);
    return told < 0 ? std::nullopt : std::optional(static_cast<double>(told) / 1000);
  }
  void ask_busy() noexcept override {
    const lock_type lock(mutex_);
    busy_permille_.store(-1, std::memory_order_relaxed);
    if (minor_ < minor_of_load) return;
    renew_soon_ = true;
    wake_keeper();
  }
  fabric::session& session() noexcept override { return *session_.load(std::memory_order_acquire); }

  errc register_types() noexcept override;
  errc grant_tablets(std::uint32_t first, std::uint32_t count) noexcept override {
    return place_tablets(message_type::grant_tablets, first, count);
  }
  errc replicate_tablets(std::uint32_t first, std::uint32_t count) noexcept override {
    return minor_ < minor_of_replicas ? errc::unsupported
                                      : place_tablets(message_type::replicate_tablets, first, count);
  }
  errc promote_tablets(std::uint32_t first, std::uint32_t count) noexcept override {
    return place_tablets(message_type::promote_tablets, first, count);
  }
  errc leave_tablets(std::uint32_t first, std::uint32_t count) noexcept override {
    return minor_ < minor_of_leaving ? errc::unsupported : place_tablets(message_type::leave_tablets, first, count);
  }
  [[nodiscard]] std::uint32_t region_generation(std::uint32_t region) const noexcept override {
    return table_.generation(region);
  }
  [[nodiscard]] std::uint64_t readable(std::uint32_t region) const noexcept override { return table_.readable(region); }
  errc learn_region(std::uint32_t region) noexcept override;
  bool prepare_read(fabric::request& r, const detail::home_address& from, void* to,
                    std::size_t bytes) noexcept override;
  void unanswered(time_point since) noexcept override;
  slot_answer fetch_slot(detail::slot_t slot, bool with_page, std::uint32_t bytes_max,
                         time_point deadline) noexcept override;

  batch* begin_batch(std::uint64_t bytes_min, time_point deadline, errc& why) noexcept override;
  void submit(batch* b) noexcept override;
  std::size_t poll() noexcept override;
  errc flush(time_point deadline) noexcept override;
  [[nodiscard]] std::uint32_t batches_in_flight() const noexcept override;

  void retired(std::uint32_t region, std::uint32_t generation) noexcept override;

  errc begin_cycle(std::uint64_t cycle, time_point deadline, bool& talks, begin_cycle_answer& out) noexcept override;
  errc trace_peers(std::uint64_t cycle, std::span<const trace_peer> peers, time_point deadline) noexcept override;
  errc add_dirty(std::uint64_t cycle, std::span<const slot_bits> slots, time_point deadline) noexcept override;
  errc trace(std::uint64_t cycle, std::uint32_t number, std::span<const detail::slot_t> slots,
             std::uint32_t references_max, time_point deadline, trace_answer& out, trace_counts* counts,
             std::vector<detail::slot_t>& remote_references) noexcept override;
  errc read_marks(std::uint64_t cycle, std::uint32_t first_tablet, std::uint32_t count, void* out,
                  time_point deadline) noexcept override;
  errc release_slots(std::uint64_t cycle, std::span<const slot_bits> pages, time_point deadline,
                     release_answer& out) noexcept override;
  errc end_cycle(std::uint64_t cycle, time_point deadline, end_cycle_answer& out) noexcept override;
  errc evacuate(const evacuate_body& what, time_point deadline, evacuate_answer& out) noexcept override;

  void detach_all() noexcept override;

  errc read_entries(detail::slot_t first, std::uint32_t count, std::vector<detail::word_t>& out,
                    time_point deadline = time_point::max()) noexcept override;
  errc audit(audit_answer& out, std::string& text) noexcept override;
  errc census(detail::slot_t first, std::uint32_t count, std::vector<std::uint64_t>& stored,
              std::vector<census_record>& out) noexcept override;
  errc statistics(std::string& json) noexcept override;
  [[nodiscard]] agent_session_stats stats() const noexcept override;
  errc detach_heap(const detached_heap& left, std::uint64_t keep_ms, std::string& why) noexcept override;
  errc claim_heap() noexcept override;
  void keep_heap(bool keep) noexcept override { keeps_heap_.store(keep, std::memory_order_relaxed); }
  void close() noexcept override { close_as(ended::closed); }
  void leave() noexcept override { close_as(ended::left); }

  // ---- fabric::session_events ----
  errc connected(fabric::session& s, std::uint32_t g) override;
  void disconnected(fabric::session& s, std::uint32_t g, errc why) noexcept override;
  void lost(fabric::session& s, errc why) noexcept override;
  void notice(fabric::session& s, std::span<const std::byte> payload) noexcept override;
  [[nodiscard]] duration reconnect_for(duration usual) const noexcept override {
    return is_replaceable() ? std::min(suspect_within(), usual) : usual;
  }

 private:
  enum class ended : std::uint8_t { no, lost, closed, left };
  using lock_type = std::unique_lock<std::mutex>;

  // reconnect.cc
  errc open_heap(fabric::session& s, bool resume);
  /// Sends what opens the heap; the answer's body. Any other code is what connected() returns.
  errc ask_to_open(fabric::session& s, bool resume, message_type type, void* message, std::size_t bytes,
                   std::vector<std::byte>& body);
  errc opened(bool resume, const open_heap_answer& a);
  /// The answer cannot be believed, or means that there is no heap.
  errc refused_to_open(bool resume, errc code, const std::string& why);
  errc attach_heap(fabric::session& s);  ///< detached.cc
  errc reattach(fabric::session& s);
  void resume_batches(std::uint64_t applied_seq);
  void end(ended how, errc why) noexcept;
  void close_as(ended how) noexcept;

  // batches.cc
  using send_list = std::vector<fabric::request*>;
  /// Null: there is no memory. Then nothing has changed.
  flight* new_flight(const carve& place) noexcept;
  /// Room in flights_ for another one, beside those that are under construction. False: there is no memory.
  bool reserve_flight() noexcept;
  bool make_staging(flight& f, std::uint32_t bytes);
  void recycle(flight& f);
  void enqueue(flight& f, flight_state s);
  /// As far as there is memory for it; the keeper goes on with the rest.
  void close_gaps() noexcept;
  void send_queued() noexcept;
  bool collect(send_list& out);
  /// The types that the agent has to know before it gets the next batch. False: there is no memory for the message.
  bool send_types(send_list& out, std::uint32_t generation) noexcept;
  void arm(flight& f);
  void completed(flight& f) noexcept;
  static void one_done(fabric::request& r) noexcept;
  void rewind();
  void finish_rewind();
  std::size_t deliver() noexcept;
  bool deliver_front(lock_type& lock);
  void tell(lock_type& lock, flight& f, errc code);
  /// A list of one errand, or none.
  using errand_list = std::list<errand>;
  /// Types that the agent has not been told of, as one message; none when there are none.
  errand_list types_errand(std::uint32_t from);

  // keeper.cc
  void keep() noexcept;
  void start_errands(lock_type& lock);
  void finish_errands(lock_type& lock);
  /// False: there is no memory. Then nothing has changed, and the keeper comes back to it.
  bool post_errand(lock_type& lock, errand::kind what, region_name about = {});
  static void errand_done(fabric::request& r) noexcept;
  void finish_errand(lock_type& lock, errand& e);
  void region_opened(lock_type& lock, errand& e, const answer_view& a);
  [[nodiscard]] std::uint64_t left_after(const region_answer& a) const noexcept;
  [[nodiscard]] std::uint64_t left_after_retirement(const answer_view& a) const noexcept;
  void watch_oldest(time_point now);
  void watch_silence(lock_type& lock, time_point now);
  [[nodiscard]] bool is_replaceable() const noexcept {
    return suspect_within() > duration{} && options_.is_replaceable && options_.is_replaceable(options_.context);
  }
  /// Something that came on the connection of generation `g`, or did not come in time, costs it: with the mutex. What
  /// completes late tells nothing of a later connection, which is left alone.
  void break_soon(std::uint32_t g) {
    drop_ = std::max(drop_, g);
    wake_keeper();
  }
  /// The same at once, without the mutex.
  void break_now(std::uint32_t g) noexcept { session().drop_connection(g); }
  void wake_keeper() {
    keeper_work_ = true;
    keeper_wake_.notify_one();
  }
  /// Something found no memory: the keeper comes back to it.
  void short_of_memory() {
    if (again_at_ != time_point::max()) return;
    again_at_ = clock::now() + detail::limits::memory_again_after;
    wake_keeper();
  }
  [[nodiscard]] time_point next_wake(time_point now) const;

  /// A fetch waits while the agent answers others: until nothing has come on its lane for as long as the deadline of an
  /// operation is, or for waits_at_most times that.
  void be_patient(fabric::request& r) const noexcept {
    r.patience = options_.session.operation_within;
    const duration longer = (detail::limits::waits_at_most - 1) * r.patience;
    r.latest = r.deadline < time_point::max() - longer ? r.deadline + longer : time_point::max();
  }

  // calls.cc
  struct reply {
    errc code = errc::ok;
    std::vector<std::byte> bytes;
    fabric::memory_key key{};
    std::uint32_t session_generation = 0;
    std::size_t body_at = 0;
    [[nodiscard]] std::span<const std::byte> body() const { return std::span(bytes).subspan(body_at); }
  };
  /// Asks until there is an answer, across reconnects, until `deadline`.
  reply call(fabric::lane on, message_type type, void* message, std::size_t bytes, time_point deadline) noexcept;
  /// A cycle's message: its body, then `tail`; the answer's body comes back in `out`. cycle_calls.cc
  errc cycle_call(message_type type, const void* body, std::size_t body_bytes, std::span<const std::byte> tail,
                  time_point deadline, reply& out) noexcept;
  errc place_tablets(message_type type, std::uint32_t first, std::uint32_t count) noexcept;
  errc wait_until_usable(time_point deadline) noexcept;
  /// A request came back as disconnected that was posted after generation `g` was seen usable: nothing is posted before
  /// the next handshake. 0 says nothing.
  void saw_break(std::uint32_t g) noexcept;
  errc learn_once(std::uint32_t region, time_point deadline) noexcept;
  errc take_region_answer(std::uint32_t region, std::span<const std::byte> body, region_answer& out) const noexcept;

  /// The generation in which the session has been up and resumed by us; 0 when it is not usable now. Racy by nature: a
  /// request posted on its word may fail, and a disconnected one then means that this very generation is over
  /// (saw_break).
  [[nodiscard]] std::uint32_t usable_generation() const noexcept;
  [[nodiscard]] bool usable() const noexcept { return usable_generation() != 0; }
  [[nodiscard]] time_point operation_deadline() const { return clock::now() + options_.session.operation_within; }
  /// Nothing was heard since then, for so long that it counts.
  [[nodiscard]] bool is_silent_since(time_point since) const noexcept;
  void heard() noexcept { heard_at_.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed); }
  /// Written seldom, because all threads that miss share the line.
  void answered(time_point since) noexcept override {
    const clock::rep at = since.time_since_epoch().count();
    if (duration(at - heard_at_.load(std::memory_order_relaxed)) > detail::limits::heard_again_after)
      heard_at_.store(at, std::memory_order_relaxed);
  }

  [[nodiscard]] duration suspect_within() const noexcept {
    return duration(suspect_within_.load(std::memory_order_relaxed));
  }
  bool take_drain(const message_head& head, std::span<const std::byte> body) noexcept;

  const agent_session_options options_;
  std::uint64_t heap_id_[2] = {options_.heap_id[0], options_.heap_id[1]};
  std::atomic<bool> keeps_heap_{options_.attaches != nullptr};
  std::atomic<duration::rep> suspect_within_{options_.suspect_within.count()};
  std::string url_;
  std::uint64_t region_bytes_ = 0, quota_bytes_ = 0;
  std::uint16_t minor_ = 0, zone_ = 0;  ///< of the agent
  duration renew_after_ = std::chrono::seconds(1);
  std::string refusal_;  ///< what the agent said when it refused the first open
  errc refused_ = errc::ok;
  std::atomic<fabric::session*> session_{nullptr};
  std::unique_ptr<fabric::session> session_owner_;

  std::atomic<ended> ended_{ended::no};
  std::atomic<std::uint32_t> resumed_{0};  ///< generation whose handshake is done
  std::atomic<std::uint32_t> broken_{0};   ///< latest generation known to be gone
  std::atomic<clock::rep> heard_at_{0};
  std::atomic<std::uint64_t> left_{0};           ///< bytes; written under mutex_
  std::atomic<std::int64_t> busy_permille_{-1};  ///< as left_; less than 0: not told
  std::atomic<std::uint32_t> types_known_{0};    ///< by the agent
  region_table table_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< room, acknowledgements, regions, usable or ended
  std::condition_variable keeper_wake_;
  region_book book_{table_};
  boost::circular_buffer<flight*> flights_;  ///< submitted, in sequence; front is the oldest not acknowledged
  std::vector<std::unique_ptr<flight>> flights_owned_;
  std::vector<flight*> flights_free_;
  std::uint64_t next_seq_ = 1;
  std::uint64_t applied_ = 0;  ///< by the agent, as far as we know
  std::size_t send_at_ = 0;    ///< index in flights_ of the next one to post
  std::uint32_t posted_ = 0;
  std::uint32_t taken_ = 0;      ///< batches in the owner's hands or in flight
  std::uint32_t in_flight_ = 0;  ///< submitted, not yet told
  std::uint32_t batch_bytes_ = 0;
  std::uint32_t types_sent_ = 0;
  errc types_refused_ = errc::ok;
  bool sending_ = false;
  bool rewinding_ = false;
  bool delivering_ = false;
  std::uint32_t rewinds_in_vain_ = 0;

  send_list send_list_;                      ///< the sender's
  time_point again_at_ = time_point::max();  ///< the keeper goes on with what has found no memory
  errand_list errands_;                      ///< posted, and not finished
  std::size_t errands_most_ = 0;
  bool opening_region_ = false;
  bool want_region_ = false;              ///< somebody found no room since the last one was asked for
  std::uint32_t waiting_for_region_ = 0;  ///< threads in begin_batch that found no room
  errc open_error_ = errc::ok;
  time_point open_again_at_{};
  duration open_delay_{};
  std::vector<region_name> to_seal_again_;           ///< with room for all regions
  std::map<std::uint32_t, std::uint32_t> retiring_;  ///< region -> generation: told the owner, not yet given back
  std::uint64_t owed_ = 0;                           ///< notices of the agent that are not answered yet
  std::vector<region_name> to_acknowledge_;          ///< retired by the owner; to be said (again) to the agent. With
                                                     ///< room for all notices that are owed an answer
  std::set<std::uint32_t> learning_;
  bool renewing_ = false, renew_soon_ = false;
  time_point silence_at_{};         ///< of the next look
  clock::rep heard_before_ = 0;     ///< heard_at_ at the last look
  std::uint32_t silent_looks_ = 0;  ///< one after the other, each in its time
  bool stopping_ = false;
  bool keeper_work_ = false;
  bool was_usable_ = false;
  bool opened_ = false;       ///< the first handshake is done; later ones resume
  errc end_with_ = errc::ok;  ///< the keeper is to end the agent session as lost
  std::uint32_t drop_ = 0;    ///< the keeper is to break the connection of that generation; 0: none
  std::uint64_t acknowledgements_ = 0;
  std::uint64_t told_ = 0;  ///< every batch up to this number has been told its outcome
  std::once_flag closed_once_;
  std::thread keeper_;

  struct {
    std::atomic<std::uint64_t> batches{0}, batch_bytes{0}, objects{0}, fetches{0}, reconnects{0}, resent{0}, retired{0};
  } count_;
};

}  // namespace fm::remote::internal
