// A lane of a verbs:// session: one queue pair. One-sided requests become work requests, straight from and to the
// caller's memory where that is registered or small enough to go inline, otherwise through bounce buffers; messages
// become packets and wait for their answers.
//
// Buffers. Memory that a device may still touch is never given back. If posted work requests name a request's memory,
// the request can only be given up by ending the connection. Then the queue pair has been drained (or destroyed, which
// has the same effect) before the request is done. Requests that were bounced are given up at once.
//
// A fence holds its request back while a message before it waits for its answer; reads and atomics before it are left
// to the device's own fence, and writes are ordered on a queue pair anyway.
#pragma once

#include "fabric/wire/wire.h"
#include <deque>

#include "fabric/client/client_lane.h"
#include "fabric/socket/socket.h"
#include "fabric/verbs/device/local_memory.h"
#include "fabric/verbs/device/queue_pair.h"
#include "region_keys.h"

namespace fm::fabric::verbs {

/// What a lane is opened with.
struct lane_connection {
  connection_id id;
  completion_channel channel;
  std::unique_ptr<queue_pair> qp;
  slab bounce;
};

/// What a lane needs of its session, besides lane_owner.
class lane_home {
 public:
  [[nodiscard]] virtual const region_keys& regions() const noexcept = 0;
  [[nodiscard]] virtual local_memory& memory() noexcept = 0;
  virtual void count_bounced(std::uint64_t bytes) noexcept = 0;
  /// The connection manager's channel, and: it has something to say. Called without the lane's mutex, by any thread.
  [[nodiscard]] virtual int events_fd() const noexcept = 0;
  virtual void take_events() noexcept = 0;

 protected:
  ~lane_home() = default;
};

class verbs_lane final : public client_lane {
 public:
  static constexpr std::uint32_t bounce_bytes = 32u << 10;  ///< of one buffer, and the largest piece that is bounced
  static constexpr std::uint32_t bounces = 16;

  verbs_lane(lane_owner& owner, lane_home& home, std::uint32_t index, std::uint32_t requests_max,
             std::uint32_t message_bytes_max);
  ~verbs_lane() override;

  /// Takes an established connection, and gives up the role. By the session thread, while it holds it.
  void open(lane_connection c, std::uint32_t generation, std::uint32_t requests_max);

  void close_connection() noexcept override;
  void fail(errc why, done_list& done) noexcept override;
  void shut_down(std::uint32_t generation, errc why) noexcept override;
  errc submit(request& r, time_point deadline) noexcept override;
  void pump() noexcept override;
  void arm(std::uint32_t events) noexcept override;
  void cancel(request& r, errc why, done_list& done) noexcept override;
  void expire(time_point now, done_list& done) noexcept override;
  void acknowledge_notices(std::uint32_t count) noexcept override;
  bool receive(done_list& done) noexcept override;
  void disarmed() noexcept override;
  [[nodiscard]] bool ready() const noexcept override { return ready_.load(std::memory_order_acquire); }
  void sleep_on_connection(time_point deadline) noexcept override;

 private:
  /// A request in flight.
  struct operation {
    request* r = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t issued = 0;       ///< bytes of it that work requests or packets exist for
    std::uint32_t outstanding = 0;  ///< work requests
    std::uint32_t direct = 0;       ///< of those, how many name the caller's memory
    std::uint32_t serial = 0;
    bool started = false;
    bool awaited = false;         ///< a message that has been sent
    std::vector<std::byte> rest;  ///< of a message that was given up half sent: what is still to be sent
    std::uint64_t rest_from = 0;  ///< where in the message that begins
    errc verdict = errc::ok;      ///< what it is done with, when the lane fails because of it
    std::uint64_t address = 0;    ///< of the peer's memory
    std::uint32_t key = 0;
    time_point deadline{};
  };

  bool issue(std::uint32_t i) noexcept;
  bool issue_message(std::uint32_t i) noexcept;
  bool issue_one_sided(std::uint32_t i) noexcept;
  bool issue_atomic(operation& op, std::uint32_t i) noexcept;
  bool issue_piece(operation& op, std::uint32_t i) noexcept;
  void complete_work(const posted& p, done_list& done) noexcept;
  bool packet_arrived(const ibv_wc& w, done_list& done) noexcept;
  bool answered(done_list& done);
  void finish(std::uint32_t i, errc status, done_list& done) noexcept;
  bool copy_rest(operation& op) noexcept;
  void cancel_at(std::uint32_t i, errc why, done_list& done) noexcept;
  void fail_locked(errc why, done_list& done) noexcept;
  bool broken(errc why, const char* reason, done_list& done) noexcept;
  void take_cq_event() noexcept;
  void kick() noexcept;
  std::uint32_t take_op(request& r);
  void free_op(std::uint32_t i) noexcept;

  lane_owner& owner_;
  lane_home& home_;
  const std::uint32_t index_;
  const std::uint32_t message_bytes_max_;
  const descriptor kick_;  ///< makes a sleeper look up where no completion does
  lane_connection connection_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> ending_{false};
  errc reason_ = errc::disconnected;  ///< what requests fail with
  std::uint32_t watched_ = 0;         ///< events that the session thread is registered for
  std::uint32_t acks_due_ = 0;
  std::uint32_t unanswered_ = 0;  ///< messages that have been sent
  std::uint32_t next_serial_ = 1;

  std::deque<operation> ops_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> queue_;  ///< operations that are not issued completely
  std::vector<std::uint32_t> free_bounces_;
  packet::assembly incoming_;
};

}  // namespace fm::fabric::verbs
