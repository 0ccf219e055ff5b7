// The farmem-agent processes that hold what does not fit: started here, each with an address of its own, and stopped with
// this object. They also end when this process does, in whatever way.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "process.h"

namespace fm::example {

struct agent_options {
  std::string owner = "example";      ///< the program's name, for the agents' names and the directory of their sockets
  std::string transport = "shm";      ///< shm, tcp or verbs
  std::string address = "127.0.0.1";  ///< of this machine, for tcp and verbs
  unsigned count = 2;
  std::uint64_t memory_bytes = 1u << 30;  ///< of each
  std::uint64_t region_bytes = 0;         ///< 0: the agent's own default
  std::string program;                    ///< empty: beside this program, above it, or in PATH
  std::vector<std::string> at;            ///< agents that run already: none are started
};

class agent_processes {
 public:
  /// Starts them and returns when each serves its address. Throws fm::error: not_found (no program), refused (an agent ended
  /// at once), timed_out.
  explicit agent_processes(const agent_options& options);
  ~agent_processes();
  agent_processes(const agent_processes&) = delete;
  agent_processes& operator=(const agent_processes&) = delete;

  [[nodiscard]] const std::vector<std::string>& urls() const noexcept { return urls_; }
  [[nodiscard]] const std::vector<pid_t>& pids() const noexcept { return pids_; }

 private:
  void start(const std::string& program, const std::string& url, const agent_options& options, unsigned number);
  void stop() noexcept;

  std::string directory_;
  std::vector<std::string> urls_;
  std::vector<process> processes_;
  std::vector<pid_t> pids_;
};

}  // namespace fm::example
