// One connection of a client session. It frames requests, keeps what is in flight, and puts answers where they belong.
//
// Who receives. `role_` is a try-lock: its holder alone polls the socket. A thread that waits for a miss takes the role
// itself, so that the answer costs no hand-off; other waiters of the lane sleep on `epoch_` and take over when the role
// is given up; the session thread takes it for lanes that nobody attends. The holder may sleep in poll(), so the state
// is guarded by `mutex_`, which is held for short, non-blocking stretches only.
//
// Buffers. A request is in `ops_` from submit until it is moved to a done_list under the mutex; after that the lane
// does not touch its buffers again. Cancelling moves it at once: bytes that are still to be sent from its buffers are
// copied away first, and what arrives for it later is discarded by operation id.
#pragma once

#include <deque>
#include <farmem/fabric/request.h>
#include <farmem/fabric/wire.h>
#include <mutex>

#include "socket.h"

namespace fm::fabric {

/// Requests that have an outcome (in `status`) and are to be completed once no lock is held.
struct done_list {
  request* head = nullptr;
  request* tail = nullptr;
  void push(request& r, errc status) noexcept {
    r.status = status;
    r.transport_next = nullptr;
    (tail ? tail->transport_next : head) = &r;
    tail = &r;
  }
  request* pop() noexcept {
    request* r = head;
    if (r && !(head = r->transport_next)) tail = nullptr;
    return r;
  }
  [[nodiscard]] bool empty() const noexcept { return head == nullptr; }
};

/// What a lane needs of its session.
class lane_owner {
 public:
  /// A notice came; false: more than the protocol allows. Called with the lane's mutex held.
  virtual bool lane_notice(std::uint32_t generation, std::span<const std::byte> payload) noexcept = 0;
  /// The descriptor of the session thread's epoll set.
  [[nodiscard]] virtual int lane_epoll() const noexcept = 0;

 protected:
  ~lane_owner() = default;
};

class stream_lane {
 public:
  stream_lane(lane_owner& owner, std::uint32_t index, std::uint32_t requests_max, std::uint32_t message_bytes_max,
              bool fds);
  ~stream_lane();
  stream_lane(const stream_lane&) = delete;
  stream_lane& operator=(const stream_lane&) = delete;

  // ---- connection; called by the session thread while it holds the role ----
  /// Takes a connection that has shaken hands, and gives up the role.
  void open(descriptor socket, std::uint32_t generation, std::uint32_t requests_max);
  /// Closes the socket. The lane is not open any more.
  void close_socket() noexcept;
  /// Ends the lane's use: everything in flight goes to `done`. From any thread.
  void fail(errc why, done_list& done) noexcept;
  /// Makes whoever polls the socket of `generation` see its end; what fails then fails as `why`. From any thread.
  void shut_down(std::uint32_t generation, errc why) noexcept;
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  // ---- posting; between lock() and unlock ----
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  [[nodiscard]] std::unique_lock<std::mutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }
  [[nodiscard]] bool has_credit() const noexcept { return in_use_ < requests_max_; }
  /// Takes a request. Returns what it completes with when the lane is not open.
  errc submit(request& r, time_point deadline) noexcept;
  /// Frames and sends as much as the socket takes; the session thread goes on when it becomes writable.
  void pump() noexcept;
  /// Lets the session thread see the next answer, for requests that nobody waits on.
  void arm(std::uint32_t events) noexcept;
  /// Moves a request to `done`, unless it has its outcome already.
  void cancel(request& r, errc why, done_list& done) noexcept;
  /// Cancels what is past its deadline.
  void expire(time_point now, done_list& done) noexcept;
  /// Asks for `count` notices more.
  void acknowledge_notices(std::uint32_t count) noexcept;
  /// Receives once, without blocking. False: nothing is there, or the connection is over (then !is_open()).
  bool receive(done_list& done) noexcept;
  /// The session thread's one-shot registration has fired.
  void disarmed() noexcept { armed_ = 0; }

