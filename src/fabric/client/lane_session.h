// The client half of a transport with connections: a session over lanes, whatever carries them. A control lane, several
// fetch lanes and a bulk lane, or one lane for everything (shm://). Posting, credit, waiting, deadlines, and the
// session thread's part; a transport derives from it and supplies dialling and attach.
//
// The session thread attends to lanes that nobody else polls. It is registered with each connection for one event at a
// time (EPOLLONESHOT), so that a lane that a waiter polls does not wake it for every answer; while requests are in
// flight it also looks around every tick, for deadlines and for lanes that were left unattended. When nothing is in
// flight it sleeps without a timeout, registered with all connections.
#pragma once

#include "base/limits.h"
#include "client_lane.h"
#include "driver.h"
#include "fabric/socket/socket.h"

namespace fm::fabric {

class lane_session : public driver, protected lane_owner {
 public:
  /// `fetch_lanes` 0: one lane serves for all. `counts_messages`: messages_ is kept.
  lane_session(const std::string& url, const session_options& options, session_events& events,
               std::uint32_t fetch_lanes, bool counts_messages);

  using session::post;
  using session::try_post;
  void post(std::span<request* const> requests) noexcept override { post_some(requests, true); }
  std::size_t try_post(std::span<request* const> requests) noexcept override { return post_some(requests, false); }
  std::size_t poll() noexcept override;
  void stop_polling() noexcept override;
  void resume_polling() noexcept override;
  void wait(request& r) noexcept override;
  bool wait_until(request& r, time_point until) noexcept override;
  void cancel(request& r) noexcept override;

 protected:
  // ---- what a transport supplies, besides driver::dial, which opens the lanes ----
  /// Carries a one-sided request out now, where that can be done. True: it is done, with `status`.
  virtual bool perform_here(request&, errc& /*status*/) noexcept { return false; }
  /// A descriptor of the transport's own, watched in lane_epoll() under an index that is no lane's, has something.
  virtual void on_watched(std::uint32_t /*index*/) noexcept {}

  // driver
  void hang_up(errc why) noexcept override;
  void serve(time_point until) noexcept override;
  void interrupt(std::uint32_t generation, errc why) noexcept override;
  void notice_handled() noexcept override;
  // lane_owner
  bool lane_notice(std::uint32_t generation, std::span<const std::byte> payload) noexcept override {
    return queue_notice(generation, payload);
  }
  [[nodiscard]] int lane_epoll() const noexcept override { return epoll_.get(); }
  void lane_ready() noexcept override { wake(); }

  [[nodiscard]] lane kind_of(std::uint32_t index) const noexcept;
  [[nodiscard]] std::uint32_t lane_count() const noexcept { return fetch_lanes_ == 0 ? 1 : 2 + fetch_lanes_; }

  /// Filled by the transport's constructor, lane_count() of them, and never changed.
  std::vector<std::unique_ptr<client_lane>> lanes_;
  std::atomic<std::uint32_t> messages_{0};  ///< posted messages that are not done

 private:
  static constexpr std::uint64_t no_lane = ~0ull;  ///< transport_word of a request that is on no lane

  client_lane& lane_for(lane on) noexcept;
  client_lane* lane_of(const request& r) noexcept;

  /// Handles one round of a lane whose role the caller holds; returns how many requests became done.
  std::size_t attend(client_lane& l) noexcept;
  void attend_fully(client_lane& l) noexcept;
  std::size_t deliver(client_lane* l, done_list& done) noexcept;
  /// Cancels something of a lane, which may cost the connection.
  template <class Cancel>
  void give_up(client_lane& l, const Cancel& cancel_some) noexcept;
  template <class Finished>
  void wait_on(client_lane& l, const Finished& finished, time_point deadline) noexcept;
  void finish_posting(client_lane* l, std::unique_lock<std::mutex>& guard, bool unattended) noexcept;
  /// Posts from the first one on; unless `waits`, up to the one that there is no credit for. Returns how many.
  std::size_t post_some(std::span<request* const> requests, bool waits) noexcept;
  bool try_take_bytes(std::uint64_t bytes) noexcept;
  bool take_bytes(std::uint64_t bytes, time_point deadline) noexcept;
  void wait_for_credit(time_point deadline) noexcept;
  void look_around(bool nothing_came) noexcept;

  const std::uint32_t fetch_lanes_;
  const bool counts_messages_;
  descriptor epoll_;
  std::atomic<std::uint64_t> bytes_{0};  ///< in flight
  std::atomic<std::uint32_t> credit_epoch_{0};
  std::atomic<std::uint32_t> credit_waiters_{0};
  os::spin_place spins_;           ///< of waits for an answer
  std::atomic<bool> idle_{false};  ///< the session thread sleeps without a timeout
  int quiet_ticks_ = 0;
  time_point looked_{};
};

template <class Cancel>
void lane_session::give_up(client_lane& l, const Cancel& cancel_some) noexcept {
  done_list done;
  bool ended;
  std::uint32_t g;
  {
    const auto guard = l.lock();
    g = l.generation();
    const bool was_open = l.is_open();
    cancel_some(done);
    ended = was_open && !l.is_open();
  }
  deliver(&l, done);
  if (ended) break_connection(g, errc::disconnected);
}

/// Fetch lanes that the options ask for, within what makes sense.
std::uint32_t fetch_lanes_of(const session_options& o) noexcept;

}  // namespace fm::fabric
