// An agent in this process behind tcp://, whose one-sided reads a test can hold back: so that fetches are in flight for as
// long as it wants, and "while the fetch is in flight" is a moment that it can stand in.
#pragma once

#include <condition_variable>
#include <farmem/farmem.h>
#include <mutex>

#include "support/served_store.h"

namespace handles_test {

class held_agent final : public fm::test::served_store {
 public:
  held_agent() : served_store({.memory_bytes = 128ull << 20, .region_bytes = 1ull << 20}) { serve(); }
  ~held_agent() override { die(); }
  held_agent(const held_agent&) = delete;
  held_agent& operator=(const held_agent&) = delete;

  /// From now on reads wait at the agent, or go on.
  void hold(bool on) {
    const std::lock_guard lock(mutex_);
    held_ = on;
    changed_.notify_all();
  }
  /// Waits until a read is being held; false when none came.
  bool until_one_is_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(10), [this] { return waiting_ != 0; });
  }
  /// Nobody answers any more.
  void die() {
    hold(false);
    stop();
  }

  std::byte* memory(fm::fabric::peer& p, const fm::fabric::remote& where, std::uint64_t bytes,
                    fm::fabric::access how) noexcept override {
    if (how == fm::fabric::access::read) {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      // A test that forgets it fails, and does not hang.
      changed_.wait_for(lock, std::chrono::minutes(10), [this] { return !held_; });
      --waiting_;
    }
    return served_store::memory(p, where, bytes, how);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
};

}  // namespace handles_test