  // ---- the receiving role ----
  bool try_role() noexcept {
    return role_.load(std::memory_order_relaxed) == 0 && role_.exchange(1, std::memory_order_seq_cst) == 0;
  }
  void release_role() noexcept;
  [[nodiscard]] bool role_taken() const noexcept { return role_.load(std::memory_order_seq_cst) != 0; }
  /// The role's holder sleeps until something arrives.
  void sleep_on_socket(time_point deadline) noexcept;
  /// Others sleep until something completed or the role is free. `ready` is checked once the sleeper is counted.
  template <class Ready>
  void sleep_aside(const Ready& ready, time_point deadline) noexcept {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = epoch_.load(std::memory_order_seq_cst);
    if (!ready()) os_wait(seen, deadline);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  /// Something completed.
  void wake_sleepers() noexcept;

  [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t ring_size = 1024;  ///< frames that wait for their answers
  static constexpr std::size_t in_bytes = 64u << 10;
  static constexpr std::size_t out_bytes_max = 256u << 10;  ///< in one call
  static constexpr std::size_t out_parts_max = 128;

  /// A request in flight.
  struct operation {
    request* r = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t framed = 0;  ///< bytes of it that frames exist for
    std::uint32_t answers_left = 0;
    errc status = errc::ok;  ///< first refusal among its frames
    time_point deadline{};
  };
  /// A frame that waits for its answer, and the header that is being sent from here.
  struct flight {
    wire::frame_header header{};
    wire::atomic_body atomic{};
    std::uint32_t op = 0;
    std::uint32_t length = 0;
    std::size_t out_end = 0;  ///< it is sent when out_at_ has come this far
    std::uint64_t at = 0;     ///< offset of its bytes in the request's
    bool answered = true;
    bool discard = false;  ///< cancelled: its answer is thrown away
  };
  /// The payload that is being received.
  struct incoming {
    bool active = false;
    wire::frame_header header{};
    std::array<iovec, request::max_sg> to{};
    std::size_t parts = 0, part = 0;
    std::uint64_t left = 0;  ///< of the payload; with no parts it is thrown away
  };

  void reset() noexcept;
  std::uint32_t take_op();
  void free_op(std::uint32_t i) noexcept;
  void build() noexcept;
  void frame(std::uint32_t i) noexcept;
  void spill() noexcept;
  [[nodiscard]] bool sent(const flight& f) const noexcept;
  bool parse(done_list& done) noexcept;
  bool begin(const wire::frame_header& h, done_list& done) noexcept;
  bool begin_answer(flight& f) noexcept;
  bool finish(done_list& done) noexcept;
  bool finish_answer(done_list& done) noexcept;
  void take_payload(const std::byte*& from, std::size_t& n) noexcept;
  void advance_payload(std::uint64_t n) noexcept;
  bool broken(errc why, const char* reason, done_list& done) noexcept;
  void fail_locked(errc why, done_list& done) noexcept;
  void os_wait(std::uint32_t seen, time_point deadline) noexcept;

  lane_owner& owner_;
  const std::uint32_t index_;
  const std::uint32_t message_bytes_max_;
  const bool fds_allowed_;

  std::mutex mutex_;
  descriptor socket_;
  std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> generation_{0};
  errc reason_ = errc::disconnected;  ///< what requests fail with
  std::uint32_t armed_ = 0;           ///< events that the session thread is registered for
  std::uint32_t requests_max_;
  std::uint32_t in_use_ = 0;
  std::uint32_t async_ = 0;  ///< of those, how many have a callback: nobody may be waiting for them
  std::atomic<std::uint32_t> in_flight_{0};

  std::deque<operation> ops_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> queue_;  ///< operations that are not framed completely
  std::vector<flight> ring_;         ///< by op id modulo its size
  std::uint64_t head_ = 0, tail_ = 0;

  std::vector<iovec> out_;  ///< being sent; empty or from out_at_ on
  std::size_t out_at_ = 0;
  std::uint64_t out_first_ = 0;     ///< the first op id whose frame is in out_
  std::vector<std::byte> spilled_;  ///< when not empty, all that out_ names
  wire::frame_header ack_{};
  std::uint32_t acks_due_ = 0;

  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0, in_end_ = 0;
  incoming now_;
  std::vector<std::byte> notice_;
  std::vector<int> fds_;  ///< received, not yet claimed by an answer

  alignas(64) std::atomic<std::uint32_t> role_{1};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace fm::fabric
