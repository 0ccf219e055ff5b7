// Waiting for what another thread does, without sleeping and not for ever.
#pragma once

#include "base/base.h"

#include <functional>
#include <thread>

namespace fm::test {

constexpr auto patience = std::chrono::minutes(10);

/// Until `what()` holds; false when it does not within that time.
inline bool await(const std::function<bool()>& what) {
  const time_point until = clock::now() + patience;
  while (!what()) {
    if (clock::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace fm::test
