// An agent in this process behind tcp://, whose one-sided reads a test can hold back: so that fetches are in flight for as
// long as it wants, and "while the fetch is in flight" is a moment that it can stand in.
#pragma once

#include <condition_variable>
#include <farmem/farmem.h>
#include <mutex>

namespace handles_test {

class held_agent final : public fm::fabric::service {
 public:
  held_agent()
      : store_(fm::store::store::create({.memory_bytes = 128ull << 20, .region_bytes = 1ull << 20})),
        listener_(fm::fabric::listen("tcp://127.0.0.1:0", {}, *this)) {}
  ~held_agent() override {
    hold(false);
    listener_.reset();
  }

  [[nodiscard]] const std::string& url() const { return listener_->url(); }
  /// From now on reads wait at the agent, or go on.
  void hold(bool on) {
    const std::lock_guard lock(mutex_);
    held_ = on;
    changed_.notify_all();
  }
  /// Waits until a read is being held; false when none came.
  bool until_one_is_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return waiting_ != 0; });
  }
  /// Nobody answers any more.
  void die() {
    hold(false);
    listener_.reset();
  }

  fm::errc connected(fm::fabric::peer& p) noexcept override { return store_->connected(p); }
  void disconnected(fm::fabric::peer& p) noexcept override { store_->disconnected(p); }
  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    return store_->message(p, payload, out);
  }
  std::byte* memory(fm::fabric::peer& p, const fm::fabric::remote& where, std::uint64_t bytes,
                    fm::fabric::access how) noexcept override {
    if (how == fm::fabric::access::read) {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      // A test that forgets it fails, and does not hang.
      changed_.wait_for(lock, std::chrono::seconds(30), [this] { return !held_; });
      --waiting_;
    }
    return store_->memory(p, where, bytes, how);
  }
  void memory_done(fm::fabric::peer& p, std::uint32_t region) noexcept override { store_->memory_done(p, region); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
  std::unique_ptr<fm::store::store> store_;
  std::unique_ptr<fm::fabric::listener> listener_;
};

}  // namespace handles_test
