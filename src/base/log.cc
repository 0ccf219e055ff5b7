// The sink of log lines, and spdlog's default logger where the program has set none; see log.h.
//
// Invariant: a sink that was set once is never freed, so that whoever writes a line needs no lock, and a fork leaves
// none behind.
#include "base/log.h"

#include <spdlog/spdlog.h>

#include <atomic>

namespace fm {

namespace {

struct kept_sink {
  log_sink sink;
  kept_sink* next;
};
constinit std::atomic<kept_sink*> kept{nullptr};  ///< all that were ever set
constinit std::atomic<const kept_sink*> current{nullptr};
constinit std::atomic<log_level> least_level{log_level::debug};

spdlog::level::level_enum in_spdlog(log_level l) noexcept {
  switch (l) {
    case log_level::debug: return spdlog::level::debug;
    case log_level::info: return spdlog::level::info;
    case log_level::warn: return spdlog::level::warn;
    case log_level::error: return spdlog::level::err;
    case log_level::off: break;
  }
  return spdlog::level::off;
}

}  // namespace

void set_log_sink(log_sink sink) {
  if (!sink) return current.store(nullptr);
  auto* const k = new kept_sink{std::move(sink), kept.load()};
  while (!kept.compare_exchange_weak(k->next, k)) {
  }
  current.store(k);
}

void set_log_level(log_level least) noexcept { least_level.store(least, std::memory_order_relaxed); }

namespace log {

bool wanted(log_level level) noexcept {
  if (level < least_level.load(std::memory_order_relaxed)) return false;
  return current.load(std::memory_order_acquire) != nullptr ||
         spdlog::default_logger_raw()->should_log(in_spdlog(level));
}

void write(log_level level, std::string_view text) noexcept {
  try {
    if (const kept_sink* k = current.load(std::memory_order_acquire)) return k->sink(level, text);
    spdlog::default_logger_raw()->log(in_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {  // a sink that throws has had its line
  }
}

void prepare() noexcept { (void)spdlog::default_logger_raw(); }

}  // namespace log
}  // namespace fm
