// The surroundings that all parts of one agent share: its options, its clock, its load, and the word on which its
// maintenance thread sleeps.
// The agent's store owns the one object, which outlives all parts. Options are constant; everything else is
// thread-safe.
// Any part may call wake, under any lock.
#pragma once

#include "base/log.h"
#include "os/os.h"

#include <atomic>

#include "load_meter.h"
#include "options.h"

namespace fm::agent {

struct environment {
  explicit environment(const store_options& o) : options(o) {}
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  const store_options options;
  std::atomic<std::uint32_t> work{0};  ///< goes up when there may be something to maintain
  std::atomic<bool> drained{false};    ///< an administrator wants it to be empty: it takes nothing new

  [[nodiscard]] time_point now() const {
    return options.hooks.now != nullptr ? options.hooks.now(options.hooks.context) : clock::now();
  }
  /// The same as a number, for the wire; never zero.
  [[nodiscard]] std::uint64_t now_ns() const {
    const auto ns = std::chrono::nanoseconds(now().time_since_epoch()).count();
    return ns > 0 ? static_cast<std::uint64_t>(ns) : 1;
  }
  /// Work that nobody waits for rests between its steps; without threads it would keep whoever makes the steps waiting.
  [[nodiscard]] bool rests() const noexcept { return options.hooks.background || options.hooks.rests; }
  /// How busy the agent is (load_meter.h).
  [[nodiscard]] double busy() const {
    return options.hooks.busy != nullptr ? options.hooks.busy(options.hooks.context) : load_.busy(now());
  }
  /// Of what is logged about heaps and pools that come and go.
  [[nodiscard]] log_level heap_level() const { return options.log_heaps ? log_level::info : log_level::debug; }
  /// There may be something for the maintenance thread to do.
  void wake() noexcept {
    work.fetch_add(1);
    os::futex_wake(work, 1);
  }

 private:
  mutable load_meter load_;
};

}  // namespace fm::agent
