// A session as the server holds it: the peer that the service sees, and the connections (lanes) that belong to it.
//
// Invariants: service::connected was called, with ok, before the peer has lanes; service::disconnected is called once,
// by the I/O thread that removes the last lane, so no call for the peer can be running. When one lane ends, all do.
// A listener that ends lets the client handle its notices first (drain): with the lanes, those under way are lost. So does
// a service that is done with the client (finish).
#pragma once

#include "fabric/wire/wire.h"
#include "service.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace fm::fabric {

class server_peer final : public peer {
 public:
  /// A lane: its socket, and how to make its I/O thread look at it.
  struct lane_ref {
    std::uint64_t id;
    int socket;  ///< -1: of a stream
    std::function<void()> attention;
  };

  server_peer(service& s, std::string name, std::uint64_t token0, std::uint64_t token1, std::uint32_t message_bytes_max,
              std::size_t thread)
      : token{token0, token1},
        home(thread),
        service_(s),
        name_(std::move(name)),
        message_bytes_max_(message_bytes_max) {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte> payload) noexcept override;
  void close(errc why, std::string_view reason) noexcept override;
  void finish() noexcept override;

  /// Adds a connection; false when the session is ending. The first one is the control lane, which carries notices. A
  /// stream is here only until the service has it, and has no socket.
  bool join(lane_ref l);
  /// Removes one, ends its siblings; calls service::disconnected and returns true when it was the last.
  bool leave(std::uint64_t id) noexcept;
  /// Removes a stream, which lives on without the session; as leave when the others have gone meanwhile.
  void let_go(std::uint64_t id) noexcept;
  /// Notices to be sent now. Called by the control lane's I/O thread.
  std::deque<std::vector<std::byte>> take_notices();
  /// The client has handled `count` notices; false when it claims more than there were.
  bool notices_handled(std::uint32_t count) noexcept;
  /// Waits until the client has handled every notice, or the session ends, or the deadline. Not by an I/O thread.
  void drain(time_point deadline) noexcept;
  /// When the session ends whatever the client does; max if finish was not called. The control lane's I/O thread sees to it.
  [[nodiscard]] time_point ends_by() const noexcept { return ends_by_.load(std::memory_order_relaxed); }

  const std::uint64_t token[2];
  const std::size_t home;  ///< the listener's thread for its lanes, but for those of fetches

 private:
  void end_locked() noexcept;
  void end_lanes() noexcept;

  service& service_;
  const std::string name_;
  const std::uint32_t message_bytes_max_;  ///< what the client takes
  std::mutex mutex_;
  std::condition_variable settled_;  ///< all notices are handled, or none will be
  std::vector<lane_ref> lanes_;
  bool ending_ = false;
  std::atomic<time_point> ends_by_{time_point::max()};  ///< written with mutex_ held
  std::deque<std::vector<std::byte>> notices_;
  std::uint32_t unacknowledged_ = 0;
};

}  // namespace fm::fabric
