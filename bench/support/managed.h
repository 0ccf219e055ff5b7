// What the benchmarks of the heap share: managed types of stated sizes, agents to run against, heaps opened on them.
#pragma once

#include <array>
#include <cstdint>
#include <farmem/farmem.h>
#include <memory>
#include <string>
#include <vector>

#include "process.h"
#include "program.h"

namespace fm::bench {

/// A managed node as large as raw_node: 64 bytes of payload.
struct managed_node {
  std::uint64_t value = 0;
  fm::ref<managed_node> next;
  std::array<std::uint64_t, 6> more{};
};
static_assert(sizeof(managed_node) == 64);

/// The same with two references.
struct tree_node {
  std::uint64_t value = 0;
  fm::ref<tree_node> left, right;
  std::array<std::uint64_t, 5> more{};
};
static_assert(sizeof(tree_node) == 64);

/// A managed object of `Bytes` without references; its first word tells which one it is.
template <std::size_t Bytes>
struct blob {
  std::uint64_t number = 0;
  std::array<std::uint64_t, Bytes / 8 - 1> more{};
};
static_assert(sizeof(blob<64>) == 64 && sizeof(blob<4096>) == 4096);

/// What an object of `Bytes` takes in the local cache: payload, home header, local prefix, rounded to 16.
template <std::size_t Bytes>
constexpr std::uint64_t frame_bytes = (Bytes + 24 + 15) / 16 * 16;

/// An agent of this build on the agents' core, counted into the rows' CPU time while it lives.
class counted_agent {
 public:
  counted_agent(program& p, const std::string& binary, const std::string& url, const std::string& memory,
                const std::vector<std::string>& more = {})
      : program_(&p), agent_(binary, url, p.agent_core(), arguments(memory, more)) {
    p.count_cpu_of(agent_.pid());
  }
  ~counted_agent() { program_->forget_cpu_of(agent_.pid()); }
  counted_agent(const counted_agent&) = delete;
  counted_agent& operator=(const counted_agent&) = delete;
  [[nodiscard]] const std::string& url() const noexcept { return agent_.url(); }
  [[nodiscard]] pid_t pid() const noexcept { return agent_.pid(); }

 private:
  static std::vector<std::string> arguments(const std::string& memory, const std::vector<std::string>& more) {
    std::vector<std::string> all{"--memory", memory, "--log-level", "warning"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  program* program_;
  agent agent_;
};

/// The transports that a benchmark with real agents covers, as URLs for `agent`.
inline std::vector<std::pair<std::string, std::string>> transports() {
  return {{"shm", "shm://"}, {"tcp", "tcp://127.0.0.1:0"}};
}

}  // namespace fm::bench
