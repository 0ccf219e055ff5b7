// One accepted connection: its state, what it has received of a frame, and what it has to send. Used by one I/O thread.
//
//   awaiting_hello ──hello──► open ──error, end──► (removed)
//         └── deadline, bad frame ──► (removed)
//
// Requests are carried out in the order of their frames, by this thread: that is the order that lanes promise. A frame
// that does not follow the protocol ends this connection (and its session) and nothing else.
#pragma once

#include "base/limits.h"
#include "fabric/wire/wire.h"
#include "service.h"

#include <algorithm>
#include <memory>

#include "server_output.h"
#include "server_peer.h"

namespace fm::fabric {

/// What a connection asks of its listener.
class connection_host {
 public:
  /// Finds or makes the session that a hello names. Returns what the welcome says; on ok `out` is set and joined.
  virtual errc greet(class server_connection& c, const wire::hello_body& hello,
                     std::shared_ptr<server_peer>& out) noexcept = 0;
  [[nodiscard]] virtual const listen_options& limits() const noexcept = 0;
  [[nodiscard]] virtual service& served() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t incarnation() const noexcept = 0;

 protected:
  ~connection_host() = default;
};

class server_connection {
 public:
  server_connection(connection_host& host, descriptor socket, std::uint64_t id, std::string name, bool descriptors);
  ~server_connection();
  server_connection(const server_connection&) = delete;
  server_connection& operator=(const server_connection&) = delete;

  /// Reads and carries out what is there, and answers. False: the connection is over. So it is if one of these three throws
  /// bad_alloc.
  bool on_readable();
  bool on_writable();
  /// Sends the notices that wait at the peer.
  bool send_notices();

  /// Counts what on_readable has received.
  [[nodiscard]] std::uint64_t receipts() const noexcept { return receipts_; }

  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool open() const noexcept { return peer_ != nullptr; }
  [[nodiscard]] lane kind() const noexcept { return kind_; }
  /// The hello named a stream: nothing more is read here.
  [[nodiscard]] bool is_stream() const noexcept { return is_stream_; }
  [[nodiscard]] std::uint16_t stream_index() const noexcept { return stream_index_; }
  /// Whether it is a stream's and nothing of it was read or is to be sent: it can be handed over.
  [[nodiscard]] bool can_be_released() const noexcept {
    return is_stream_ && open() && !in_frame() && output_.empty() && !refused_;
  }
  /// Gives the socket away, and the session, which this connection does not leave then.
  descriptor release(std::shared_ptr<server_peer>& session) noexcept {
    session = std::move(peer_);
    peer_.reset();
    return std::move(socket_);
  }
  [[nodiscard]] bool wants_output() const noexcept { return !output_.empty(); }
  [[nodiscard]] bool wants_input() const noexcept { return !output_.full() && !refused_ && !is_stream_; }
  /// Whether a deadline runs: for the hello, for the rest of a frame, or for the end of a session that is finished.
  [[nodiscard]] bool watched() const noexcept { return deadline() != time_point::max(); }
  [[nodiscard]] time_point deadline() const noexcept {
    if (!open()) return progress_ + host_.limits().handshake_within;
    const time_point whole = in_frame() || wants_output() ? progress_ + fabric_limits::stall_max : time_point::max();
    return std::min(whole, peer_->ends_by());
  }
  /// What it did not do before its deadline.
  [[nodiscard]] const char* lateness() const noexcept {
    if (!open()) return "no hello in time";
    return peer_->ends_by() == deadline() ? "it did not handle its last notices in time"
                                          : "it stopped in the middle of a frame";
  }
  [[nodiscard]] const std::shared_ptr<server_peer>& session() const noexcept { return peer_; }

 private:
  [[nodiscard]] bool in_frame() const noexcept { return active_ || in_end_ != in_begin_; }
  bool run();
  bool process();
  bool begin();
  bool finish();
  bool hello(std::span<const std::byte> payload);
  bool read();
  bool atomic(std::span<const std::byte> payload);
  bool message(std::span<const std::byte> payload);
  void answer_with(errc status, std::uint64_t value = 0, std::uint32_t length = 0, std::uint8_t flags = 0);
  bool protocol_error(errc why, const char* reason);
  bool flush();
  remote where() const noexcept { return {header_.region, header_.generation, header_.offset}; }

  connection_host& host_;
  descriptor socket_;
  const std::uint64_t id_;
  const std::string name_;
  const bool descriptors_;
  std::shared_ptr<server_peer> peer_;
  lane kind_ = lane::control;
  bool is_stream_ = false;
  std::uint16_t stream_index_ = 0;
  std::uint32_t client_message_max_ = 0;
  bool refused_ = false;  ///< the welcome said no; the connection ends when it is sent
  time_point progress_;

  std::unique_ptr<std::byte[]> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::uint64_t receipts_ = 0;

  bool output_was_full_ = false;  ///< process() stopped although there may be more in the buffer
  bool active_ = false;           ///< a header was taken, its payload is being received
  wire::frame_header header_{};
  std::uint64_t left_ = 0;       ///< of the payload
  std::byte* to_ = nullptr;      ///< where the rest goes; null: thrown away (a write that is denied)
  bool held_ = false;            ///< service memory is in use: `to_`, or what is being answered with
  std::vector<std::byte> body_;  ///< payload of a message that did not come in one piece, and of the small frames
  server_output output_;
};

}  // namespace fm::fabric
