// One end of a channel: what has come and was not received yet, credit both ways, verdicts, and what broke it. Knows nothing of
// types and objects. The fabric's threads call arrived() and broken(); the program's threads call the rest, at most one that sends
// and one that receives (fm::channel sees to that).
//
// Credit. Parts consumed are counted at the receiver, and the counts told from the start, so that a message that says less than
// an earlier one changes nothing. A sender may have a window of bytes and of parts on their way; one part is
// always allowed. The part that gives a graph up needs no credit: a graph that has begun ends, even when nobody reads.
//
// Over a conduit (conduit.h), which is memory that both have mapped or a connection for each direction, parts come in order, and are
// read by the thread that receives; credit and verdicts are totals. A refusal is a message of the session, too, because it has a text:
// verdicts count when all refusals among them have been heard. Over connections the totals are told as credit is, and when the sender
// wants to hear of a graph: it says so in the graph's parts, or later (kind::want).
//
// Verdicts come in the order of graphs, exactly one for each that was begun. A refused graph's remaining parts are thrown
// away as they are received.
#pragma once

#include "graph_reader.h"
#include <farmem/channel_options.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "byte_path.h"
#include "transport.h"

namespace fm::detail {

/// The sender gave the graph up that is being received; it needs no verdict on that.
struct sender_gave_up {
  errc code;
  std::string text;
};

/// What the ends agree on.
struct channel_terms {
  std::uint64_t window = 0;
  std::uint32_t window_parts = 0;
  std::uint32_t part = 0;

  /// What these options ask for, within what the wire allows. Throws invalid_argument.
  static channel_terms of(const channel_options& o);
  /// The smaller of both; bad_frame when the other's are out of bounds.
  static errc agree(const channel_wire::head& theirs, channel_terms& mine) noexcept;
  [[nodiscard]] channel_wire::head hello() const noexcept;
  /// Of one direction of shared memory.
  [[nodiscard]] std::uint64_t ring_bytes() const noexcept;
};

class endpoint {
 public:
  endpoint(channel_terms terms, std::string name) : terms_(terms), name_(std::move(name)) {}
  ~endpoint() {
    if (line_) line_->close();
  }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  void set_line(std::unique_ptr<line> l) noexcept { line_ = std::move(l); }
  void agree(const channel_terms& t) noexcept { terms_ = t; }
  /// Parts go that way; before anybody sends or receives.
  void set_conduit(std::unique_ptr<conduit> c) noexcept { conduit_ = std::move(c); }
  [[nodiscard]] const channel_terms& terms() const noexcept { return terms_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // ---- for the fabric's threads ----
  /// A message of the other end. Anything but ok: it breaks the rules, and the connection should end.
  errc arrived(std::span<const std::byte> message) noexcept;
  /// The connection has ended, or must: nothing more comes or goes. The first call counts.
  void broken(errc why, std::string_view text) noexcept;
  /// The thread that receives has found something that cannot be; the other end is told that this is the end.
  void found_bad(std::string_view text) noexcept;

  // ---- sending; one thread ----
  /// The number of the graph that is begun now. Throws a refusal of an earlier one that nobody has seen, and what broke the channel.
  std::uint64_t begin_graph(const graph_schema& schema, std::uint16_t flags);
  /// Room for a part of the graph: after its head. Waits for credit. Throws timed_out, what the receiver refused the graph with,
  /// and what broke the channel.
  std::span<char> part_room(time_point deadline);
  /// Sends a part that begins in part_room().
  void send_part(std::size_t bytes, bool last, std::uint64_t objects, time_point deadline);
  /// Tells the receiver that the graph is given up, if it has heard of it.
  void abort_graph(errc why, const std::string& text) noexcept;
  /// Waits for the verdict of all graphs up to `graph`; throws the first refusal that nobody has seen.
  void wait_verdict(std::uint64_t graph, time_point deadline);
  [[nodiscard]] std::uint64_t last_graph() const noexcept { return graph_; }

  // ---- receiving; one thread ----
  struct arrival {
    std::vector<std::byte> message;   ///< one of the session's
    std::span<const std::byte> here;  ///< of a conduit's payload, what is here
    std::uint64_t rest = 0;           ///< of a conduit's payload, how much is still to come
    channel_wire::head head{};
    [[nodiscard]] std::size_t bytes() const noexcept { return sizeof(channel_wire::head) + head.bytes; }
    [[nodiscard]] std::span<const std::byte> payload() const noexcept {
      return message.empty() ? here : std::span<const std::byte>(message).subspan(sizeof(channel_wire::head));
    }
  };
  /// Whether payloads can change while they are read.
  [[nodiscard]] bool in_shared_memory() const noexcept { return conduit_ && conduit_->in_shared_memory(); }
  /// The schema hash of the graph that comes next, left where it is; nothing at the deadline.
  std::optional<std::uint64_t> peek(time_point deadline);
  /// The first part of the next graph, whose hash is taken off.
  arrival first_part(time_point deadline);
  /// The next part of the graph; throws timed_out, sender_gave_up, and what broke the channel.
  arrival next_part(std::uint64_t graph, time_point deadline);
  /// More of a part that has a rest, in place of what was here, or to where it belongs: whole words; returns how many bytes. Throw as
  /// next_part does.
  void more_of(arrival& a, time_point deadline);
  std::uint64_t more_into(arrival& a, std::span<std::byte> to, time_point deadline);
  /// A part is done with.
  void consumed(const arrival& a) noexcept;
  /// The graph was taken, or refused with an error. Its last part has been seen, or is thrown away when it comes.
  void judge(std::uint64_t graph, errc code, std::string_view text, bool seen_last) noexcept;
  /// What the sender calls the types of a graph; empty when it does not say in time.
  std::string ask_description(std::uint64_t hash, time_point deadline);

  /// Tells the other end that nothing more comes, and ends the connection.
  void close(duration linger) noexcept;
  [[nodiscard]] channel_stats stats() const;
  [[nodiscard]] bool is_broken() const {
    const std::lock_guard lock(mutex_);
    return broken_ != errc::ok;
  }
  void count_graph(bool sent, std::uint64_t objects) noexcept;

 private:
  static constexpr std::uint64_t refusals_max = 64;
  /// When a conduit has ended, the session says why, and when the session has, the conduit ends: so soon, or it is not waited for.
  static constexpr duration word_within = std::chrono::seconds(1);
  struct refusal {
    std::uint64_t graph;
    errc code;
    std::string text;
  };

  errc part_arrived(const channel_wire::head& h, std::span<const std::byte> message);
  errc credit_arrived(const channel_wire::head& h) noexcept;
  errc verdict_arrived(const channel_wire::head& h, std::span<const std::byte> text);
  void throw_broken_locked() const;
  void throw_refusal_locked(std::uint64_t up_to);
  [[nodiscard]] bool may_send_locked(std::size_t bytes) const noexcept;
  arrival take_locked();
  [[nodiscard]] const arrival* next_locked() const noexcept;
  bool conduit_next_locked(std::unique_lock<std::mutex>& lock);
  /// Until attempt() gives true, which it is asked as long as something can come; false at the deadline. Throws what broke the channel.
  template <class Attempt>
  bool wait_conduit_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look, const Attempt& attempt);
  /// A part that was done with before all of it had come counts as consumed when it has.
  void count_skipped_locked() noexcept;
  template <class Attempt>
  void wait_rest(arrival& a, time_point deadline, const Attempt& attempt);
  void hand_aside_locked() noexcept;
  void break_locked(errc why, std::string_view text) noexcept;
  void break_rules_locked(std::string_view text) noexcept;
  [[nodiscard]] bool conduit_has_room_locked(std::size_t bytes) const noexcept;
  part_answers take_answers_locked() noexcept;
  [[nodiscard]] bool credit_is_due_locked() const noexcept;
  void answer_locked() noexcept;
  /// Sees to it that the receiver says when it has judged a graph.
  void want_verdict(std::uint64_t graph) noexcept;
  /// A part could not be sent whole.
  [[noreturn]] void give_up_part(bool last);
  /// Sends by the session what did not go of a part, with what follows it.
  errc send_aside(std::span<const std::byte> follows) noexcept;
  /// Waits until ready(), which what the other end answers may bring about, or the channel is broken; false at the deadline. `late`:
  /// what it answered before it left may still come.
  template <class Ready>
  bool wait_answer(std::unique_lock<std::mutex>& lock, time_point deadline, bool late, const Ready& ready);
  /// `look`: what is here counts even when the channel broke and the deadline is over.
  bool wait_arrival_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look = false);
  errc tell(channel_wire::head h, std::string_view text = {}) noexcept;
  void give_credit(bool all) noexcept;

