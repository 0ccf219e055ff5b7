// Clients of the cache over TCP: one thread, one epoll set. A client is read from only while what it has been sent is taken, so
// nobody makes the server keep more than a reply and a command for them; who comes when it is full is told so.
#pragma once

#include <memory>
#include <unordered_map>

#include "commands.h"

namespace fm::example {

class server {
 public:
  struct options {
    std::uint16_t port = 0;  ///< on the loopback interface; 0: any
    std::uint32_t clients_max = 1000;
  };
  /// Listens. Throws fm::error(refused).
  server(cache& c, const options& o);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  [[nodiscard]] std::uint16_t port() const noexcept { return status_.port; }
  [[nodiscard]] const commands::status& status() const noexcept { return status_; }
  /// Serves until stop_requested. Throws what the cache cannot go on after.
  void run();

 private:
  struct client {
    int fd = -1;
    bool closing = false;                     ///< when its output is gone
    std::optional<time_point> lingers_until;  ///< it has been told so
    bool reading = true, writing = false;
    request_parser requests;
    std::string out;
    std::size_t sent = 0;
  };

  void accept_some();
  void handle(client& c, std::uint32_t events);
  /// Executes what has arrived and sends what there is to send. False: the client is to be closed.
  bool pump(client& c);
  bool send_some(client& c);
  bool linger(client& c);
  void look_around();
  void watch(client& c, bool reading, bool writing);
  void close_client(client& c);

  cache& cache_;
  const options options_;
  commands::status status_;
  commands commands_;
  int listener_ = -1, epoll_ = -1;
  time_point look_at_{};
  bool accepting_ = true;  ///< not while the process has no descriptor for one more
  std::unordered_map<int, std::unique_ptr<client>> clients_;
  std::string buffer_;
};

}  // namespace fm::example
