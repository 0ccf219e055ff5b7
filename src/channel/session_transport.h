// The connector's end: a fabric session. Parts are messages on the bulk lane, from a few buffers in turn, so that one
// is filled while others leave; what the listener's end has to say comes as notices. A session that breaks is not
// connected again, because what was on its way is lost with it. Small messages are counted until they are answered, so
// that an end that goes lets its last verdict arrive (drain).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "endpoint.h"

namespace fm::detail {

class session_transport final : public channel_transport, private fabric::session_events {
 public:
  session_transport(endpoint& end, std::string_view url, const channel_options& options);
  /// Connects, and agrees on terms with whoever listens; when the endpoint has this transport, because what the other
  /// end says may come before this returns. `in_process` for local:. Throws as fabric::connect.
  void connect(fabric::service* in_process);
  ~session_transport() override;

  std::span<std::byte> room(std::size_t bytes) override;
  errc send(std::size_t bytes, time_point deadline) noexcept override;
  errc tell(std::span<const std::byte> message) noexcept override;
  void drain(time_point deadline) noexcept override;
  void drain_parts(time_point deadline) noexcept override;
  void drop() noexcept override;
  void close() noexcept override;

 private:
  errc connected(fabric::session& s, std::uint32_t g) override;
  errc open_streams(fabric::session& s);
  /// Takes the answer to hello apart.
  errc welcomed(fabric::request& r);
  void disconnected(fabric::session& s, std::uint32_t g, errc why) noexcept override;
  void lost(fabric::session& s, errc why) noexcept override;
  void notice(fabric::session& s, std::span<const std::byte> payload) noexcept override;

  struct told;
  static void over(fabric::request& done) noexcept;

  struct buffer {
    fabric::request request;
    std::vector<std::byte> bytes;
    bool posted = false;
  };

  endpoint& end_;
  const std::string url_;
  const duration connect_within_;
  time_point connect_by_{};
  const std::uint16_t asks_for_;  ///< flag_ring, flag_stream, or neither
  std::unique_ptr<fabric::session> session_;
  std::atomic<fabric::session*> connected_{nullptr};  ///< the same, from the welcome on; for the session's thread, too
  std::mutex told_mutex_;                             ///< leaf
  std::condition_variable told_over_;
  std::uint32_t told_ = 0;  ///< small messages without an answer
  std::array<buffer, 4> buffers_;
  std::size_t current_ = 0;
};

}  // namespace fm::detail