  channel_terms terms_;
  const std::string name_;
  std::unique_ptr<conduit> conduit_;
  std::unique_ptr<line> line_;  ///< closed before the conduit goes

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  errc broken_ = errc::ok;
  std::string broken_text_;
  time_point broken_at_{};

  // sending
  std::uint64_t graph_ = 0;        ///< the last that was begun
  std::uint16_t graph_flags_ = 0;  ///< of it, flag_first while none of it was sent
  std::uint64_t graph_hash_ = 0;
  bool graph_open_ = false;  ///< it was begun and is not complete
  std::uint64_t sequence_ = 0;
  std::uint64_t sent_bytes_ = 0, sent_parts_ = 0;
  std::uint64_t their_bytes_ = 0, their_parts_ = 0;  ///< what the receiver has consumed of them
  std::uint64_t judged_ = 0;                         ///< graphs with a verdict
  std::deque<refusal> refusals_;
  std::uint64_t refused_ = 0;         ///< refusals heard of
  std::uint64_t wanted_ = 0;          ///< graphs up to this one whose verdict is wanted
  std::uint64_t aside_parts_ = 0;     ///< parts that must be consumed before more are sent: one of them went aside
  std::uint32_t answer_waiters_ = 0;  ///< threads that wait for the conduit's answers
  std::span<std::byte> room_;
  std::map<std::uint64_t, std::string> descriptions_;  ///< of what was sent, by hash

  // receiving
  std::map<std::uint64_t, arrival> inbox_;        ///< by sequence
  std::optional<arrival> front_;                  ///< of the conduit, found and not taken
  std::uint64_t judged_in_ = 0, refused_in_ = 0;  ///< what the conduit's writer is told
  std::uint64_t told_judged_ = 0;
  std::uint64_t skipped_bytes_ = 0;  ///< of the part that is done with and has not come
  time_point heard_at_{};            ///< when the conduit brought something last
  std::uint64_t heard_bytes_ = 0;
  std::uint64_t wanted_in_ = 0, wanted_parts_ = 0;                         ///< what the writer wants to hear of
  std::optional<std::pair<std::uint64_t, std::vector<std::byte>>> aside_;  ///< came by the session; for the reader
  std::uint64_t next_sequence_ = 0;
  std::uint64_t inbox_bytes_ = 0;
  std::uint64_t consumed_bytes_ = 0, consumed_parts_ = 0;
  std::uint64_t told_bytes_ = 0, told_parts_ = 0;
  std::uint64_t graph_in_ = 0;  ///< the last whose first part was taken
  std::uint64_t skipping_ = 0;  ///< a refused graph of which more may come
  std::optional<std::string> description_;
  std::uint64_t asked_ = 0;

  channel_stats stats_;
};

}  // namespace fm::detail
