#include <farmem/farmem.h>
#include <farmem/fmt.h>

#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {
struct formatted {
  int value = 0;
};
}  // namespace

TEST_CASE("strings are formatted as their text, also when they are remote") {
  fm::heap h({.cache = 2_MiB, .local_memory = 64_MiB, .local_region = 1_MiB});
  const fm::string s(h, "text");
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(fmt::format("{}", s) == "text");
  REQUIRE(fmt::format("[{:>6}|{:.2}]", s, s) == "[  text|te]");
  REQUIRE(fmt::format("{}", fm::string()) == "null");
}

TEST_CASE("handles and error codes are formatted") {
  fm::heap h({.cache = 2_MiB, .local_memory = 64_MiB, .local_region = 1_MiB});
  const auto p = h.make<formatted>();
  REQUIRE(fmt::format("{}", p) == fmt::format("slot {:#x}", p.slot()));
  REQUIRE(fmt::format("{:>6}", fm::ptr<const formatted>()) == "  null");
  REQUIRE(fmt::format("{:<12}|", fm::errc::agent_lost) == "agent_lost  |");
}
