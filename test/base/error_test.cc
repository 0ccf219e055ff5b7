// Errors: a name for every code, messages that carry the thing that failed, and results.
#include "base/base.h"
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>

TEST_CASE("every error code has a name of its own") {
  std::set<std::string> names;
  for (unsigned short number = 0; number <= static_cast<unsigned short>(fm::errc::conflict); ++number) {
    const std::string name(fm::to_string(static_cast<fm::errc>(number)));
    CAPTURE(number, name);
    CHECK(name != "unknown_error");
    CHECK(names.insert(name).second);
  }
}

TEST_CASE("a code that this build does not know is named unknown, not undefined") {
  CHECK(fm::to_string(static_cast<fm::errc>(65'535)) == "unknown_error");
}

TEST_CASE("the numbers of the codes are those of the wire") {
  CHECK(static_cast<int>(fm::errc::ok) == 0);
  CHECK(static_cast<int>(fm::errc::bad_frame) == 11);
  CHECK(static_cast<int>(fm::errc::agent_lost) == 15);
  CHECK(static_cast<int>(fm::errc::stale) == 21);
  CHECK(static_cast<int>(fm::errc::scope_misuse) == 27);
  CHECK(static_cast<int>(fm::errc::wrong_type) == 28);
  CHECK(static_cast<int>(fm::errc::conflict) == 29);
}

TEST_CASE("an error says its code's name and what failed") {
  const fm::error e(fm::errc::unreachable, "tcp://10.0.0.2:7070");
  CHECK(e.code() == fm::errc::unreachable);
  CHECK(std::string(e.what()) == "unreachable: tcp://10.0.0.2:7070");
}

TEST_CASE("value_or_throw returns the value or throws the error that the result holds") {
  CHECK(fm::value_or_throw(fm::result<int>(7)) == 7);
  CHECK(*fm::value_or_throw(fm::result<std::unique_ptr<int>>(std::make_unique<int>(8))) == 8);
  CHECK_NOTHROW(fm::value_or_throw(fm::result<void>()));
  try {
    fm::value_or_throw(fm::result<int>(fm::fail(fm::errc::not_found, "region 12")));
    FAIL("no error was thrown");
  } catch (const fm::error& e) {
    CHECK(e.code() == fm::errc::not_found);
    CHECK(std::string(e.what()) == "not_found: region 12");
  }
}

TEST_CASE("rounding and powers of two") {
  using namespace fm::literals;
  CHECK(fm::detail::round_up(0, 4096) == 0);
  CHECK(fm::detail::round_up(1, 4096) == 4096);
  CHECK(fm::detail::round_up(4096, 4096) == 4096);
  CHECK(fm::detail::round_down(8191, 4096) == 4096);
  CHECK_FALSE(fm::detail::is_power_of_two(0));
  CHECK(fm::detail::is_power_of_two(1));
  CHECK(fm::detail::is_power_of_two(1_TiB));
  CHECK_FALSE(fm::detail::is_power_of_two(1_TiB + 1));
  CHECK(1_GiB == 1024 * 1_MiB);
}
