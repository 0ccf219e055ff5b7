// Replicas: the price of two of each object, the stall when an agent is killed beside four threads, and how fast its
// objects are on two agents again.
#include <farmem/farmem.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "support/managed.h"
#include "support/threads_at_work.h"

namespace {

using namespace fm::bench;
using namespace std::chrono_literals;

constexpr int threads = 4;

/// Three agents of a transport, all of whose memory may be used.
class three_agents {
 public:
  three_agents(program& p, const std::string& binary, const std::string& url, const char* memory) {
    for (auto& a : all_) a = std::make_unique<counted_agent>(p, binary, url, memory);
  }
  [[nodiscard]] std::vector<std::string> urls() const { return {all_[0]->url(), all_[1]->url(), all_[2]->url()}; }
  [[nodiscard]] pid_t pid(int i) const { return all_[std::size_t(i)]->pid(); }

 private:
  std::array<std::unique_ptr<counted_agent>, 3> all_;
};

fm::heap_options over(const three_agents& agents, std::uint64_t cache, std::uint32_t replicas) {
  fm::heap_options o;
  o.cache = cache;
  o.agents = agents.urls();
  o.replicas = replicas;
  return o;
}

// ---- the price ----

template <std::size_t Bytes>
std::vector<fm::ptr<blob<Bytes>>> make_objects(fm::heap& h, std::uint64_t bytes) {
  std::vector<fm::ptr<blob<Bytes>>> all;
  for (std::uint64_t i = 0; i < bytes / Bytes; ++i) all.push_back(h.make<blob<Bytes>>(i));
  return all;
}

template <std::size_t Bytes>
double write_back(fm::heap& h, std::vector<fm::ptr<blob<Bytes>>>& objects) {
  for (auto& o : objects) o.write()->more[0] += 1;
  const std::uint64_t begin = now_ns();
  if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "writing everything back");
  return double(objects.size() * Bytes) / (1 << 20) / (double(now_ns() - begin) * 1e-9);
}

// Mean time of a read of random objects, of which the cache holds a quarter, or all.
double read_ns(const std::vector<fm::ptr<blob<64>>>& objects, std::uint64_t reads) {
  std::mt19937_64 random(1);
  std::uint64_t sum = 0;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < reads; ++i) sum += objects[random() % objects.size()]->number;
  keep(sum);
  return double(now_ns() - begin) / double(reads);
}

void price(program& p, const std::string& binary, const std::string& transport, const std::string& url) {
  const auto bytes = p.sized<std::uint64_t>(std::uint64_t{128} << 20, std::uint64_t{8} << 20);
  const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
  const three_agents agents(p, binary, url, "4GiB");
  fm::heap one(over(agents, bytes * 2, 1)), two(over(agents, bytes * 2, 2));
  {
    auto of_one = make_objects<4096>(one, bytes), of_two = make_objects<4096>(two, bytes);
    p.compare(
        {"write_back", parameters, "MiB/s", {goal_kind::ratio_at_least, 0.5}, "one replica"},
        [&] {
          return turn{write_back(two, of_two), {}, 0};
        },
        [&] {
          return turn{write_back(one, of_one), {}, 0};
        });
  }
  const auto of_one = make_objects<64>(one, bytes / 4), of_two = make_objects<64>(two, bytes / 4);
  const std::uint64_t reads = of_one.size() / 2;
  p.compare(
      {"resident", parameters, "ns", {goal_kind::ratio_at_most, 1.01}, "one replica"},
      [&] {
        return turn{read_ns(of_two, reads * 4), {}, 0};
      },
      [&] {
        return turn{read_ns(of_one, reads * 4), {}, 0};
      });
  p.compare(
      {"misses", parameters, "ns", {goal_kind::ratio_at_most, 1.03}, "one replica"},
      [&] {
        (void)two.evict_all();
        return turn{read_ns(of_two, reads / 4), {}, 0};
      },
      [&] {
        (void)one.evict_all();
        return turn{read_ns(of_one, reads / 4), {}, 0};
      });
  p.measure({"owner_memory", parameters, "of one replica", {goal_kind::value_at_most, 1.01}},
            double(two.stats().named_bytes()) / double(one.stats().named_bytes()));
}

