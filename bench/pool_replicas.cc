// Replicas of pools: what two agents for each object cost, and how long a call takes when one of them is killed beside two
// threads.
#include <farmem/farmem.h>
#include <signal.h>

#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "peers/etcd.h"
#include "support/managed.h"
#include "support/threads_at_work.h"

namespace {

using namespace fm::bench;
using namespace std::chrono_literals;

constexpr int threads = 2;
struct record {
  std::array<std::uint64_t, 25> words;  // 200 bytes
};

/// Three agents of a transport, and a pool over them.
class world {
 public:
  world(program& p, const std::string& binary, const std::string& url, const std::string& arbiter,
        std::uint32_t replicas, std::uint64_t objects) {
    std::vector<std::string> more;
    if (!arbiter.empty()) more = {"--etcd", arbiter};
    fm::pool_options o;
    o.agents.clear();
    for (auto& a : agents_) {
      a = std::make_unique<counted_agent>(p, binary, url, "1GiB", more);
      o.agents.push_back(a->url());
    }
    o.tenant = fm::pool_tenant::random();
    o.replicas = replicas;
    o.reconnect_within = 30s;
    pool_.emplace(o);
    for (std::uint64_t i = 0; i < objects; ++i) all_.push_back(pool_->alloc(record{}));
  }
  [[nodiscard]] fm::pool& pool() { return *pool_; }
  [[nodiscard]] std::vector<fm::pool_ptr<record>>& all() { return all_; }
  [[nodiscard]] pid_t pid(std::size_t i) const { return agents_[i]->pid(); }

 private:
  std::array<std::unique_ptr<counted_agent>, 3> agents_;
  std::optional<fm::pool> pool_;
  std::vector<fm::pool_ptr<record>> all_;
};

template <class F>
double ns_each(std::uint64_t n, F&& f) {
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < n; ++i) f(i);
  return double(now_ns() - begin) / double(n);
}

double writes(world& w, std::uint64_t n) {
  record r{};
  return ns_each(n, [&](std::uint64_t i) {
    r.words[0] = i;
    w.pool().write(w.all()[i % w.all().size()], r);
  });
}

double allocations(world& w, std::uint64_t n) {
  return ns_each(n, [&](std::uint64_t) { w.pool().free(w.pool().alloc(record{})); });
}

double reads(world& w, std::uint64_t n) {
  std::uint64_t sum = 0;
  const double ns = ns_each(n, [&](std::uint64_t i) { sum += w.pool().read(w.all()[i % w.all().size()]).words[0]; });
  keep(sum);
  return ns;
}

void price(program& p, const std::string& binary, const std::string& transport, const std::string& url) {
  const std::uint64_t objects = p.sized<std::uint64_t>(10'000, 500);
  const auto calls = p.sized<std::uint64_t>(10'000, 500), looks = p.sized<std::uint64_t>(100'000, 2'000);
  const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
  world one(p, binary, url, {}, 1, objects), two(p, binary, url, {}, 2, objects);
  const auto compare = [&](const char* row, double most, auto&& f) {
    p.compare(
        {row, parameters, "ns", {goal_kind::ratio_at_most, most}, "one replica"},
        [&] {
          return turn{f(two), {}, 0};
        },
        [&] {
          return turn{f(one), {}, 0};
        });
  };
  if (p.wants("writes")) compare("writes", 2.5, [&](world& w) { return writes(w, calls); });
  if (p.wants("allocations")) compare("allocations", 2.5, [&](world& w) { return allocations(w, calls / 2); });
  if (p.wants("reads")) compare("reads", 1.03, [&](world& w) { return reads(w, looks); });
}

// An agent is killed: of one part it is the primary, of another one the backup.
void lose_one(program& p, const std::string& binary, const std::string& transport, const std::string& url) {
  const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
  const etcd arbiter;
  world w(p, binary, url, arbiter.url(), 2, p.sized<std::uint64_t>(10'000, 500));
  std::vector<std::uint64_t> last(w.all().size());
  {
    threads_at_work u(threads, [&](int thread) {
      return [&, thread, random = std::mt19937_64(std::uint64_t(thread) + 1)]() mutable {
        const std::size_t i = random() % (last.size() / threads) * threads + std::size_t(thread);
        const bool right = w.pool().read(w.all()[i]).words[0] == last[i];
        if (random() % 4 == 0) {
          record r{};
          r.words[0] = last[i] + 1;
          w.pool().write(w.all()[i], r);
          ++last[i];
        }
        return right;
      };
    });
    std::this_thread::sleep_for(p.sized<std::chrono::milliseconds>(2s, 300ms));
    (void)u.longest_ms();
    ::kill(w.pid(0), SIGKILL);
    const auto is_whole = [&] {
      for (const fm::pool_agent_stats& a : w.pool().stats().agents)
        if (a.backup.empty()) return false;
      return true;
    };
    std::this_thread::sleep_for(1s);  // it is noticed by then
    while (!is_whole()) std::this_thread::sleep_for(5ms);
    p.measure({"stall", parameters, "ms", {goal_kind::value_at_most, 1000}}, u.longest_ms());
    p.measure({"failed", parameters, "calls", {goal_kind::value_at_most, 0}}, u.failed());
    p.measure({"wrong", parameters, "calls", {goal_kind::value_at_most, 0}}, u.wrong());
  }
}

}  // namespace

int main(int argc, char** argv) {
  program p("pool_replicas", "What two agents for each object of a pool cost, and what they save when one dies");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      if (p.wants("writes") || p.wants("allocations") || p.wants("reads")) price(p, binary, transport, url);
      if (p.wants("stall") && etcd::is_installed()) lose_one(p, binary, transport, url);
    }
  });
}
