// Many programs on one agent, together and one after the other: what they cost in time and in CPU beyond their own work. Each
// makes several times what its cache holds, and reads it once.
#include <farmem/farmem.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "support/managed.h"

namespace {

using namespace fm::bench;

struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

int owner(const std::string& url, std::uint64_t objects) {
  try {
    fm::heap h({.cache = std::uint64_t{16} << 20, .agents = {url}});
    std::vector<fm::ptr<record>> all;
    all.reserve(objects);
    for (std::uint64_t i = 0; i < objects; ++i) all.push_back(h.make<record>({.id = i}));
    for (std::uint64_t i = 0; i < objects; ++i)
      if (all[i]->id != i) return 2;
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "an owner: %s\n", e.what());
    return 1;
  }
}

/// Runs `owners` of them, so many at a time. This program has had no heap, so each is a child that may have one.
void run_owners(const std::string& url, int owners, int at_a_time, std::uint64_t objects) {
  int running = 0;
  const auto wait_for_one = [&] {
    int status = 0;
    if (::wait(&status) < 0 || status != 0) throw fm::error(fm::errc::refused, "an owner failed");
    --running;
  };
  for (int i = 0; i < owners; ++i) {
    if (running == at_a_time) wait_for_one();
    const pid_t child = ::fork();
    if (child < 0) throw fm::error(fm::errc::out_of_memory, "fork");
    if (child == 0) {
      cpu_set_t all;
      CPU_ZERO(&all);
      for (int c = 0; c < core_count(); ++c) CPU_SET(std::size_t(c), &all);
      ::sched_setaffinity(0, sizeof all, &all);
      ::_exit(owner(url, objects));
    }
    ++running;
  }
  while (running != 0) wait_for_one();
}

}  // namespace

int main(int argc, char** argv) {
  program p("overload", "Many programs on one agent, against the same programs one after the other");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  std::uint64_t only = 0;
  p.option("--owners", only, "measure so many programs only; 0: 4, 16 and 40");
  p.parse(argc, argv);
  const auto objects = p.sized<std::uint64_t>(200'000, 20'000);
  return p.run([&] {
    for (const auto& [transport, url] : transports())
      for (const int owners : {4, 16, 40}) {
        if (only != 0 && std::uint64_t(owners) != only) continue;
        const agent a(binary, url, -1, {"--memory", "8GiB", "--connections", "1024", "--log-level", "warning"});
        const std::vector<std::pair<std::string, std::string>> parameters{{"owners", std::to_string(owners)},
                                                                          {"transport", transport}};
        const auto seconds = [&](int at_a_time) {
          const std::uint64_t begin = now_ns();
          run_owners(a.url(), owners, at_a_time, objects);
          return turn{double(now_ns() - begin) / 1e9, {}, 0};
        };
        const auto cpu = [&](int at_a_time) {
          const double begin = cpu_seconds_with({a.pid()});
          run_owners(a.url(), owners, at_a_time, objects);
          return turn{cpu_seconds_with({a.pid()}) - begin, {}, 0};
        };
        const char* const peer = "one after the other";
        // 40 owners want 640 MiB of cache on two cores: it is recorded how they end, and what that costs.
        goal wanted;
        if (owners <= 16) wanted = {goal_kind::ratio_at_most, 1.3};
        p.compare(
            {"time", parameters, "s", wanted, peer}, [&] { return seconds(owners); }, [&] { return seconds(1); }, 3);
        p.compare(
            {"cpu", parameters, "s", wanted, peer}, [&] { return cpu(owners); }, [&] { return cpu(1); }, 3);
      }
  });
}