// ---- an agent dies ----

/// A tenth of the operations write. Each thread has its share of the objects, so it knows what it wrote last.
template <std::size_t Bytes>
auto use(const std::vector<fm::ptr<blob<Bytes>>>& objects) {
  return [&objects](int thread) {
    const std::size_t share = objects.size() / threads, first = share * std::size_t(thread);
    return [&objects, share, first, random = std::mt19937_64(std::uint64_t(thread) + 1),
            versions = std::vector<std::uint32_t>(share)]() mutable {
      const std::size_t i = random() % share;
      if (random() % 10 == 0) {
        objects[first + i].write()->more[0] = ++versions[i];
        return true;
      }
      const auto pin = objects[first + i].read();
      return pin->number == first + i && pin->more[0] == versions[i];
    };
  };
}

/// When the heap told of something, in ns of now_ns.
class news {
 public:
  void operator()(const fm::agent_event& e) {
    const std::lock_guard lock(mutex_);
    at_[std::size_t(e.change)] = now_ns();
  }
  std::uint64_t await(fm::agent_change what) {
    for (;; std::this_thread::sleep_for(1ms)) {
      const std::lock_guard lock(mutex_);
      if (at_[std::size_t(what)] != 0) return at_[std::size_t(what)];
    }
  }

 private:
  std::mutex mutex_;
  std::array<std::uint64_t, 16> at_{};
};

struct outcome {
  double stall_ms = 0, stall_beyond_ms = 0, promoted_ms = 0, failed = 0, wrong = 0, mb_s = 0, share = 0;
};

// `how`: SIGKILL resets the connections, SIGSTOP lets the agent fall silent.
template <std::size_t Bytes>
outcome lose_one(program& p, const std::string& binary, const std::string& url, std::uint64_t objects, int how,
                 bool rests) {
  outcome result;
  const three_agents agents(p, binary, url, "4GiB");
  news told;
  fm::heap_options o = over(agents, std::max<std::uint64_t>(objects * frame_bytes<Bytes> / 4, 16 << 20), 2);
  o.on_agent_event = [&told](const fm::agent_event& e) { told(e); };
  fm::heap h(o);
  const auto all = make_objects<Bytes>(h, objects * Bytes);
  if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "writing everything back");
  std::optional<threads_at_work> u;
  if (!rests) u.emplace(threads, use(all));
  if (u) std::this_thread::sleep_for(1s);  // the window that is measured
  const double before = u ? u->rate(1s) : 0;
  if (u) (void)u->longest_ms();
  const std::uint64_t killed = now_ns();
  ::kill(agents.pid(2), how);
  const std::uint64_t lost = told.await(fm::agent_change::lost), rehomed = told.await(fm::agent_change::rehomed);
  if (u) std::this_thread::sleep_for(50ms);  // the stalled operations end
  result.stall_ms = u ? u->longest_ms() : double(rehomed - killed) * 1e-6;
  result.stall_beyond_ms = std::max(0.0, result.stall_ms - double(lost - killed) * 1e-6);
  result.promoted_ms = double(rehomed - lost) * 1e-6;
  const std::uint64_t joined_from = now_ns(), done_at = u ? u->done() : 0;
  const std::uint64_t bytes_at = h.stats().replicated_bytes;
  const std::uint64_t whole = told.await(fm::agent_change::replicated);
  const double seconds = double(whole - joined_from) * 1e-9;
  result.mb_s = double(h.stats().replicated_bytes - bytes_at) * 1e-6 / seconds;
  if (u) {
    result.share = double(u->done() - done_at) / (double(now_ns() - joined_from) * 1e-9) / before;
    result.failed = u->failed();
    result.wrong = u->wrong();
  }
  ::kill(agents.pid(2), SIGCONT);
  return result;
}

// ---- an agent is left ----

struct left {
  double mb_s = 0, share = 0, p999_before_ms = 0, p999_ms = 0, longest_ms = 0, failed = 0, wrong = 0;
};

