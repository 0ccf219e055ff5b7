// One of two agents is killed beside four threads: how fast survivors' objects are used afterwards, and whether the heap can
// still make objects. Each thread uses random objects of the agent that lives, and writes every tenth; the heap has
// as many objects again on the other agent, dirty ones among them.
#include <farmem/farmem.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "heap/heap_core.h"
#include "support/managed.h"
#include "support/threads_at_work.h"

namespace {

using namespace fm::bench;
using namespace std::chrono_literals;

constexpr int threads = 4;

struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

std::uint32_t agent_of(const fm::ptr<record>& object) {
  return fm::detail::tablet_info_of(object.slot()).agent.load(std::memory_order_relaxed);
}

/// A tenth of the operations write.
auto use(const std::vector<fm::ptr<record>>& objects) {
  return [&objects](int thread) {
    return [&objects, random = std::mt19937_64(std::uint64_t(thread) + 1),
            any = std::uniform_int_distribution<std::size_t>(0, objects.size() - 1)]() mutable {
      const fm::ptr<record>& object = objects[any(random)];
      if (random() % 10 == 0)
        ++object.write()->words[0];
      else
        keep(object->id);
      return true;
    };
  };
}

struct outcome {
  double before = 0, first_second = 0, second_second = 0, rehomed = 0;
  double failed = 0, not_made = 0;
};

outcome lose_one(const std::string& binary, const std::string& url, int core, std::uint64_t objects) {
  const std::vector<std::string> settings{"--memory", "4GiB", "--log-level", "error"};
  const agent lives(binary, url, core, settings);
  const agent dies(binary, url, core, settings);
  fm::heap_options o;
  o.cache = objects * frame_bytes<sizeof(record)> / 4;
  o.agents = {lives.url(), dies.url()};
  o.reconnect_within = 2s;
  std::atomic<bool> rehomed{false};
  o.on_agent_event = [&rehomed](const fm::agent_event& e) {
    if (e.change == fm::agent_change::rehomed) rehomed.store(true);
  };
  fm::heap h(o);
  std::vector<fm::ptr<record>> survivors, lost;
  for (std::uint64_t i = 0; i < objects; ++i) {
    fm::ptr<record> made = h.make<record>({.id = i});
    (agent_of(made) == 0 ? survivors : lost).push_back(std::move(made));
  }
  if (survivors.empty() || lost.empty()) throw fm::error(fm::errc::refused, "one of two agents has no object");
  for (const auto& object : lost) ++object.write()->words[1];
  outcome result;
  {
    threads_at_work u(threads, use(survivors));
    (void)u.rate(1s);
    result.before = u.rate(1s);
    ::kill(dies.pid(), SIGKILL);  // over shm and tcp alike, the kernel resets the connection at once
    result.first_second = u.rate(1s);
    result.second_second = u.rate(1s);
    for (int i = 0; i < 60 && !rehomed.load(); ++i) (void)u.rate(100ms);
    (void)u.rate(500ms);
    result.rehomed = u.rate(1s);
    result.failed = u.failed();
  }
  // Ten times what the cache holds.
  for (std::uint64_t i = 0; i < objects / 4 * 10; ++i) {
    try {
      (void)h.make<record>({.id = i});
    } catch (const fm::error& e) {
      if (result.not_made++ == 0) std::fprintf(stderr, "an object that is made: %s\n", e.what());
    }
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  program p("agent_loss", "One of two agents is killed: survivors' objects before and after");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto objects = p.sized<std::uint64_t>(400'000, 20'000);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const std::vector<std::pair<std::string, std::string>> parameters{{"transport", transport}};
      std::vector<outcome> all;
      for (int i = 0; i < p.sized(5, 1); ++i) all.push_back(lose_one(binary, url, p.agent_core(), objects));
      const auto row = [&](const char* name, auto&& ours, auto&& peer) {
        std::size_t next = 0, next_of_peer = 0;
        const auto at = [&all](std::size_t& i) -> const outcome& {
          return all[std::min(i++, all.size()) % all.size()];
        };
        p.compare(
            {name, parameters, "operations/s", {goal_kind::ratio_at_least, 0.9}, "before"},
            [&] {
              return turn{ours(at(next)), {}, 0};
            },
            [&] {
              return turn{peer(at(next_of_peer)), {}, 0};
            },
            int(all.size()));
      };
      const auto before = [](const outcome& r) { return r.before; };
      row(
          "first_second", [](const outcome& r) { return r.first_second; }, before);
      row(
          "second_second", [](const outcome& r) { return r.second_second; }, before);
      row(
          "rehomed", [](const outcome& r) { return r.rehomed; }, before);
      double failed = 0, not_made = 0;
      for (const outcome& r : all) failed += r.failed, not_made += r.not_made;
      p.measure({"failed", parameters, "operations", {goal_kind::value_at_most, 0}}, failed);
      p.measure({"not_made", parameters, "objects", {goal_kind::value_at_most, 0}}, not_made);
    }
  });
}
