// A lane as the agent holds it: a queue pair that receives messages, hands them to the service in order, and sends the
// answers. One-sided operations pass it by. Used by the listener's thread alone.
//
// Invariant: its memory is bounded. At most the credits of the client wait to be received. While more than
// unsent_bytes_max bytes wait to be sent, nothing is handed on, so that no credit goes back.
#pragma once

#include "base/limits.h"
#include "fabric/server/service.h"
#include <deque>

#include "fabric/verbs/device/queue_pair.h"

namespace fm::fabric::verbs {

/// What a lane needs of its session.
class lane_service {
 public:
  virtual errc message(std::span<const std::byte> payload, answer& out) noexcept = 0;
  virtual bool notices_handled(std::uint32_t count) noexcept = 0;
  /// The client broke the protocol, or there is no memory for what it wants; the session ends.
  virtual void violation(errc why, const char* reason) noexcept = 0;

 protected:
  ~lane_service() = default;
};

class server_lane {
 public:
  server_lane(lane_service& s, std::uint64_t session, std::uint32_t message_bytes_max, std::uint32_t client_message_max)
      : service_(s),
        session_(session),
        message_bytes_max_(message_bytes_max),
        client_message_max_(client_message_max) {}
  ~server_lane();

  /// Takes the id of a connection request over, also on failure.
  failure create(rdma_cm_id* id, ibv_pd* domain, ibv_comp_channel* channel, shared_receives* shared,
                 std::uint32_t lane);
  failure accept(const packet::join& j, const rdma_conn_param& asked);

  /// Handles what has come. Returns how much; negative: the lane is over.
  int serve() noexcept;
  void send_notice(std::vector<std::byte> payload);
  /// Sends what can be sent; false: the lane is over.
  bool pump() noexcept;
  [[nodiscard]] bool arm() noexcept { return qp_.arm(); }
  void disarmed() noexcept { qp_.disarmed(); }

  [[nodiscard]] const rdma_cm_id* id() const noexcept { return id_.get(); }
  [[nodiscard]] std::uint64_t session() const noexcept { return session_; }
  bool established = false;

 private:
  struct outgoing {
    packet::header head{};
    std::vector<std::byte> payload;
    std::size_t sent = 0;
    bool started = false;
  };
  struct waiting {
    std::uint64_t wr_id;
    std::span<const std::byte> bytes;
    packet::header head;
  };

  // They throw bad_alloc, which costs the connection. False: the lane is over.
  bool arrived(const ibv_wc& w);
  bool take(const waiting& w);
  bool answer_message();

  lane_service& service_;
  const std::uint64_t session_;
  const std::uint32_t message_bytes_max_, client_message_max_;
  connection_id id_;
  queue_pair qp_;
  packet::assembly incoming_;
  std::deque<waiting> inbox_;
  std::deque<outgoing> out_;
  std::size_t out_bytes_ = 0;
};

}  // namespace fm::fabric::verbs