// Each of three agents holds a third of the objects, of 1 KiB.
left leave_one(program& p, const std::string& binary, const std::string& url, std::uint64_t objects) {
  left result;
  const three_agents agents(p, binary, url, "8GiB");
  fm::heap h(over(agents, std::max<std::uint64_t>(objects * frame_bytes<1024> / 4, 16 << 20), 1));
  const auto all = make_objects<1024>(h, objects * 1024);
  if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "writing everything back");
  double before = 0;
  {
    threads_at_work u(threads, use(all));
    std::this_thread::sleep_for(1s);
    before = u.rate(3s);
    result.p999_before_ms = u.p999_ms();
    result.failed += u.failed(), result.wrong += u.wrong();
  }
  for (const auto& o : all) o.write()->more[0] = 0;  // as the threads expect it
  if (const fm::errc e = h.evict_all(); e != fm::errc::ok) throw fm::error(e, "writing everything back");
  threads_at_work u(threads, use(all));
  const std::uint64_t from = now_ns(), done = u.done(), bytes = h.stats().replicated_bytes;
  h.remove_agent(agents.urls()[1], std::chrono::minutes(30));
  const double seconds = double(now_ns() - from) * 1e-9;
  result.share = double(u.done() - done) / seconds / before;
  result.mb_s = double(h.stats().replicated_bytes - bytes) * 1e-6 / seconds;
  result.p999_ms = u.p999_ms();
  result.longest_ms = u.longest_ms();
  result.failed += u.failed(), result.wrong += u.wrong();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  program p("replicas", "What two replicas of each object cost, and what they save when an agent dies");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto objects = p.sized<std::uint64_t>(4'000'000, 100'000);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      if (p.wants("write_back") || p.wants("resident") || p.wants("misses") || p.wants("owner_memory"))
        price(p, binary, transport, url);
      const auto tell = [&](const char* how, const outcome& o, bool resets) {
        const std::vector<std::pair<std::string, std::string>> parameters{
            {"transport", transport}, {"how", how}, {"objects", std::to_string(objects)}};
        p.measure({"stall", parameters, "ms", resets ? goal{goal_kind::value_at_most, 1000} : goal{}}, o.stall_ms);
        p.measure({"stall_beyond", parameters, "ms", {goal_kind::value_at_most, 50}}, o.stall_beyond_ms);
        p.measure({"promoted", parameters, "ms", {}}, o.promoted_ms);
        p.measure({"failed", parameters, "operations", {goal_kind::value_at_most, 0}}, o.failed);
        p.measure({"wrong", parameters, "operations", {goal_kind::value_at_most, 0}}, o.wrong);
        p.measure({"rebuild_beside", parameters, "MB/s", {goal_kind::value_at_least, 80}}, o.mb_s);
        p.measure({"throughput_beside", parameters, "of before", {goal_kind::value_at_least, 0.7}}, o.share);
      };
      if (p.wants("stall") || p.wants("stall_beyond") || p.wants("promoted") || p.wants("rebuild_beside") ||
          p.wants("throughput_beside")) {
        tell("killed", lose_one<64>(p, binary, url, objects, SIGKILL, false), true);
        tell("silent", lose_one<64>(p, binary, url, objects, SIGSTOP, false), false);
      }
      if (p.wants("leave")) {
        const auto held = p.sized<std::uint64_t>(3 << 20, 30'000);
        const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport},
                                                                          {"objects", std::to_string(held)}};
        const left l = leave_one(p, binary, url, held);
        p.measure({"leave", parameters, "MB/s", {}}, l.mb_s);
        p.measure({"leave_throughput", parameters, "of before", {goal_kind::value_at_least, 0.8}}, l.share);
        p.measure({"leave_p999_beyond", parameters, "ms", {goal_kind::value_at_most, 5}}, l.p999_ms - l.p999_before_ms);
        p.measure({"leave_longest", parameters, "ms", {}}, l.longest_ms);
        p.measure({"leave_failed", parameters, "operations", {goal_kind::value_at_most, 0}}, l.failed);
        p.measure({"leave_wrong", parameters, "operations", {goal_kind::value_at_most, 0}}, l.wrong);
      }
      if (p.wants("rebuild_at_rest"))
        p.measure({"rebuild_at_rest", {{"transport", transport}}, "MB/s", {goal_kind::value_at_least, 300}},
                  lose_one<1024>(p, binary, url, objects / 8, SIGKILL, true).mb_s);
    }
  });
}
