// An agent in the test's own process that loses messages, loses answers, hangs and dies when it is told to.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "fixture.h"
#include "support/served_store.h"

namespace gc_test {

inline fm::agent::store_options agent_options() {
  fm::agent::store_options o;
  o.memory_bytes = 64_MiB;
  o.region_bytes = 1_MiB;
  return o;
}

// An agent whose messages a test can meddle with.
class meddled_agent final : public fm::test::served_store {
 public:
  explicit meddled_agent(const std::string& at = "tcp://127.0.0.1:0",
                         const fm::agent::store_options& options = agent_options())
      : served_store(options) {
    serve(at);
  }
  ~meddled_agent() override { die(); }
  meddled_agent(const meddled_agent&) = delete;
  meddled_agent& operator=(const meddled_agent&) = delete;

  enum class meddling : std::uint8_t { none, lose_message, lose_answer, hang, seem_busy };
  /// The next message of this type is lost with its connection, or its answer is, or it waits for let_go. Or answers to
  /// trace messages say that there is more to trace, until let_go: the cycle goes on, and so does all else.
  void meddle(fm::protocol::message_type type, meddling how) {
    const std::lock_guard lock(mutex_);
    type_ = type;
    how_ = how;
    met_ = false;
  }
  /// Whether the message came; waits for it.
  bool met() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(10), [this] { return met_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    how_ = meddling::none;
    changed_.notify_all();
  }
  void die() {
    let_go();
    stop();
  }

  fm::errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    meddling how = meddling::none;
    bool busy = false;
    {
      std::unique_lock lock(mutex_);
      busy = type_of(payload) == type_ && how_ == meddling::seem_busy;
      if (type_of(payload) == type_ && how_ != meddling::none && !met_) {
        met_ = true;
        how = how_;
        changed_.notify_all();
        if (how == meddling::hang)
          changed_.wait_for(lock, std::chrono::minutes(10), [this] { return how_ == meddling::none; });
      }
    }
    if (how == meddling::lose_message) return lose(p, "the test loses a message");
    const fm::errc e = served_store::message(p, payload, out);
    const std::uint32_t no = 0;
    constexpr std::size_t at = sizeof(fm::protocol::answer_head) + offsetof(fm::protocol::trace_answer, idle);
    if (busy && out.payload.size() >= at + sizeof no) std::memcpy(out.payload.data() + at, &no, sizeof no);
    return how == meddling::lose_answer ? lose(p, "the test loses an answer") : e;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  fm::protocol::message_type type_ = fm::protocol::message_type::renew;
  meddling how_ = meddling::none;
  bool met_ = false;
};
using meddling = meddled_agent::meddling;

inline fm::heap_options over(const std::vector<std::string>& agents) {
  auto o = small();
  o.agents = agents;
  o.access_within = o.memory_within = std::chrono::seconds(20);
  return o;
}

}  // namespace gc_test
