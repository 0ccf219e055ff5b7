// The half of an end that receives: it finds parts, puts them in order, returns credit for them, and judges graphs.
// Knows nothing of types and objects.
//
// A refused graph's remaining parts are thrown away as they are received. A part that the path shows in pieces counts
// as consumed when all of it has come, also when nobody wants the rest.
//
// One thread at a time receives (fm::channel sees to that). The fabric's threads call what ends in _locked, by way of
// `endpoint`.
#pragma once

#include <optional>
#include <utility>

#include "channel/path/credit.h"
#include "channel_state.h"

namespace fm::detail {

/// The sender gave the graph up that is being received; it needs no verdict on that.
struct sender_gave_up {
  errc code;
  std::string text;
};

class receiver {
 public:
  /// A part, from when it is taken until it is consumed.
  struct arrival {
    std::span<const std::byte> here;  ///< of its payload, what is here
    std::uint64_t rest = 0;           ///< of its payload, how much is still to come
    channel_wire::head head{};
    [[nodiscard]] std::size_t bytes() const noexcept { return sizeof(channel_wire::head) + head.bytes; }
  };

  explicit receiver(channel_state& s) : s_(s), credit_(s.path->make_credit(s.terms)) {}
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  /// The channel has another path now; before anybody receives.
  void path_changed() { credit_ = s_.path->make_credit(s_.terms); }

  /// The schema hash of the graph that comes next, left where it is; nothing at the deadline.
  std::optional<std::uint64_t> peek(time_point deadline);
  /// The first part of the next graph, whose hash is taken off.
  arrival first_part(time_point deadline);
  /// The next part of the graph; throws timed_out, sender_gave_up, and what broke the channel.
  arrival next_part(std::uint64_t graph, time_point deadline);
  /// More of a part that has a rest, in place of what was here, or to where it belongs: whole words; returns how many
  /// bytes. Throw as next_part does.
  void more_of(arrival& a, time_point deadline);
  std::uint64_t more_into(arrival& a, std::span<std::byte> to, time_point deadline);
  /// A part is done with.
  void consumed(const arrival& a) noexcept;
  /// The graph was taken, or refused with an error. Its last part has been seen, or is thrown away when it comes.
  void judge(std::uint64_t graph, errc code, std::string_view text, bool seen_last) noexcept;
  /// What the sender calls the types of a graph; empty when it does not say in time.
  std::string ask_description(std::uint64_t hash, time_point deadline);
  /// The graph has something that cannot be; the other end is told that this is the end.
  void found_bad(std::string_view text) noexcept;

  // ---- what the other end says ----
  errc part_arrived_locked(const channel_wire::head& h, std::span<const std::byte> message);
  errc want_arrived_locked(const channel_wire::head& h) noexcept;
  errc aside_arrived_locked(const channel_wire::head& h, std::span<const std::byte> bytes);
  errc description_arrived_locked(const channel_wire::head& h, std::span<const std::byte> text);

 private:
  bool find_next_locked(std::unique_lock<std::mutex>& lock);
  bool wait_arrival_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look = false);
  /// Until attempt() gives true, which it is asked as long as something can come; false at the deadline. Throws what
  /// broke the channel. `look`: what is here counts even when the channel broke and the deadline is over.
  template <class Attempt>
  bool wait_path_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look, const Attempt& attempt);
  template <class Attempt>
  void wait_rest(arrival& a, time_point deadline, const Attempt& attempt);
  /// Until when more may come of a path with connections of its own. Throws what broke the channel when nothing more
  /// does.
  time_point connection_may_bring_locked(time_point deadline);
  arrival take_locked() noexcept;
  void hand_aside_locked() noexcept;
  /// A part that was done with before all of it had come counts as consumed when it has.
  bool count_skipped_locked() noexcept;
  /// Tells the sender what is due, if the path carries it. True: it is due as a message.
  bool answer_locked() noexcept;
  void tell_credit() noexcept;

  channel_state& s_;
  std::unique_ptr<receive_credit> credit_;
  std::optional<arrival> front_;  ///< found and not taken
  std::uint64_t next_sequence_ = 0;
  std::uint64_t graph_in_ = 0;       ///< the last whose first part was taken
  std::uint64_t skipping_ = 0;       ///< a refused graph of which more may come
  std::uint64_t skipped_bytes_ = 0;  ///< of the part that is done with and has not come
  time_point heard_at_{};            ///< when the path brought something last
  std::uint64_t heard_bytes_ = 0;
  std::optional<std::pair<std::uint64_t, std::vector<std::byte>>> aside_;  ///< came by the session; for the path
  std::optional<std::string> description_;
  std::uint64_t asked_ = 0;
  std::uint64_t unanswered_ = 0;  ///< questions
};

}  // namespace fm::detail
