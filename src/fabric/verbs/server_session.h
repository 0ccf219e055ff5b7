// A session as the agent holds it: the TCP connection that began it, the lanes that joined it, and the regions that are
// registered for it. One protection domain each, so that no key of one client opens a region to another.
//
//   greeting ──hello, service::connected──► joining ──every lane established──► open ──end──► (removed)
//       └── deadline, bad frame ──────────────┴──────────────────────────────────────────► (removed)
//
// Everything but notify, close and the destructor is called by the listener's thread. Invariants: a region is entered in
// the service (service::memory) as long as it is registered, so its bytes stay; it is deregistered before memory_done. When
// the session ends, queue pairs go first (close_lanes), then registrations, then service::disconnected is called.
#pragma once

#include "fabric/server/service.h"
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "fabric/socket/socket.h"
#include "server_lane.h"

namespace fm::fabric::verbs {

/// What a session asks of its listener.
class session_host {
 public:
  [[nodiscard]] virtual const listen_options& limits() const noexcept = 0;
  [[nodiscard]] virtual service& served() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t incarnation() const noexcept = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Lets the listener's thread look at the session. From any thread.
  virtual void attention(std::uint64_t session) noexcept = 0;

 protected:
  ~session_host() = default;
};

class server_session final : public peer, private lane_service {
 public:
  server_session(session_host& host, descriptor control, std::uint64_t number, std::string name);
  /// By the reaper's thread, since it may take seconds (session_reaper.h).
  ~server_session() override;
  server_session(const server_session&) = delete;
  server_session& operator=(const server_session&) = delete;

  // ---- peer ----
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte> payload) noexcept override;
  void close(errc why, std::string_view reason) noexcept override;

  // ---- the listener's thread; false: the session is over, also for want of memory ----
  bool on_control_readable() noexcept;
  bool on_attention() noexcept;
  /// Takes a lane's connection request; false: it is rejected, which ends nothing.
  bool join(rdma_cm_id* id, const packet::join& j, const rdma_conn_param& asked, ibv_comp_channel* channel,
            const paging& memory) noexcept;
  bool on_established(const rdma_cm_id* id) noexcept;
  /// The first step of its end: no device reaches anything of this session's any more.
  void close_lanes() noexcept;
  [[nodiscard]] bool has(const rdma_cm_id* id) const noexcept;
  /// What its lanes are on; null before the first one.
  [[nodiscard]] const ibv_context* device() const noexcept { return device_; }

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] int control() const noexcept { return control_.get(); }
  [[nodiscard]] const std::uint64_t* id() const noexcept { return id_; }
  [[nodiscard]] std::size_t lane_count() const noexcept { return lanes_.size(); }
  [[nodiscard]] bool open() const noexcept { return open_; }
  [[nodiscard]] bool greeted() const noexcept { return greeted_; }
  /// Whether the client has handled every notice, or will handle none.
  [[nodiscard]] bool settled() noexcept {
    const std::lock_guard lock(mutex_);
    return ending_ || !open_ || unacknowledged_ == 0;
  }
  [[nodiscard]] time_point deadline() const noexcept { return progress_ + host_.limits().handshake_within; }

 private:
  struct registered {
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    memory_region key;
  };

  // lane_service
  errc message(std::span<const std::byte> payload, answer& out) noexcept override {
    return host_.served().message(*this, payload, out);
  }
  bool notices_handled(std::uint32_t count) noexcept override;
  void violation(errc why, const char* reason) noexcept override;

  bool hello();
  bool region_asked();
  errc attach(const packet::region_request& q, packet::region_answer& a);
  void detach(std::uint32_t region) noexcept;
  bool answer_control(std::span<const std::byte> bytes) noexcept;

  session_host& host_;
  descriptor control_;
  const std::uint64_t number_;
  const std::string name_;
  time_point progress_;  ///< when the handshake's latest step was taken
  std::uint64_t id_[2];
  bool greeted_ = false, open_ = false;
  std::uint32_t client_message_max_ = 0;
  std::vector<std::byte> received_;

  protection_domain domain_;
  std::unique_ptr<shared_receives> receives_;  ///< of all lanes; null where the device has no shared queues
  ibv_context* device_ = nullptr;
  paging memory_;
  std::vector<std::unique_ptr<server_lane>> lanes_;
  std::unordered_map<std::uint32_t, registered> regions_;

  std::mutex mutex_;  ///< below
  std::deque<std::vector<std::byte>> notices_;
  std::uint32_t unacknowledged_ = 0;
  bool ending_ = false;
};

}  // namespace fm::fabric::verbs
