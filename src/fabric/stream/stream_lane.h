// One stream connection of a client session (tcp://, shm://). It frames requests, keeps what is in flight, and puts
// answers where they belong.
//
// Receiving. A thread that sleeps here sleeps in the call that receives. It holds the role and no lock, so it takes
// only whole new input, into the buffer that nobody but the role's holder touches. `ahead_` counts that, and the call of
// receive that follows takes it. The rest of a payload goes to a request's own buffers, under the lock.
//
// Buffers. A request is in `ops_` from submit until it is moved to a done_list. Cancelling moves it at once: bytes that
// are still to be sent from its buffers are copied away first, and what arrives for it later is discarded by operation
// id.
//
// Memory. A request that finds none is refused, an answer that finds none completes its request as out_of_memory. A
// notice, or a request that is cancelled while it is being sent, costs the connection then. Nothing else allocates.
#pragma once

#include "base/limits.h"
#include "fabric/wire/wire.h"
#include <deque>

#include "fabric/client/client_lane.h"
#include "fabric/socket/socket.h"

namespace fm::fabric {

class stream_lane final : public client_lane {
 public:
  stream_lane(lane_owner& owner, std::uint32_t index, std::uint32_t requests_max, std::uint32_t message_bytes_max,
              bool fds);
  ~stream_lane() override;

  /// Takes a connection that has shaken hands, and gives up the role. By the session thread, while it holds it.
  void open(descriptor socket, std::uint32_t generation, std::uint32_t requests_max);

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
  void disarmed() noexcept override { armed_ = 0; }
  void sleep_on_connection(time_point deadline) noexcept override;
  [[nodiscard]] bool look_is_a_call() const noexcept override { return true; }

 private:
  static constexpr std::uint32_t ring_size = 1024;  ///< frames that wait for their answers
  static constexpr std::uint32_t nothing = ~0u;     ///< the number of no operation

  /// A request in flight.
  struct operation {
    request* r = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t framed = 0;  ///< bytes of it that frames exist for
    std::uint32_t answers_left = 0;
    errc status = errc::ok;  ///< first refusal among its frames
    time_point deadline{};
    std::uint32_t next = nothing;  ///< in the queue
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
  /// A number for a request, and room for giving it back. Throws bad_alloc; then nothing is taken.
  std::uint32_t take_op(const request& r);
  void enqueue(std::uint32_t i) noexcept;
  void dequeue_first() noexcept;
  void dequeue(std::uint32_t i) noexcept;
  void free_op(std::uint32_t i) noexcept;
  void build() noexcept;
  void frame(std::uint32_t i) noexcept;
  /// False: there is no memory for a copy.
  bool spill() noexcept;
  [[nodiscard]] bool sent(const flight& f) const noexcept;
  [[nodiscard]] std::span<std::byte> room_for_more() noexcept;
  bool received(done_list& done) noexcept;
  bool parse(done_list& done) noexcept;
  bool begin(const wire::frame_header& h, done_list& done) noexcept;
  bool begin_answer(flight& f) noexcept;
  bool finish(done_list& done) noexcept;
  bool finish_answer(done_list& done) noexcept;
  void take_payload(const std::byte*& from, std::size_t& n) noexcept;
  void advance_payload(std::uint64_t n) noexcept;
  bool broken(errc why, const char* reason, done_list& done) noexcept;
  void fail_locked(errc why, done_list& done) noexcept;

  lane_owner& owner_;
  const std::uint32_t index_;
  const std::uint32_t message_bytes_max_;
  const bool fds_allowed_;

  descriptor socket_;
  bool receives_asleep_ = false;      ///< the socket's calls may block; the role's holder's
  errc reason_ = errc::disconnected;  ///< what requests fail with
  std::uint32_t armed_ = 0;           ///< events that the session thread is registered for

  std::deque<operation> ops_;
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = nothing, last_ = nothing;  ///< the queue of operations that are not framed completely
  std::vector<flight> ring_;                        ///< by op id modulo its size
  std::uint64_t head_ = 0, tail_ = 0;

  std::vector<iovec> out_;  ///< being sent; empty or from out_at_ on
  std::size_t out_at_ = 0;
  std::uint64_t out_first_ = 0;     ///< the first op id whose frame is in out_
  std::vector<std::byte> spilled_;  ///< when not empty, all that out_ names
  wire::frame_header ack_{};
  std::uint32_t acks_due_ = 0;

  std::vector<std::byte> in_;  ///< the role's holder's, as are the next two, fds_ and ahead_
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::size_t ahead_ = 0;  ///< bytes behind in_end_ that have come and were not looked at
  incoming now_;
  std::vector<std::byte> notice_;
  std::vector<int> fds_;  ///< received, not yet claimed by an answer
};

}  // namespace fm::fabric
