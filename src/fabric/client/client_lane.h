// A lane of a client session, whatever carries it: what lane_session needs of a socket (stream_lane) or of a queue pair
// (verbs). Owns who receives and who sleeps.
//
// Receiving. `role_` is a try-lock: its holder alone polls the connection. A thread that waits for a miss takes the
// role itself, so that the answer costs no hand-off; other waiters of the lane sleep on `epoch_` and take over when the
// role is given up; the session thread takes it for lanes that nobody attends. The holder may sleep, so the state is
// guarded by `mutex_`, which is held for short, non-blocking stretches only.
//
// Who looks for answers. The session thread is registered for a lane (arm) while needs_session(): a request is in flight
// there that is left to no poller, or a poller sleeps. Answers that pollers have forgotten are found at the session
// thread's next tick, which registers it for every lane.
//
// Deadlines. A request with patience waits in the peer's queue behind what else is on its lane. Answers to that bring its
// own nearer, so its deadline is put off (request::patience). Answers are dated by the look that finds them: at each
// tick of the session thread, and when the request is waited for.
//
// Buffers. A request is the lane's from submit until it is moved to a done_list under the mutex; after that nothing
// touches its buffers again.
#pragma once

#include "fabric/wire/request.h"
#include "os/os.h"

#include <mutex>

namespace fm::fabric {

/// Requests that have an outcome (in `status`) and are to be completed once no lock is held.
class done_list {
 public:
  void push(request& r, errc status) noexcept {
    r.status = status;
    requests_.push_back(r);
  }
  request* pop() noexcept {
    if (requests_.empty()) return nullptr;
    request& r = requests_.front();
    requests_.pop_front();
    return &r;
  }
  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }

 private:
  request_list requests_;
};

/// What a lane needs of its session.
class lane_owner {
 public:
  /// A notice came; false: more than the protocol allows. Called with the lane's mutex held.
  virtual bool lane_notice(std::uint32_t generation, std::span<const std::byte> payload) noexcept = 0;
  /// The descriptor of the session thread's epoll set.
  [[nodiscard]] virtual int lane_epoll() const noexcept = 0;
  /// Makes the session thread attend to lanes that are ready(). Called with a lane's mutex held.
  virtual void lane_ready() noexcept = 0;

 protected:
  ~lane_owner() = default;
};

class client_lane {
 public:
  explicit client_lane(std::uint32_t requests_max) : requests_max_(requests_max) {}
  virtual ~client_lane() = default;
  client_lane(const client_lane&) = delete;
  client_lane& operator=(const client_lane&) = delete;

  // ---- connection; called by the session thread while it holds the role ----
  /// Gives the connection up, which has failed before. The lane is not open any more.
  virtual void close_connection() noexcept = 0;
  /// Ends the lane's use: everything in flight goes to `done`. From any thread.
  virtual void fail(errc why, done_list& done) noexcept = 0;
  /// Makes whoever polls the connection of `generation` see its end; what fails then fails as `why`. From any thread.
  virtual void shut_down(std::uint32_t generation, errc why) noexcept = 0;
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  // ---- posting; between lock() and unlock ----
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  [[nodiscard]] bool has_credit() const noexcept { return in_use_ < requests_max_; }
  /// Takes a request. Returns what it completes with when the lane is not open.
  virtual errc submit(request& r, time_point deadline) noexcept = 0;
  /// Sends as much as the connection takes; the rest goes when it takes more.
  virtual void pump() noexcept = 0;
  /// Lets the session thread see the next arrival, for requests that nobody waits on. `events` as of epoll.
  virtual void arm(std::uint32_t events) noexcept = 0;
  /// Moves a request to `done`, unless it has its outcome already. What cannot be cancelled without harm to its buffers
  /// makes the lane fail: the request then gets `why` when the connection has been torn down.
  virtual void cancel(request& r, errc why, done_list& done) noexcept = 0;
  /// Cancels what is past its deadline.
  virtual void expire(time_point now, done_list& done) noexcept = 0;
  /// Asks for `count` notices more.
  virtual void acknowledge_notices(std::uint32_t count) noexcept = 0;
  /// Receives once, without blocking. False: nothing is there, or the connection is over (then !is_open()).
  virtual bool receive(done_list& done) noexcept = 0;
  /// The session thread's one-shot registration has fired.
  virtual void disarmed() noexcept = 0;
  /// Something has arrived of which no descriptor will tell.
  [[nodiscard]] virtual bool ready() const noexcept { return false; }

  /// Something was received. With lock().
  void count_arrival() noexcept { ++arrivals_; }
  /// Until when a request whose deadline is that has time, as far as is known now. With lock().
  [[nodiscard]] time_point put_off(const request& r, time_point deadline, time_point now) noexcept;

  // ---- the receiving role ----
  bool try_role() noexcept {
    return role_.load(std::memory_order_relaxed) == 0 && role_.exchange(1, std::memory_order_seq_cst) == 0;
  }
  void release_role() noexcept;
  /// Has the session's thread look after the lane if nobody has the role and there is something that nobody else may look
  /// for. By everybody who leaves the lane: a sleeper that the last holder has woken may leave, too.
  void leave_to_session() noexcept;
  /// A poller is going to sleep, or is back; see session::stop_polling.
  void lose_poller() noexcept;
  void regain_poller() noexcept;
  /// The session's thread is to see the next arrival. With lock().
  [[nodiscard]] bool needs_session() const noexcept { return in_use_ != 0 && (async_ != 0 || pollers_asleep_ != 0); }
  [[nodiscard]] bool role_taken() const noexcept { return role_.load(std::memory_order_seq_cst) != 0; }
  /// The role's holder sleeps until something arrives, and then receives: also what came before it slept.
  virtual void sleep_on_connection(time_point deadline) noexcept = 0;
  /// Looking costs as much as sleeping: a system call each. So who is not going to poll sleeps at once.
  [[nodiscard]] virtual bool look_is_a_call() const noexcept { return false; }
  /// Others sleep until something completed or the role is free. `ready` is checked once the sleeper is counted.
  template <class Ready>
  void sleep_aside(const Ready& is_ready, time_point deadline) noexcept {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = epoch_.load(std::memory_order_seq_cst);
    if (!is_ready()) os::futex_wait(epoch_, seen, deadline);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  /// Something completed.
  void wake_sleepers() noexcept;

  [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

 protected:
  /// A request came to the lane, or left it; with the mutex.
  void count_in(const request& r) noexcept;
  void count_out(const request& r) noexcept;

  std::mutex mutex_;
  std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> generation_{0};
  std::uint32_t requests_max_;
  std::uint32_t in_use_ = 0;

 private:
  std::uint64_t arrivals_ = 0, dated_ = 0;  ///< in all, and those that arrived_at_ is the date of
  time_point arrived_at_{};
  std::uint32_t async_ = 0;  ///< of those in use, how many have a callback and are left to no poller
  std::uint32_t pollers_asleep_ = 0;
  std::atomic<std::uint32_t> in_flight_{0};

  alignas(64) std::atomic<std::uint32_t> role_{1};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace fm::fabric
