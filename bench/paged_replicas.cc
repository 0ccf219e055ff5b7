// Replicas of paged ranges: the price of two of each page, the stall when an agent is killed beside two threads, how fast
// its pages are on two agents again, and what emptying an agent costs the program.
#include <farmem/farmem.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "support/managed.h"
#include "support/threads_at_work.h"

namespace {

using namespace fm::bench;
using namespace std::chrono_literals;

constexpr int threads = 2;
constexpr std::uint64_t page = 4096;

/// Three agents of a transport, and a range over them of which a quarter is local.
class world {
 public:
  world(program& p, const std::string& binary, const std::string& url, std::uint64_t bytes, std::uint32_t replicas) {
    fm::paged_options o{.capacity = bytes, .local = bytes / 4, .agents = {}};
    for (auto& a : agents_) {
      a = std::make_unique<counted_agent>(p, binary, url, "4GiB");
      o.agents.push_back(a->url());
    }
    o.replicas = replicas;
    o.on_failure = [this](const fm::fault_failure& f) {
      if (failed_.fetch_add(1) == 0)
        std::fprintf(stderr, "an access: %s %s\n", f.agent, std::string(fm::to_string(f.code)).c_str());
      return fm::fault_action::retry;
    };
    range_.emplace(o);
    urls_ = o.agents;
  }
  [[nodiscard]] fm::paged& range() { return *range_; }
  [[nodiscard]] const std::string& url(std::size_t i) const { return urls_[i]; }
  [[nodiscard]] pid_t pid(std::size_t i) const { return agents_[i]->pid(); }
  [[nodiscard]] double failed() const { return double(failed_.load()); }

 private:
  std::array<std::unique_ptr<counted_agent>, 3> agents_;
  std::vector<std::string> urls_;
  std::atomic<std::uint64_t> failed_{0};
  std::optional<fm::paged> range_;
};

std::uint64_t& word(const fm::paged& p, std::uint64_t i) {
  return *reinterpret_cast<std::uint64_t*>(p.data() + i * page);
}

void fill(const fm::paged& p) {
  for (std::uint64_t i = 0; i < p.size() / page; ++i) word(p, i) = 0;
  p.evict_all();
}

// What is local and dirty goes home.
double write_back(const fm::paged& p) {
  const std::uint64_t pages = p.size() / page / 8;
  for (std::uint64_t i = 0; i < pages; ++i) word(p, i) += 1;
  const std::uint64_t begin = now_ns();
  p.evict_all();
  return double(pages * page) / (1 << 20) / (double(now_ns() - begin) * 1e-9);
}

double read_ns(const fm::paged& p, std::uint64_t reads) {
  std::mt19937_64 random(1);
  std::uint64_t sum = 0;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < reads; ++i) sum += word(p, random() % (p.size() / page));
  keep(sum);
  return double(now_ns() - begin) / double(reads);
}

/// A tenth of the accesses write. Each thread has pages of its own; `last` is what was written last to each.
auto use(const fm::paged& p, std::vector<std::uint64_t>& last) {
  return [&p, &last](int thread) {
    const std::uint64_t share = p.size() / page / threads, first = share * std::uint64_t(thread);
    return [&p, &last, share, first, random = std::mt19937_64(std::uint64_t(thread) + 1)]() mutable {
      const std::uint64_t i = first + random() % share;
      const bool right = word(p, i) == last[i];
      if (random() % 10 == 0) word(p, i) = ++last[i];
      return right;
    };
  };
}

// From when blocks have adapted to the accesses: the range was filled in order.
double throughput(program& p, const threads_at_work& u) {
  const std::chrono::milliseconds window = p.sized<std::chrono::milliseconds>(5s, 500ms);
  std::this_thread::sleep_for(2 * window);
  return u.rate(window);
}

void price(program& p, const std::string& binary, const std::string& transport, const std::string& url) {
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{256} << 20, std::uint64_t{16} << 20);
  const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
  world one(p, binary, url, bytes, 1), two(p, binary, url, bytes, 2);
  fill(one.range());
  fill(two.range());
  const std::uint64_t reads = bytes / page;
  p.compare(
      {"write_back", parameters, "MiB/s", {goal_kind::ratio_at_least, 0.5}, "one replica"},
      [&] {
        return turn{write_back(two.range()), {}, 0};
      },
      [&] {
        return turn{write_back(one.range()), {}, 0};
      });
  p.compare(
      {"reads", parameters, "ns", {goal_kind::ratio_at_most, 1.03}, "one replica"},
      [&] {
        return turn{read_ns(two.range(), reads), {}, 0};
      },
      [&] {
        return turn{read_ns(one.range(), reads), {}, 0};
      });
}

