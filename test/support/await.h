// Waiting for what another thread does: not for ever, and without taking the processor from those who do it.
#pragma once

#include "base/base.h"

#include <functional>
#include <thread>

namespace fm::test {

constexpr auto patience = std::chrono::minutes(10);

/// Until `what()` holds; false when it does not within that time. It is asked all the time at first, so that what holds
/// for a moment is seen, and a thousand times a second later: a question such as stats() is not cheap.
inline bool await(const std::function<bool()>& what) {
  const time_point begin = clock::now();
  while (!what()) {
    const auto waited = clock::now() - begin;
    if (waited >= patience) return false;
    if (waited < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace fm::test
