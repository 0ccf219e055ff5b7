// The server half of verbs://: a TCP socket on which sessions begin, a listening connection id for their lanes, and one
// thread that serves all of it. One thread is enough: fetches and write-backs are one-sided and never reach it, so
// listen_options::io_threads is not looked at. A second thread ends sessions (session_reaper.h).
//
// Waiting: epoll over the TCP sockets, the connection manager's channel, and the completion channel of each device;
// after something has come, the lane that it came on is polled for `spin_for` before the thread blocks again.
#pragma once

#include <sys/socket.h>

#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "server_session.h"
#include "session_reaper.h"

namespace fm::fabric::verbs {

class verbs_listener final : public listener, private session_host {
 public:
  verbs_listener(const address& at, const std::string& url, const listen_options& options, service& s);
  ~verbs_listener() override;
  [[nodiscard]] const std::string& url() const noexcept override { return url_; }

 private:
  struct device_in_use {
    device_share share;
    completion_channel channel;
    paging memory;
  };
  using session_map = std::unordered_map<std::uint64_t, std::unique_ptr<server_session>>;

  // session_host
  [[nodiscard]] const listen_options& limits() const noexcept override { return options_; }
  [[nodiscard]] service& served() const noexcept override { return service_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept override { return incarnation_; }
  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }
  void attention(std::uint64_t session) noexcept override;

  void run() noexcept;
  void handle(std::uint64_t tag) noexcept;
  void accept_all() noexcept;
  void take_attention() noexcept;
  void take_connection_events() noexcept;
  void connection_asked(const connection_event& e) noexcept;
  void take_completions(std::uint64_t device) noexcept;
  void serve_lane(server_lane& l) noexcept;
  void spin() noexcept;
  void tick() noexcept;
  /// Whether the thread may end: it was asked to, and clients have handled their notices or had their time.
  bool ends() noexcept;
  bool listen_for_lanes() noexcept;
  bool make_room_for_a_lane() noexcept;
  template <class Ends>
  void end_if(Ends&& ends) noexcept;
  void device_removed(ibv_context* device) noexcept;
  void end(std::uint64_t session) noexcept;
  const device_in_use* device_of(rdma_cm_id* bound) noexcept;

  const listen_options options_;
  service& service_;
  const std::uint64_t incarnation_;
  std::string url_;
  std::uint16_t port_ = 0;
  descriptor listening_, epoll_, wake_;
  event_channel events_;
  connection_id listening_id_;
  std::map<ibv_context*, device_in_use> devices_;  ///< of the listening id and of lanes; until they are removed
  session_map sessions_;
  session_reaper reaper_;
  std::uint64_t next_session_;
  sockaddr_storage bound_{};
  server_lane* last_ = nullptr;        ///< the lane that is polled because it was served last; no event is asked for
  std::vector<server_lane*> busy_;     ///< lanes to be served now
  std::vector<server_lane*> serving_;  ///< of those, what is left of this round
  time_point spin_until_{};
  os::spin_place spins_;
  std::size_t unopened_ = 0;  ///< sessions whose deadline runs
  bool accepting_paused_ = false;

  std::atomic<bool> stopping_{false};
  time_point ends_by_ = time_point::max();  ///< once the thread has seen stopping_
  std::mutex attention_mutex_;
  std::vector<std::uint64_t> attention_;
  bool all_want_attention_ = false;  ///< there was no memory for a number; guarded likewise
  std::thread thread_;
};

}  // namespace fm::fabric::verbs
