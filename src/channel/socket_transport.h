// A connection that the program made: one stream socket, which carries every message of a channel in both directions, one
// after the other. A message says how long it is, so nothing is added.
//
// Invariants owned here
//   - After the introduction one thread reads and writes the socket, and it never waits to write. So two ends that both
//     have much to say still hear each other.
//   - What waits to be written is bounded: parts wait for room until their deadline, and an end whose small messages are
//     not read any more is given up.
//   - The last word is written before the connection ends, and what still comes meanwhile is thrown away: closing a
//     socket with unread bytes would take the last word back.
//
// fm::channel::adopt makes it; see channel/path/transport.h.
#pragma once

#include "channel/path/terms.h"
#include "channel/path/transport.h"
#include "os/os.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace fm::detail {

class endpoint;

class socket_transport final : public channel_transport {
 public:
  /// Takes the socket, and exchanges introductions until the deadline; `terms` are agreed on afterwards. Throws
  /// invalid_argument, timed_out, disconnected, bad_frame, version_mismatch, out_of_memory.
  socket_transport(os::descriptor socket, channel_terms& terms, time_point deadline);
  ~socket_transport() override { close(); }
  socket_transport(const socket_transport&) = delete;
  socket_transport& operator=(const socket_transport&) = delete;

  /// Who is at the other end, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// From here on `end`, which has this transport, hears what comes. Throws out_of_memory.
  void start(endpoint& end);

  std::span<std::byte> room(std::size_t bytes) override;
  errc send(std::size_t bytes, time_point deadline) noexcept override;
  errc tell(std::span<const std::byte> message) noexcept override;
  void drain(time_point deadline) noexcept override;
  void drop() noexcept override;
  void close() noexcept override;

 private:
  void introduce(channel_terms& terms, time_point deadline);
  void wait_for(short events, time_point deadline) const;
  void run() noexcept;
  /// Until when the last word may take; max: it is not said yet.
  time_point finish_by() noexcept;
  /// As far as there is room. False: the connection has ended.
  bool write_some() noexcept;
  /// As far as something is there. False: nothing more comes.
  bool read_some(bool discard) noexcept;
  bool hear_messages() noexcept;
  void push_locked(std::vector<std::byte>&& message);
  void ring() noexcept;
  void end() noexcept;

  const os::descriptor socket_, bell_;
  std::string name_;
  endpoint* end_ = nullptr;
  std::vector<std::byte> buffer_;  ///< of room()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> out_;  ///< messages that are not written whole
  std::size_t out_bytes_ = 0;
  bool ended_ = false;
  time_point finish_by_ = time_point::max();

  std::size_t written_ = 0;  ///< of the first of out_
  bool finished_ = false;    ///< the last word is written
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::thread thread_;
};

}  // namespace fm::detail
