// Agents that are full: reads beside one that has room, what an object that cannot be made costs its thread, the
// collections that run in vain meanwhile, and how soon objects can be made again once the program lets go of some.
#include <farmem/farmem.h>

#include <array>
#include <random>
#include <thread>

#include "support/managed.h"

namespace {

using namespace fm::bench;
using namespace std::chrono_literals;

constexpr int readers = 4;
constexpr auto given_up_after = 60s;

struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

/// A heap of which the agent has so much memory.
struct filled {
  filled(const std::string& binary, const std::string& url, int core, const std::string& memory, std::uint64_t cache)
      : at(binary, url, core, {"--memory", memory, "--region", "1MiB", "--log-level", "error"}), h([&] {
          fm::heap_options o;
          o.cache = cache;
          o.agents = {at.url()};
          o.memory_within = 1s;
          return o;
        }()) {}
  /// Makes objects until there are so many, or the agent is full. Whether it is.
  bool fill(std::uint64_t objects) {
    try {
      while (all.size() < objects) all.push_back(h.make<record>({.id = all.size()}));
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::agent_full && e.code() != fm::errc::quota_exceeded) throw;
      return true;
    }
    return false;
  }
  [[nodiscard]] turn read(std::uint64_t each) const {
    return rate(double(each) * readers, 1e6, [&] {
      std::vector<std::thread> threads;
      for (int t = 0; t < readers; ++t)
        threads.emplace_back([&, t] {
          std::mt19937_64 random(std::uint64_t(t) + 1);
          for (std::uint64_t i = 0; i < each; ++i) keep(all[random() % all.size()]->id);
        });
      for (std::thread& t : threads) t.join();
    });
  }

  agent at;
  fm::heap h;
  std::vector<fm::ptr<record>> all;
};

}  // namespace

int main(int argc, char** argv) {
  program p("full_agents", "A heap whose agent is full, against one whose agent has room");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto mib = p.sized<std::uint64_t>(128, 16);
  const auto reads = p.sized<std::uint64_t>(200'000, 5'000);
  const auto refused = p.sized(5, 1);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
      const std::uint64_t cache = (mib << 20) / 8;
      filled full(binary, url, p.agent_core(), std::to_string(mib) + "MiB", cache);
      if (!full.fill(~std::uint64_t{0})) throw fm::error(fm::errc::refused, "the agent does not get full");
      filled other(binary, url, p.agent_core(), std::to_string(4 * mib) + "MiB", cache);
      if (other.fill(full.all.size())) throw fm::error(fm::errc::refused, "the other agent is full");
      p.compare(
          {"reads", parameters, "M/s", {goal_kind::ratio_at_least, 0.5}, "an agent with room"},
          [&] { return full.read(reads); }, [&] { return other.read(reads); });

      const std::uint64_t collections = full.h.stats().collections;
      const std::uint64_t begin = now_ns();
      for (int i = 0; i < refused; ++i)
        if (!full.fill(full.all.size() + 1'000'000)) throw fm::error(fm::errc::refused, "the agent is full no more");
      const double seconds = double(now_ns() - begin) * 1e-9;
      p.measure({"refused_after", parameters, "s"}, seconds / refused);
      p.measure({"collections", parameters, "1/s"}, double(full.h.stats().collections - collections) / seconds);

      full.all.resize(full.all.size() / 2);
      const std::uint64_t from = now_ns();
      for (const std::size_t kept = full.all.size(); full.all.size() == kept;) {
        if (now_ns() - from > std::uint64_t(std::chrono::nanoseconds(given_up_after).count()))
          throw fm::error(fm::errc::timed_out, "the heap does not recover");
        (void)full.fill(kept + 1);
      }
      p.measure({"makes_again_after", parameters, "s"}, double(now_ns() - from) * 1e-9);
    }
  });
}
