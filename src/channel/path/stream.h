// Both directions of a way between two processes over connections of their own (tcp://). Each direction has one, which
// carries messages one way, back to back, and what their reader answers the other way, four words at a time. The thread
// that sends writes to its socket, large arrays straight out of their objects, and the thread that receives reads from
// its own, these arrays straight into their objects.
//
// A thread that waits polls for a moment, then sleeps in the kernel on its socket and on a bell; kick() rings that. Two
// threads that wait on one side at a time may take the bell from each other, so none sleeps long.
//
// A message that could not be sent whole before its deadline must not leave its reader in the middle of it, when nobody
// may be left to send the rest: that goes by the session, with its place among all bytes (rest(), take_aside()).
#pragma once

#include "base/channel_limits.h"
#include "channel_messages.h"
#include "os/os.h"

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "byte_path.h"

namespace fm::detail {

/// A non-blocking socket, and a bell to sleep on beside it.
class stream_socket {
 public:
  /// Throws out_of_memory.
  explicit stream_socket(os::descriptor socket);

  /// As much as there is room for, or is there; 0 also when the connection has ended.
  std::uint64_t send(std::span<const std::byte> from) noexcept;
  std::uint64_t send(std::span<iovec> from) noexcept;
  std::uint64_t receive(std::span<std::byte> to) noexcept;
  void finish() noexcept;
  [[nodiscard]] time_point ended_at() const noexcept { return ended_at_.load(std::memory_order_acquire); }

  [[nodiscard]] std::uint32_t watch() const noexcept { return rung_.load(std::memory_order_seq_cst); }
  void wait(short events, std::uint32_t seen, time_point deadline) noexcept;
  void kick() noexcept;

 private:
  void end() noexcept;

  const os::descriptor socket_, bell_;
  std::atomic<std::uint32_t> rung_{0};
  std::atomic<time_point> ended_at_{time_point::max()};
};

class stream_writer final : public byte_path_writer {
 public:
  explicit stream_writer(os::descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] bool has_room(std::uint64_t, std::uint64_t) const noexcept override { return rest_begin_ == rest_end_; }
  std::span<std::byte> room(std::uint64_t bytes, std::uint64_t reserve) override;
  [[nodiscard]] bool takes_lent() const noexcept override { return true; }
  bool lend(std::uint64_t after, std::span<const std::byte> bytes) noexcept override;
  bool send(std::uint64_t bytes, time_point deadline, const std::function<bool()>& give_up) override;
  std::span<const std::byte> rest(std::uint64_t follows, std::uint64_t& place) noexcept override;
  void finish() noexcept override;
  [[nodiscard]] part_answers answers() noexcept override;
  [[nodiscard]] bool broken() const noexcept override { return false; }
  [[nodiscard]] time_point ended_at() const noexcept override { return socket_.ended_at(); }
  [[nodiscard]] std::uint32_t watch() const noexcept override { return socket_.watch(); }
  void wait(std::uint32_t seen, const part_answers& before, time_point deadline) noexcept override;
  void kick() noexcept override { socket_.kick(); }

 private:
  struct piece {
    std::uint64_t after;  ///< so many bytes of the room
    std::span<const std::byte> bytes;
  };
  /// Puts what was lent into the room, in its place.
  void take_over(std::uint64_t bytes) noexcept;

  stream_socket socket_;
  std::array<piece, channel_limits::lent_max> lent_;
  std::size_t lent_count_ = 0;
  std::uint64_t lent_bytes_ = 0;
  std::vector<std::byte> buffer_;                ///< room for a message ...
  std::byte* message_ = nullptr;                 ///< ... which begins here
  std::uint64_t rest_begin_ = 0, rest_end_ = 0;  ///< in it: what did not go
  std::uint64_t sent_ = 0;                       ///< bytes of messages, one way or the other
  std::array<std::byte, 32 * 32> heard_;         ///< answers, the last one perhaps not whole
  std::size_t heard_bytes_ = 0;
  part_answers last_;
};

class stream_reader final : public byte_path_reader {
 public:
  explicit stream_reader(os::descriptor socket) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

  found next(std::uint64_t most, std::span<const std::byte>& message, std::uint64_t& rest) noexcept override;
  std::span<const std::byte> more() noexcept override;
  std::uint64_t more_into(std::span<std::byte> to) noexcept override;
  std::uint64_t take_straight() noexcept override { return std::exchange(straight_, 0); }
  void release() noexcept override;
  [[nodiscard]] bool is_through() const noexcept override { return skip_ == 0; }
  [[nodiscard]] std::uint64_t received() const noexcept override { return received_; }
  bool answer(const part_answers& a) noexcept override;
  bool take_aside(std::uint64_t place, std::vector<std::byte>&& bytes) noexcept override;
  [[nodiscard]] time_point ended_at() const noexcept override;
  [[nodiscard]] std::uint32_t watch() const noexcept override { return socket_.watch(); }
  void wait(std::uint32_t seen, time_point deadline) noexcept override;
  void kick() noexcept override { socket_.kick(); }

 private:
  /// Whatever is larger is shown in pieces.
  static constexpr std::size_t buffer_bytes = channel_wire::text_bytes_max + 4096;

  [[nodiscard]] std::size_t here() const noexcept { return end_ - begin_; }
  std::uint64_t receive(std::span<std::byte> to) noexcept;
  bool gather(std::size_t bytes, std::size_t ahead) noexcept;
  bool skip() noexcept;
  void pass_shown() noexcept;

  stream_socket socket_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  ///< of what is in it
  std::size_t shown_ = 0;            ///< of that, what next() or more() have shown
  std::uint64_t rest_ = 0;           ///< of the message found last
  std::uint64_t skip_ = 0;           ///< to come of a message that is done with
  bool large_ = false;           ///< the last message was: little is read ahead, so that the next goes where it belongs
  std::uint64_t received_ = 0;   ///< bytes of messages, one way or the other
  std::uint64_t straight_ = 0;   ///< see take_straight()
  bool after_straight_ = false;  ///< something came straight, and more() was not called since
  std::vector<std::byte> aside_;  ///< those from aside_at_ on
  std::uint64_t aside_at_ = 0;
};

class stream_pair final : public byte_path {
 public:
  /// Throws out_of_memory.
  stream_pair(os::descriptor out, os::descriptor in) : out_(std::move(out)), in_(std::move(in)) {}
  [[nodiscard]] byte_path_writer& writer() noexcept override { return out_; }
  [[nodiscard]] byte_path_reader& reader() noexcept override { return in_; }
  [[nodiscard]] std::unique_ptr<receive_credit> make_credit(const channel_terms& terms) const override;
  [[nodiscard]] bool has_own_connections() const noexcept override { return true; }

 private:
  stream_writer out_;
  stream_reader in_;
};

}  // namespace fm::detail
