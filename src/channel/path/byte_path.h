// The way that the parts of graphs take from one end of a channel to the other, in both directions. There are three:
//
//   transport        path                       parts travel                        credit and verdicts come back
//   local:, verbs:   message_path (messages)    as messages of the session          as messages of the session
//   shm:             ring_pair (ring.h)         through memory that both map        as counters in that memory
//   tcp:             stream_pair (stream.h)     over a connection a direction       over the same connection
//
// Parts come in order, and exactly once. The thread that sends writes them and the thread that receives finds them
// itself. The session (channel_transport) carries everything else: refusals, questions, goodbyes, and the end of the
// other process.
//
// `sender` and `receiver` alone call a path. They ask it for its properties (the three below) and never for its class.
#pragma once

#include "base/base.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "channel_messages.h"

namespace fm::detail {

struct channel_terms;
class receive_credit;

/// What the reader of parts tells their writer: totals.
struct part_answers {
  std::uint64_t bytes = 0, parts = 0;  ///< consumed
  std::uint64_t judged = 0;            ///< graphs with a verdict
  std::uint64_t refused = 0;           ///< of these; why is told by the session
  bool operator==(const part_answers&) const = default;
};

/// The writing side of one direction. room() and send(): one thread at a time; answers() and ended_at(): one at a time;
/// the rest: any.
class byte_path_writer {
 public:
  virtual ~byte_path_writer() = default;
  /// Whether a message of `bytes` has room now and leaves `reserve` bytes.
  [[nodiscard]] virtual bool has_room(std::uint64_t bytes, std::uint64_t reserve) const noexcept = 0;
  /// Where it goes to; empty when there is none.
  virtual std::span<std::byte> room(std::uint64_t bytes, std::uint64_t reserve) = 0;
  /// Whether bytes of a message can be taken from where they lie.
  [[nodiscard]] virtual bool takes_lent() const noexcept { return false; }
  /// The message in the room given last goes on with these bytes after the first `after` bytes of the room. They stay as
  /// they are until send() returns. With them the message is no larger than the room. False: it has lent_max such pieces.
  virtual bool lend(std::uint64_t /*after*/, std::span<const std::byte>) noexcept { return false; }
  /// The first `bytes` of the room given last, with what was lent, are a message. False: only a part of it went, or nothing, because the
  /// deadline is over, or `give_up` says so, or the way has ended. Nothing more can be sent then but what rest() says.
  virtual bool send(std::uint64_t bytes, time_point deadline, const std::function<bool()>& give_up) = 0;
  /// Why the last send() failed, where nothing of that message can be sent in another way; ok everywhere else.
  [[nodiscard]] virtual errc failure() const noexcept { return errc::ok; }
  /// What did not go of the last message, and its place among all bytes that were sent. They count as sent from here
  /// on, and so do `follows` bytes after them.
  virtual std::span<const std::byte> rest(std::uint64_t /*follows*/, std::uint64_t& /*place*/) noexcept { return {}; }
  /// No more comes after what was sent.
  virtual void finish() noexcept {}

  /// Whoever sees a verdict sees with it whether it was a refusal.
  [[nodiscard]] virtual part_answers answers() noexcept = 0;
  /// What the reader says of its place cannot be.
  [[nodiscard]] virtual bool broken() const noexcept = 0;
  /// When the way was seen to have ended; max while it has not. The session says why, a little later.
  [[nodiscard]] virtual time_point ended_at() const noexcept { return time_point::max(); }
  /// Before looking at answers() and has_room(): what wait() needs.
  [[nodiscard]] virtual std::uint32_t watch() const noexcept = 0;
  /// Until the reader has told something since `seen` and `before`, or kick(), or the deadline; may return early.
  virtual void wait(std::uint32_t seen, const part_answers& before, time_point deadline) noexcept = 0;
  virtual void kick() noexcept = 0;
};

/// The reading side. next(), more(), more_into() and release(): one thread at a time; the rest: any.
class byte_path_reader {
 public:
  enum class found : std::uint8_t { nothing, message, broken };

  virtual ~byte_path_reader() = default;
  /// A part came as a message of the session; `h` is its head. Anything but ok breaks the rules.
  virtual errc take_message(const channel_wire::head& /*h*/, std::span<const std::byte> /*message*/) {
    return errc::bad_frame;
  }
  /// The next message, of 1 to `most` bytes, left where it is until release(). `rest`: how much of it is still to come;
  /// what is here then is its beginning. Broken: the writer has written what cannot be.
  virtual found next(std::uint64_t most, std::span<const std::byte>& message, std::uint64_t& rest) noexcept = 0;
  /// What has come of the rest, in place of what was here before; empty when nothing has.
  virtual std::span<const std::byte> more() noexcept { return {}; }
  /// The same, to where it belongs. Returns how many bytes.
  virtual std::uint64_t more_into(std::span<std::byte>) noexcept { return 0; }
  /// Of these, how many came there without a copy, since the last call.
  virtual std::uint64_t take_straight() noexcept { return 0; }
  /// The message found last is done with, the rest included, which is thrown away as it comes.
  virtual void release() noexcept = 0;
  /// Whether all of what was released has come.
  [[nodiscard]] virtual bool is_through() const noexcept { return true; }
  /// Bytes that have come so far.
  [[nodiscard]] virtual std::uint64_t received() const noexcept { return 0; }
  /// Tells the writer. False: it cannot be told.
  virtual bool answer(const part_answers& a) noexcept = 0;
  /// Bytes at `place` among all that are sent come in another way: these. False: that cannot be.
  virtual bool take_aside(std::uint64_t /*place*/, std::vector<std::byte>&& /*bytes*/) noexcept { return false; }
  /// As a writer's. What came before is still to be had.
  [[nodiscard]] virtual time_point ended_at() const noexcept { return time_point::max(); }

  [[nodiscard]] virtual std::uint32_t watch() const noexcept = 0;
  /// Until something has come, or kick() since `seen`, or the deadline; may return early.
  virtual void wait(std::uint32_t seen, time_point deadline) noexcept = 0;
  virtual void kick() noexcept = 0;
};

/// This process's sides of both directions.
class byte_path {
 public:
  virtual ~byte_path() = default;
  [[nodiscard]] virtual byte_path_writer& writer() noexcept = 0;
  [[nodiscard]] virtual byte_path_reader& reader() noexcept = 0;
  /// How the receiver tells the sender what it has consumed and judged. The terms outlive it.
  [[nodiscard]] virtual std::unique_ptr<receive_credit> make_credit(const channel_terms& terms) const = 0;

  /// What is read can change while it is read, and telling the writer costs nothing.
  [[nodiscard]] virtual bool in_shared_memory() const noexcept { return false; }
  /// The path has connections beside the session's. They can end before it or after it, and can take a part of a
  /// message.
  [[nodiscard]] virtual bool has_own_connections() const noexcept { return false; }
  /// The path brings the reader's answers, and acceptance with them. Otherwise credit and each verdict are messages.
  [[nodiscard]] virtual bool carries_answers() const noexcept { return true; }
  void kick() noexcept {
    writer().kick();
    reader().kick();
  }
};

}  // namespace fm::detail
