// Many programs on one agent and few cores: they are slower together, and every one ends right.
#include <farmem/farmem.h>

#include <array>

#include "program/live_agent.h"

using namespace agent_test;
using namespace fm::literals;

namespace {

struct numbered {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

/// Makes several times what its cache holds, and reads all of it.
int owner(const std::string& url, std::uint64_t objects) {
  try {
    // Deadlines are guards: bench/overload has the default ones.
    constexpr auto guard = std::chrono::minutes(5);
    fm::heap h({.cache = 1_MiB,
                .agents = {url},
                .segment = 32_KiB,
                .access_within = guard,
                .memory_within = guard,
                .connect_within = guard});
    std::vector<fm::ptr<numbered>> all;
    for (std::uint64_t i = 0; i < objects; ++i) all.push_back(h.make<numbered>({.id = i}));
    for (std::uint64_t i = 0; i < objects; ++i)
      if (all[i]->id != i) return 2;
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "an owner: %s\n", e.what());
    return 1;
  }
}

}  // namespace

TEST_CASE("forty programs on one agent over tcp all end right", "[agent]") {
  live_agent a({"--memory", "1GiB", "--region", "1MiB"});
  std::vector<pid_t> owners;
  for (int i = 0; i < 40; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(owner(a.url("tcp"), 12'000));
    owners.push_back(child);
  }
  for (const pid_t child : owners) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO(agent_test::text_of(a.log()));
    CHECK(status == 0);
  }
}
