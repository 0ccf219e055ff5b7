// The half of an end that sends: graphs as parts, credit for them, and the receiver's verdicts. Knows nothing of types
// and objects.
//
// Verdicts come in the order of graphs, exactly one for each that was begun. A refusal is a message of the session even
// where the path carries answers, because it has a text: verdicts count when all refusals among them have been heard.
//
// One thread at a time sends (fm::channel sees to that). The fabric's threads call what ends in _locked, by way of
// `endpoint`.
#pragma once

#include <farmem/detail/graph/schema.h>

#include <deque>
#include <map>

#include "channel/path/credit.h"
#include "channel_state.h"

namespace fm::detail {

class sender {
 public:
  explicit sender(channel_state& s) noexcept : s_(s), credit_(s.terms) {}
  sender(const sender&) = delete;
  sender& operator=(const sender&) = delete;

  /// The number of the graph that is begun now. Throws a refusal of an earlier one that nobody has seen, and what broke
  /// the channel.
  std::uint64_t begin_graph(const graph_schema& schema, std::uint16_t flags);
  /// Room for a part of the graph: after its head. Waits for credit. Throws timed_out, what the receiver refused the
  /// graph with, and what broke the channel.
  std::span<char> part_room(time_point deadline);
  /// Bytes from which an object is better lent than copied.
  [[nodiscard]] std::uint64_t lends_from() const noexcept;
  /// After the first `used` bytes of part_room() the part goes on with these, which stay where and as they are until it
  /// is sent, and take as much of the room. False: no more of them in this part.
  bool lend(std::size_t used, std::span<const char> bytes) noexcept;
  /// Sends a part: what part_room() holds, and what was lent.
  void send_part(std::size_t bytes, bool last, std::uint64_t objects, time_point deadline);
  /// Tells the receiver that the graph is given up, if it has heard of it.
  void abort_graph(errc why, const std::string& text) noexcept;
  /// Waits for the verdict of all graphs up to `graph`; throws the first refusal that nobody has seen.
  void wait_verdict(std::uint64_t graph, time_point deadline);
  /// Waits for the verdict of all graphs, until the deadline; any thread.
  void linger(time_point deadline) noexcept;
  /// The last graph that has left whole, or that the receiver knows to be given up. One that is being sent may be taken
  /// back, and its number be the next one's. Any thread.
  [[nodiscard]] std::uint64_t last_graph() const noexcept {
    const std::lock_guard lock(s_.mutex);
    return graph_ - (graph_open_ ? 1 : 0);
  }

  // ---- what the other end says ----
  /// Takes over what the receiver tells by totals; impossible ones are the end.
  part_answers take_answers_locked() noexcept;
  errc credit_arrived_locked(const channel_wire::head& h) noexcept;
  errc verdict_arrived_locked(const channel_wire::head& h, std::span<const std::byte> text);
  /// What was sent under this hash; empty for an unknown one.
  [[nodiscard]] std::string description_locked(std::uint64_t hash) const;

 private:
  struct refusal {
    std::uint64_t graph;
    errc code;
    std::string text;
  };

  void throw_refusal_locked(std::uint64_t up_to);
  /// Throws if nothing more of the graph can be sent. A refusal comes before whatever has ended the channel: an end that
  /// refuses may be gone before its verdict is looked at.
  void throw_end_locked();
  [[nodiscard]] bool path_has_room_locked(std::size_t bytes) const noexcept;
  [[nodiscard]] bool none_sent_locked() const noexcept;
  void count_part_locked(std::size_t bytes) noexcept;
  /// Sees to it that the receiver says when it has judged a graph.
  void want_verdict(std::uint64_t graph) noexcept;
  /// A part could not be sent whole.
  [[noreturn]] void give_up_part(bool last);
  /// Sends by the session what did not go of a part, with what follows it.
  errc send_aside(std::span<const std::byte> follows) noexcept;
  /// Waits until ready(), which what the other end answers may bring about, or the channel is broken; false at the
  /// deadline. `late`: what it answered before it left may still come.
  template <class Ready>
  bool wait_answer(std::unique_lock<std::mutex>& lock, time_point deadline, bool late, const Ready& ready);

  channel_state& s_;
  send_credit credit_;
  std::uint64_t graph_ = 0;        ///< the last that was begun
  std::uint16_t graph_flags_ = 0;  ///< of it, flag_first while none of it was sent
  std::uint64_t graph_hash_ = 0;
  bool graph_open_ = false;  ///< it was begun and is not complete
  std::uint64_t sequence_ = 0;
  std::uint64_t judged_ = 0;  ///< graphs with a verdict
  std::deque<refusal> refusals_;
  std::uint64_t refused_ = 0;         ///< refusals heard of
  std::uint64_t wanted_ = 0;          ///< graphs up to this one whose verdict is wanted
  std::uint64_t aside_parts_ = 0;     ///< parts that must be consumed before more are sent: one of them went aside
  std::uint32_t answer_waiters_ = 0;  ///< threads that wait for the path's answers
  std::span<std::byte> room_;
  std::uint64_t lent_ = 0;                             ///< bytes, for the part in it
  std::map<std::uint64_t, std::string> descriptions_;  ///< of what was sent, by hash
};

}  // namespace fm::detail
