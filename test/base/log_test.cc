// Where lines go: the program's sink or spdlog's default logger, from the program's level on.
#include "base/log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace log_ = fm::log;
using fm::log_level;

namespace {

/// Restores the process's logger, sink and level when a test ends.
struct as_before {
  std::shared_ptr<spdlog::logger> logger = spdlog::default_logger();
  ~as_before() {
    fm::set_log_sink({});
    fm::set_log_level(log_level::debug);
    spdlog::set_default_logger(logger);
  }
};

}  // namespace

TEST_CASE("lines go to spdlog's default logger, to the program's sink, and back") {
  const as_before restored;
  std::ostringstream text;
  auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger->set_pattern("%l %v");
  logger->set_level(spdlog::level::info);
  spdlog::set_default_logger(logger);
  log_::debug("no line {}", 0);
  log_::warn("line {}", 1);
  CHECK(text.str() == "warning line 1\n");

  std::vector<std::pair<log_level, std::string>> lines;
  fm::set_log_sink([&](log_level l, std::string_view line) { lines.emplace_back(l, line); });
  log_::debug("line {}", 2);  // spdlog's level decides about spdlog alone
  log_::error("line {}", 3);
  CHECK(text.str() == "warning line 1\n");
  CHECK(lines ==
        std::vector<std::pair<log_level, std::string>>{{log_level::debug, "line 2"}, {log_level::error, "line 3"}});

  fm::set_log_sink({});
  log_::info("line {}", 4);
  CHECK(text.str() == "warning line 1\ninfo line 4\n");
  CHECK(lines.size() == 2);
}

TEST_CASE("no line is made below the program's level, and none at all when it is off") {
  const as_before restored;
  std::vector<log_level> levels;
  fm::set_log_sink([&](log_level l, std::string_view) { levels.push_back(l); });
  const auto one_of_each = [] {
    log_::debug("line");
    log_::info("line");
    log_::warn("line");
    log_::error("line");
  };
  fm::set_log_level(log_level::warn);
  CHECK_FALSE(log_::wanted(log_level::info));
  one_of_each();
  CHECK(levels == std::vector{log_level::warn, log_level::error});
  fm::set_log_level(log_level::off);
  one_of_each();
  CHECK(levels.size() == 2);
}

TEST_CASE("a sink that throws loses its line alone") {
  const as_before restored;
  int lines = 0;
  fm::set_log_sink([&](log_level, std::string_view) {
    if (++lines == 1) throw std::runtime_error("no");
  });
  log_::warn("line");
  log_::warn("line");
  CHECK(lines == 2);
}
