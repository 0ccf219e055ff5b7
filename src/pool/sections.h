// Which one-sided reads of this process may still be in flight, so that an epoch can be passed: a read is counted in
// the current one of two phases; passing turns the phase and waits until the other one has run dry. And the counters of
// what reads did, in the same lines, since a read has those at hand.
//
// Invariant owned here: when pass() returns true, every section that was open when it turned the phase has been closed.
// agent_client passes; reader opens sections.
#pragma once

#include "base/base.h"
#include "os/os.h"
#include <array>
#include <atomic>

namespace fm::pool_detail {

/// A number for the calling thread, from 0.
inline std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

class sections {
 public:
  struct alignas(detail::cache_line_bytes) stripe {
    std::array<std::atomic<std::uint32_t>, 2> open{};
    std::atomic<std::uint64_t> direct{0}, corrected{0}, torn{0}, moved{0};
  };
  static constexpr std::uint32_t stripe_count = 32;

  /// An open section. Cheap: two atomic additions in a line that few threads share.
  class guard {
   public:
    explicit guard(sections& s) noexcept : sections_(s), stripe_(s.mine()) {
      for (;;) {
        phase_ = s.phase_.load(std::memory_order_seq_cst);
        stripe_.open[phase_].fetch_add(1, std::memory_order_seq_cst);
        if (s.phase_.load(std::memory_order_seq_cst) == phase_) return;
        leave();  // it turned in between: this one might not be waited for
      }
    }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;
    ~guard() { leave(); }

   private:
    // Counts down, then looks whether somebody waits; who waits says so, then looks at the count.
    void leave() noexcept {
      if (stripe_.open[phase_].fetch_sub(1, std::memory_order_seq_cst) == 1 &&
          sections_.waited_for_.load(std::memory_order_seq_cst))
        os::futex_wake(stripe_.open[phase_], 1);
    }
    sections& sections_;
    stripe& stripe_;
    std::uint32_t phase_ = 0;
  };

  [[nodiscard]] stripe& mine() noexcept { return stripes_[thread_number() % stripe_count]; }
  [[nodiscard]] const std::array<stripe, stripe_count>& all() const noexcept { return stripes_; }

  /// Turns the phase, and waits for the sections that were open. False at the deadline: then not all have ended, and
  /// the next call goes on waiting before it turns. One caller at a time.
  bool pass(time_point deadline) noexcept {
    if (waiting_ && !wait(deadline)) return false;
    phase_.store(phase_.load(std::memory_order_relaxed) ^ 1, std::memory_order_seq_cst);
    waiting_ = true;
    return wait(deadline);
  }

 private:
  bool wait(time_point deadline) noexcept {
    const std::uint32_t old = phase_.load(std::memory_order_relaxed) ^ 1;
    waited_for_.store(true, std::memory_order_seq_cst);
    bool in_time = true;
    for (stripe& s : stripes_)
      for (std::uint32_t n; in_time && (n = s.open[old].load(std::memory_order_seq_cst)) != 0;)
        in_time = os::futex_wait(s.open[old], n, deadline) || clock::now() < deadline;
    waited_for_.store(false, std::memory_order_seq_cst);
    waiting_ = !in_time;
    return in_time;
  }

  std::array<stripe, stripe_count> stripes_{};
  std::atomic<std::uint32_t> phase_{0};
  std::atomic<bool> waited_for_{false};
  bool waiting_ = false;
};

}  // namespace fm::pool_detail
