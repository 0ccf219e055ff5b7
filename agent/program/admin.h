// The admin socket: a Unix socket on which the agent's own user and root may ask for its statistics, and have it drained.
// One line in, one document out, then the connection ends. One connection is served at a time, with a deadline, so that
// a stuck client costs the others a moment and the agent nothing.
#pragma once

#include "base/base.h"

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace fm::agent {

class admin_server {
 public:
  /// Binds `path` (replacing a socket that nobody serves) with mode 0600 and starts. Throws fm::error naming the path.
  /// `answer(command)` is the document, JSON; empty: there is no such command.
  admin_server(std::string path, std::function<std::string(std::string_view command)> answer);
  admin_server(const admin_server&) = delete;
  admin_server& operator=(const admin_server&) = delete;
  ~admin_server();

 private:
  void run();
  void serve(int fd);

  std::string path_;
  std::function<std::string(std::string_view)> answer_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

/// The answer of the agent at `path` to a command, JSON. Throws fm::error (unreachable, refused, timed_out) naming the
/// path.
std::string ask_agent(const std::string& path, std::string_view command);

/// JSON, indented for a reader: one `key: value` a line.
std::string readable(const std::string& json);

}  // namespace fm::agent
