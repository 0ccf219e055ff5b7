// One end of a channel: what has come and was not received yet, credit both ways, verdicts, and what broke it. Knows nothing of
// types and objects. The fabric's threads call arrived() and broken(); the program's threads call the rest, at most one that sends
// and one that receives (fm::channel sees to that).
//
// Credit. Parts consumed are counted at the receiver, and the counts told from the start, so that a message that says less than
// an earlier one changes nothing. A sender may have a window of bytes and of parts on their way; one part is
// always allowed. The part that gives a graph up needs no credit: a graph that has begun ends, even when nobody reads.
//
// Over memory that both have mapped (ring.h) parts come in order, and are read where they lie; credit and verdicts are counters. A
// refusal is a message, too, because it has a text: verdicts count when all refusals among them have been heard.
//
// Verdicts come in the order of graphs, exactly one for each that was begun. A refused graph's remaining parts are thrown
// away as they are received.
#pragma once

#include <farmem/channel/graph_reader.h>
#include <farmem/channel/options.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "line.h"
#include "ring.h"

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
  [[nodiscard]] std::uint64_t ring_bytes() const noexcept { return ring_pair::bytes_for(window, window_parts, part); }
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
  /// Parts go through shared memory; before anybody sends.
  void set_ring(std::unique_ptr<ring_pair> r) noexcept { ring_ = std::move(r); }
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
  /// Whether the verdict of a graph is here; throws what broke the channel.
  [[nodiscard]] bool has_verdict(std::uint64_t graph);

  // ---- receiving; one thread ----
  struct arrival {
    std::vector<std::byte> message;
    std::span<const std::byte> shared;  ///< the message, in memory that its sender can change; then `message` is empty
    channel_wire::head head{};
    [[nodiscard]] std::size_t bytes() const noexcept { return message.size() + shared.size(); }
    [[nodiscard]] std::span<const std::byte> payload() const noexcept {
      return (shared.empty() ? std::span<const std::byte>(message) : shared).subspan(sizeof(channel_wire::head));
    }
  };
  /// The schema hash of the graph that comes next, left where it is; nothing at the deadline.
  std::optional<std::uint64_t> peek(time_point deadline);
  /// The first part of the next graph, whose hash is taken off.
  arrival first_part(time_point deadline);
  /// The next part of the graph; throws timed_out, sender_gave_up, and what broke the channel.
  arrival next_part(std::uint64_t graph, time_point deadline);
  /// A part is done with.
  void consumed(const arrival& a) noexcept;
  /// The graph was taken, or refused with an error. Its last part has been seen, or is thrown away when it comes.
  void judge(std::uint64_t graph, errc code, std::string_view text, bool seen_last) noexcept;
  /// What the sender calls the types of a graph; empty when it does not say in time.
  std::string ask_description(std::uint64_t hash, time_point deadline);

  /// Tells the other end that nothing more comes, and ends the connection.
  void close(duration linger) noexcept;
  [[nodiscard]] channel_stats stats() const;
  void count_graph(bool sent, std::uint64_t objects) noexcept;

 private:
  static constexpr std::uint64_t refusals_max = 64;
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
  void ring_next_locked();
  void break_locked(errc why, std::string_view text) noexcept;
  void break_rules_locked(std::string_view text) noexcept;
  [[nodiscard]] bool ring_has_room_locked(std::size_t bytes) const noexcept;
  void take_answers_locked() noexcept;
  void answer_locked() noexcept;
  /// Waits until ready(), which what the other end answers may bring about; false at the deadline.
  template <class Ready>
  bool wait_answer(std::unique_lock<std::mutex>& lock, time_point deadline, const Ready& ready);
  bool wait_arrival_locked(std::unique_lock<std::mutex>& lock, time_point deadline);
  errc tell(channel_wire::head h, std::string_view text = {}) noexcept;
  void give_credit(bool all) noexcept;

  channel_terms terms_;
  const std::string name_;
  std::unique_ptr<ring_pair> ring_;
  std::unique_ptr<line> line_;  ///< closed before the ring goes

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  errc broken_ = errc::ok;
  std::string broken_text_;

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
  std::uint64_t refused_ = 0;  ///< refusals heard of
  std::span<std::byte> room_;
  std::map<std::uint64_t, std::string> descriptions_;  ///< of what was sent, by hash

  // receiving
  std::map<std::uint64_t, arrival> inbox_;        ///< by sequence
  std::optional<arrival> front_;                  ///< of the ring, found and not taken
  std::uint64_t judged_in_ = 0, refused_in_ = 0;  ///< what the ring's writer is told
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
