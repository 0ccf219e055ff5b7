// What tests of a range's agents have in common: threads that use the range and know what it has to have, and agents whose
// accesses must not fail.
#pragma once

#include <atomic>

#include "fixture.h"
#include "support/effort.h"

namespace paged_test {

inline constexpr std::size_t page = 4_KiB;

/// Threads that write to pages of their own and find in each what they wrote last.
class users {
 public:
  static constexpr std::size_t threads = 3;

  explicit users(const paged& p) : p_(p), last_(p.size() / page) {
    for (std::size_t t = 0; t < threads; ++t) threads_.emplace_back([this, t] { use(t); });
  }
  users(const users&) = delete;
  users& operator=(const users&) = delete;
  ~users() { stop(); }

  /// Waits until they have used so many pages more, or this build's part of them.
  void pass(std::uint64_t n) const {
    for (const std::uint64_t until = used_ + fm::test::effort(n); used_ < until;) std::this_thread::yield();
  }
  void stop() {
    stop_ = true;
    for (auto& t : threads_) t.join();
    threads_.clear();
  }
  /// After stop(): how many pages have something else than what was written last.
  [[nodiscard]] std::uint64_t wrong() const {
    std::uint64_t n = wrong_;
    for (std::size_t i = 0; i < last_.size(); ++i) n += *word(i) != last_[i];
    return n;
  }

 private:
  // At another place in each page: a whole page that is old is found as well as a part of it.
  [[nodiscard]] volatile std::uint64_t* word(std::size_t i) const {
    return reinterpret_cast<volatile std::uint64_t*>(p_.data() + i * page + i * 8 % page);
  }
  void use(std::size_t t) {
    std::mt19937_64 random(t + 1);
    const std::size_t mine = last_.size() / threads;
    for (std::uint64_t i = 1; !stop_; ++i, ++used_) {
      const std::size_t at = random() % mine * threads + t;
      if (*word(at) != last_[at]) ++wrong_;
      if (random() % 2 == 0) *word(at) = last_[at] = i << 8 | t;
    }
  }

  const paged& p_;
  std::vector<std::uint64_t> last_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> wrong_{0}, used_{0};
  std::vector<std::thread> threads_;
};

/// Agents over one transport, and a range whose accesses must not fail.
struct served : world {
  /// Of tests whose agents die: a busy machine may look like a dead agent, so they have one agent more than they need.
  static constexpr auto soon = std::chrono::seconds(1);

  served(const std::string& transport, std::size_t agents, fault_mode mode, std::uint32_t replicas = 1)
      : world(transport, agents) {
    o.faults = mode;
    o.replicas = replicas;
    o.access_within = o.reconnect_within = std::chrono::minutes(10);
    o.suspect_within = std::chrono::seconds(30);  // nobody is given up because the machine is busy
    o.on_failure = [this](const fault_failure&) {
      ++failures;
      return fault_action::retry;
    };
  }
  [[nodiscard]] const agent_test::live_agent& add(const std::string& transport, const std::string& memory = "64MiB") {
    live.push_back(
        std::make_unique<agent_test::live_agent>(std::vector<std::string>{"--memory", memory, "--region", "256KiB"}));
    o.agents.push_back(live.back()->url(transport));
    return *live.back();
  }
  std::atomic<int> failures{0};
};

inline bool becomes(const std::function<bool()>& what) {
  for (const auto until = clock::now() + std::chrono::minutes(5); clock::now() < until; std::this_thread::yield())
    if (what()) return true;
  return false;
}
inline bool is_whole(const paged& p) {
  return becomes([&] { return p.stats().degraded_bytes == 0; });
}

inline void check_all(const paged& p, users& u, const served& w) {
  u.stop();
  CHECK(u.wrong() == 0);
  CHECK(w.failures == 0);
  p.evict_all();
  CHECK(u.wrong() == 0);
  INFO(p.stats().text());
  CHECK(p.verify() == "");
}

}  // namespace paged_test
