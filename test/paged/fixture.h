// What the tests of paged ranges have in common: agents over each transport, a plain copy to compare with, and children that are
// expected to end in a certain way.
//
// They need leave to use userfaultfd, and fail without it. FARMEM_TEST_WITHOUT_USERFAULTFD=1 in the environment leaves out what
// needs it for fault threads, for machines where that cannot be had.
#pragma once

#include <farmem/detail/check.h>
#include <farmem/paged/paged.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "program/live_agent.h"
#include "support/await.h"

namespace paged_test {

using namespace fm;  // NOLINT
using namespace fm::literals;

inline const std::vector<std::string> transports{"local", "shm", "tcp"};

/// The thread sanitizer puts off what signal handlers do, so that a fault is never served: that mode is left out under it.
inline std::vector<fault_mode> modes() {
  std::vector<fault_mode> m;
  if (std::getenv("FARMEM_TEST_WITHOUT_USERFAULTFD") == nullptr) m.push_back(fault_mode::threads);
  if (FM_TSAN == 0) m.push_back(fault_mode::sigbus);
  return m;
}
inline const char* name_of(fault_mode m) { return m == fault_mode::threads ? "threads" : "sigbus"; }

/// Agents for one transport, and options that go with them: a small range, and less local memory.
struct world {
  explicit world(const std::string& transport, std::size_t agents = 1, const std::vector<std::string>& more = {}) {
    o.agents.clear();
    for (std::size_t i = 0; i < agents; ++i) {
      if (transport == "local") {
        o.agents.emplace_back("local:");
        continue;
      }
      std::vector<std::string> a{"--memory", "64MiB", "--region", "256KiB"};
      a.insert(a.end(), more.begin(), more.end());
      live.push_back(std::make_unique<agent_test::live_agent>(a));
      o.agents.push_back(live.back()->url(transport));
    }
    o.capacity = 4_MiB;
    o.local = 512_KiB;
    o.local_region = 256_KiB;
    o.block = 16_KiB;
    o.name = "test";
  }
  std::vector<std::unique_ptr<agent_test::live_agent>> live;
  paged_options o;
};

/// The range, and what should be in it.
class mirror {
 public:
  explicit mirror(paged& p, std::uint64_t seed = 1) : p_(p), copy_(p.size()), random_(seed) {}

  /// Writes to a random place, of up to `most` bytes.
  void write(std::size_t most) {
    const std::size_t n = 1 + random_() % most, at = random_() % (copy_.size() - n);
    for (std::size_t i = 0; i < n; ++i) copy_[at + i] = static_cast<std::byte>(random_());
    std::memcpy(p_.data() + at, copy_.data() + at, n);
  }
  /// Compares a random place; true when it is right.
  [[nodiscard]] bool read(std::size_t most) {
    const std::size_t n = 1 + random_() % most, at = random_() % (copy_.size() - n);
    return std::memcmp(p_.data() + at, copy_.data() + at, n) == 0;
  }
  [[nodiscard]] bool all_right() const { return std::memcmp(p_.data(), copy_.data(), copy_.size()) == 0; }
  std::vector<std::byte>& copy() { return copy_; }
  std::mt19937_64& random() { return random_; }

 private:
  paged& p_;
  std::vector<std::byte> copy_;
  std::mt19937_64 random_;
};

/// How a child ended, and what it wrote to its standard error.
struct ending {
  int code = 0;  ///< exit code, or minus the signal; -1000 when it would not end
  std::string text;
};

/// Runs `body` in a child of this process.
inline ending in_child(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  // The handlers of the test runner or a sanitizer are not for the child. Before fork, because the library installs one in it.
  struct sigaction by_default {
  }, segv{}, abrt{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGSEGV, &by_default, &segv);
  ::sigaction(SIGABRT, &by_default, &abrt);
  const pid_t child = ::fork();
  if (child != 0) {
    ::sigaction(SIGSEGV, &segv, nullptr);
    ::sigaction(SIGABRT, &abrt, nullptr);
  }
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], 2);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  ending e;
  for (pollfd p{ends[0], POLLIN, 0};;) {
    if (::poll(&p, 1, agent_test::wait_ms) != 1) {
      ::kill(child, SIGKILL);
      e.code = -1000;
      break;
    }
    std::array<char, 4096> some;
    const ssize_t n = ::read(ends[0], some.data(), some.size());
    if (n <= 0) break;
    e.text.append(some.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (e.code == 0) e.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return e;
}

}  // namespace paged_test
