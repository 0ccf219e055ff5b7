// What all parts of one agent share: its options, its clock, and the word that its maintenance thread sleeps on.
// Outlives all parts; thread-safe.
#pragma once

#include "os/os.h"
#include <spdlog/common.h>

#include <atomic>

#include "options.h"

namespace fm::store::node {

struct environment {
  explicit environment(const store_options& o) : options(o) {}
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  const store_options options;
  std::atomic<std::uint32_t> work{0};  ///< goes up when there may be something to maintain

  [[nodiscard]] time_point now() const {
    return options.hooks.now != nullptr ? options.hooks.now(options.hooks.context) : clock::now();
  }
  /// Of what is logged about heaps and pools that come and go.
  [[nodiscard]] spdlog::level::level_enum heap_level() const {
    return options.log_heaps ? spdlog::level::info : spdlog::level::debug;
  }
  /// There may be something for the maintenance thread to do.
  void wake() noexcept {
    work.fetch_add(1);
    os::futex_wake(work, 1);
  }
};

}  // namespace fm::store::node