// `how`: SIGKILL resets the connections, SIGSTOP lets the agent fall silent.
void lose_one(program& p, const std::string& binary, const std::string& transport, const std::string& url, int how,
              bool rests) {
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{1} << 30, std::uint64_t{16} << 20);
  const std::vector<std::pair<std::string, std::string>> parameters{
      {"transport", transport}, {"how", how == SIGKILL ? "killed" : "silent"}, {"program", rests ? "rests" : "works"}};
  world w(p, binary, url, bytes, 2);
  fill(w.range());
  std::vector<std::uint64_t> last(bytes / page);
  std::optional<threads_at_work> u;
  if (!rests) u.emplace(threads, use(w.range(), last));
  double before = 0;
  if (u) before = throughput(p, *u);
  if (u) (void)u->longest_ms();
  const std::uint64_t mended = w.range().stats().mended_bytes;
  ::kill(w.pid(2), how);
  while (w.range().stats().agents_lost == 0) std::this_thread::sleep_for(1ms);
  const std::uint64_t lost = now_ns(), done = u ? u->done() : 0;
  while (w.range().stats().degraded_bytes == 0 || w.range().stats().mended_bytes == mended)
    std::this_thread::sleep_for(1ms);
  while (w.range().stats().degraded_bytes != 0) std::this_thread::sleep_for(1ms);
  const double seconds = double(now_ns() - lost) * 1e-9;
  p.measure({"rebuild", parameters, "MB/s", {goal_kind::value_at_least, rests ? 300.0 : 80.0}},
            double(w.range().stats().mended_bytes - mended) * 1e-6 / seconds);
  if (u) {
    p.measure({"rebuild_throughput", parameters, "of before", {goal_kind::value_at_least, 0.7}},
              double(u->done() - done) / seconds / before);
    p.measure({"stall", parameters, "ms", {goal_kind::value_at_most, 1000}}, u->longest_ms());
    p.measure({"wrong", parameters, "accesses", {goal_kind::value_at_most, 0}}, u->wrong());
  }
  p.measure({"failed", parameters, "accesses", {goal_kind::value_at_most, 0}}, w.failed());
  ::kill(w.pid(2), SIGCONT);
}

// Each of three agents holds a third.
void leave_one(program& p, const std::string& binary, const std::string& transport, const std::string& url) {
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{3} << 30, std::uint64_t{24} << 20);
  const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
  world w(p, binary, url, bytes, 1);
  fill(w.range());
  std::vector<std::uint64_t> last(bytes / page);
  double before = 0, p999 = 0;
  {
    threads_at_work u(threads, use(w.range(), last));
    before = throughput(p, u);
    p999 = u.p999_ms();
  }
  threads_at_work u(threads, use(w.range(), last));
  const std::uint64_t from = now_ns(), done = u.done(), mended = w.range().stats().mended_bytes;
  w.range().remove_agent(w.url(1), std::chrono::minutes(30));
  const double seconds = double(now_ns() - from) * 1e-9;
  p.measure({"leave", parameters, "MB/s", {}}, double(w.range().stats().mended_bytes - mended) * 1e-6 / seconds);
  p.measure({"leave_throughput", parameters, "of before", {goal_kind::value_at_least, 0.8}},
            double(u.done() - done) / seconds / before);
  p.measure({"leave_p999_beyond", parameters, "ms", {goal_kind::value_at_most, 5}}, u.p999_ms() - p999);
  p.measure({"leave_longest", parameters, "ms", {}}, u.longest_ms());
  p.measure({"leave_wrong", parameters, "accesses", {goal_kind::value_at_most, 0}}, u.wrong());
}

}  // namespace

int main(int argc, char** argv) {
  program p("paged_replicas", "What two replicas of each page of a range cost, and what they save when an agent dies");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      if (p.wants("write_back") || p.wants("reads")) price(p, binary, transport, url);
      if (p.wants("stall") || p.wants("rebuild")) {
        lose_one(p, binary, transport, url, SIGKILL, false);
        if (transport == "tcp") lose_one(p, binary, transport, url, SIGSTOP, false);
        lose_one(p, binary, transport, url, SIGKILL, true);
      }
      if (p.wants("leave")) leave_one(p, binary, transport, url);
    }
  });
}
