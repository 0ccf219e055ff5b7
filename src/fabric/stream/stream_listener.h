// The server half of tcp:// and shm://: a listening socket and I/O threads, each with an epoll set and the connections
// it owns. The first thread also accepts. A connection is touched by its own thread only; what comes from outside (a
// notice to send) is left in the thread's `attention_` list. Sessions take turns with the threads that serve messages:
// the first half of them. The others, where there are several, serve fetch lanes, so that a miss does not wait for the
// service to handle a batch; but over shm:// there are no such lanes, and all threads serve messages.
#pragma once

#include <sys/epoll.h>

#include <map>
#include <thread>

#include "fabric/server/server_connection.h"

namespace fm::fabric {

class stream_listener final : public listener, private connection_host {
 public:
  stream_listener(const address& at, const std::string& url, const listen_options& options, service& s);
  ~stream_listener() override;
  [[nodiscard]] const std::string& url() const noexcept override { return url_; }

 private:
  struct owned {
    std::unique_ptr<server_connection> connection;
    std::uint32_t interest = EPOLLIN;  ///< epoll events, with a mark for watched
  };
  /// Moved as nodes: without memory only accepting fails.
  using connection_map = std::map<std::uint64_t, owned>;
  struct io_thread {
    descriptor epoll, wake;
    std::thread thread;
    std::mutex mutex;
    std::vector<std::uint64_t> attention;  ///< connections with notices to send
    bool attends_all = false;              ///< there was no memory for one of these
    connection_map arriving;               ///< handed over by the accepting thread
    connection_map connections;
    std::uint64_t last = 0;    ///< the connection that was served last
    std::uint32_t others = 0;  ///< requests of `last` until it counts as asking alone
    time_point spin_until{};   ///< polling goes on until then; zero: blocking
    os::spin_place spins;      ///< whether that pays
    std::size_t watched = 0;   ///< of the connections, how many have a deadline running
  };

  // connection_host
  errc greet(server_connection& c, const wire::hello_body& hello, std::shared_ptr<server_peer>& out) noexcept override;
  [[nodiscard]] const listen_options& limits() const noexcept override { return options_; }
  [[nodiscard]] service& served() const noexcept override { return service_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept override { return incarnation_; }

  void run(std::size_t index) noexcept;
  void drain_notices() noexcept;
  void handle(io_thread& t, std::uint64_t id, std::uint32_t events) noexcept;
  void spin(io_thread& t) noexcept;
  void accept_all() noexcept;
  void take_arrivals(io_thread& t) noexcept;
  void send_notices(io_thread& t) noexcept;
  void send_notices(io_thread& t, connection_map::iterator at) noexcept;
  void check_deadlines(io_thread& t) noexcept;
  void settle(io_thread& t, owned& o) noexcept;
  /// Takes it out of the epoll set, and out of the thread's connections.
  connection_map::node_type let_go(io_thread& t, std::uint64_t id) noexcept;
  void remove(io_thread& t, std::uint64_t id) noexcept;
  void hand_over(io_thread& t, std::uint64_t id) noexcept;
  void adopt(io_thread& t, connection_map::node_type node) noexcept;
  /// The first threads, that serve messages; one or more.
  [[nodiscard]] std::size_t message_threads() const noexcept {
    return unix_family_ ? threads_.size() : std::max<std::size_t>(threads_.size() / 2, 1);
  }
  [[nodiscard]] std::size_t home_of(const server_connection& c) noexcept;
  [[nodiscard]] std::function<void()> attention_of(std::size_t thread, std::uint64_t id) noexcept;

  const address at_;
  const listen_options options_;
  service& service_;
  const bool unix_family_;
  const std::uint64_t incarnation_;
  std::string url_;
  descriptor listening_;
  void pause_accepting(const char* why) noexcept;

  bool accepting_paused_ = false;  ///< out of descriptors or memory; tried again on a tick
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<std::uint32_t> connections_{0}, handshakes_{0};
  std::uint32_t next_fetch_thread_ = 0, next_message_thread_ = 0;  ///< of the first thread, where all connections begin
  std::vector<std::unique_ptr<io_thread>> threads_;

  std::mutex sessions_mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<server_peer>> sessions_;
};

}  // namespace fm::fabric
