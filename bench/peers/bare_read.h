// The peer of reads from a pool: a one-sided read of as many bytes over the same transport, from memory that a process serves
// which does nothing else. No object, no check: what the transport alone costs. And that of calls: a message that is answered as it is.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include <memory>

#include "../support/process.h"

namespace fm::bench {

/// The server as a worker: `bare_memory <url> <bytes>`; list it in become_worker_if_asked. Answers nothing.
int bare_memory_main(const std::vector<std::string>& args);

class bare_reader {
 public:
  /// Starts a worker on a core that serves `bytes` over `shm` or `tcp`, and connects to it. Throws as fabric::connect.
  bare_reader(const std::string& transport, int core, std::uint64_t bytes);
  ~bare_reader();
  bare_reader(const bare_reader&) = delete;
  bare_reader& operator=(const bare_reader&) = delete;
  /// Reads; waits for it. Throws fm::error with what the transport said.
  void read(std::uint64_t offset, void* to, std::size_t bytes);
  /// A call on a fetch lane that is answered with the bytes that it brought, 1 to 4096, and nothing else. Throws as read.
  void call(std::size_t bytes);
  [[nodiscard]] pid_t pid() const noexcept { return server_.pid(); }

 private:
  class events;
  std::string url_;
  worker server_;
  std::unique_ptr<events> events_;
  std::unique_ptr<fabric::session> session_;
};

}  // namespace fm::bench
