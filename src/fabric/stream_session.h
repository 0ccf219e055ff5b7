// The client half of tcp:// and shm://: a session over stream connections. tcp has a control lane, several fetch lanes
// and a bulk lane, each a connection of its own; shm has one connection for messages, and does one-sided operations by
// copying on the mapped regions while they are posted.
//
// The session thread attends to lanes that nobody else polls. It is registered with each socket for one event at a time
// (EPOLLONESHOT), so that a lane that a waiter polls does not wake it for every answer; while requests are in flight it
// also looks around every tick, for deadlines and for lanes that were left unattended. When nothing is in flight it
// sleeps without a timeout, registered with all sockets.
#pragma once

#include <farmem/fabric/url.h>

#include "driver.h"
#include "region_map.h"
#include "stream_lane.h"

namespace fm::fabric {

class stream_session final : public driver, private lane_owner {
 public:
  stream_session(const address& to, const std::string& url, const session_options& options, session_events& events);
  ~stream_session() override;

  using session::post;
  void post(std::span<request* const> requests) noexcept override;
  std::size_t poll() noexcept override;
  void wait(request& r) noexcept override;
  void cancel(request& r) noexcept override;
  errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept override;
  void detach(std::uint32_t region) noexcept override;
  std::byte* direct(std::uint32_t region) noexcept override;

 private:
  static constexpr std::uint64_t no_lane = ~0ull;  ///< transport_word of a request that is on no lane
  static constexpr duration tick = std::chrono::milliseconds(10);
  static constexpr int quiet_ticks_max = 10;  ///< then the session thread sleeps without a timeout

  // driver
  errc dial(std::uint32_t generation, time_point deadline) noexcept override;
  void hang_up(errc why) noexcept override;
  void serve(time_point until) noexcept override;
  void interrupt(std::uint32_t generation, errc why) noexcept override;
  void notice_handled() noexcept override;
  // lane_owner
  bool lane_notice(std::uint32_t generation, std::span<const std::byte> payload) noexcept override {
    return queue_notice(generation, payload);
  }
  [[nodiscard]] int lane_epoll() const noexcept override { return epoll_.get(); }

  struct greeting {
    std::uint64_t token[2] = {0, 0};
    std::uint32_t requests_in_flight = 0;
  };
  errc greet(int socket, std::uint32_t index, std::uint32_t generation, time_point deadline, greeting& known) noexcept;
  [[nodiscard]] lane kind_of(std::uint32_t index) const noexcept;
  stream_lane& lane_for(lane on) noexcept;
  stream_lane* lane_of(const request& r) noexcept;

  /// Handles one round of a lane whose role the caller holds; returns how many requests became done.
  std::size_t attend(stream_lane& l) noexcept;
  std::size_t deliver(stream_lane* l, done_list& done) noexcept;
  template <class Finished>
  void wait_on(stream_lane& l, const Finished& finished, time_point deadline) noexcept;
  void finish_posting(stream_lane* l, std::unique_lock<std::mutex>& guard, bool unattended) noexcept;
  bool take_bytes(std::uint64_t bytes, time_point deadline) noexcept;
  void wait_for_credit(time_point deadline) noexcept;
  bool perform_here(request& r, errc& status) noexcept;
  void look_around() noexcept;

  const address to_;
  const bool shared_memory_;
  const std::uint32_t fetch_lanes_;
  descriptor epoll_;
  std::vector<std::unique_ptr<stream_lane>> lanes_;
  region_map regions_;                      ///< shm only
  std::atomic<std::uint32_t> messages_{0};  ///< shm: posted messages that are not done
  std::atomic<std::uint64_t> bytes_{0};     ///< in flight
  std::atomic<std::uint32_t> credit_epoch_{0};
  std::atomic<std::uint32_t> credit_waiters_{0};
  std::atomic<bool> idle_{false};  ///< the session thread sleeps without a timeout
  int quiet_ticks_ = 0;
};

}  // namespace fm::fabric
