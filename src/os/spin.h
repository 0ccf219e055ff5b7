// Polling before sleeping, where it pays: one place that waits learns whether what it waited for came while it polled.
//
// Invariant: a place whose spins are in vain stops spinning, but for one wait in spin_probe_every that tries again, and
// for fewer as long as those are in vain, too. So on a machine without a core to spare waiting costs no more than
// sleeping, and on an idle one no more than a poll.
//
// A place is shared by the threads that wait there. It is written only while it learns, and never on a hit path.
#pragma once

#include "base/limits.h"
#include <atomic>
#include <cstdint>
#include <farmem/base/units.h>

namespace fm::os {

class spin_place {
 public:
  /// Whether the wait that begins now is to spin.
  [[nodiscard]] bool lets_spin() noexcept {
    if (credit_.load(std::memory_order_relaxed) >= on_from) return true;
    thread_local std::uint32_t waits = 0;
    return (++waits & (probe_every_.load(std::memory_order_relaxed) - 1)) == 0;
  }
  /// It came while the caller spun.
  void paid() noexcept {
    const std::uint32_t c = credit_.load(std::memory_order_relaxed);
    if (c >= most) return;
    credit_.store(c < on_from ? c + probe_gain : c + 1, std::memory_order_relaxed);
    if (c < on_from) probe_every_.store(detail::limits::spin_probe_every, std::memory_order_relaxed);
  }
  void in_vain() noexcept {
    const std::uint32_t c = credit_.load(std::memory_order_relaxed);
    if (c != 0) return credit_.store(c < loss ? 0 : c - loss, std::memory_order_relaxed);
    const std::uint32_t every = probe_every_.load(std::memory_order_relaxed);
    if (every < detail::limits::spin_probe_rarest) probe_every_.store(2 * every, std::memory_order_relaxed);
  }

 private:
  // A spin in vain costs about twice what one that pays saves; two probes in a row that pay switch it on again.
  static constexpr std::uint32_t most = 16, on_from = 8, loss = 2, probe_gain = 4;
  std::atomic<std::uint32_t> credit_{most};
  std::atomic<std::uint32_t> probe_every_{detail::limits::spin_probe_every};
};

/// One wait at a place: `while (!ready()) if (!s.again()) sleep();`. At most `at_most` long.
template <class Clock>
class basic_spin {
 public:
  basic_spin(spin_place& place, duration at_most) noexcept : place_(place), at_most_(at_most) {}
  basic_spin(const basic_spin&) = delete;
  basic_spin& operator=(const basic_spin&) = delete;
  ~basic_spin() {
    if (over_ || polls_ == 0) return;
    // A thread that lost its core meanwhile finds what it waits for when it is back: it did not come while it spun.
    if (polls_ >= detail::limits::spin_polls_per_look && Clock::now() - begin_ > 2 * at_most_)
      place_.in_vain();
    else
      place_.paid();
  }

  /// False: sleep now, and from now on.
  bool again() noexcept {
    if (over_) return false;
    if (polls_ == 0) {
      if (at_most_ <= duration{} || !place_.lets_spin()) return !(over_ = true);
      begin_ = Clock::now();
    } else if (polls_ % detail::limits::spin_polls_per_look == 0 && Clock::now() - begin_ >= at_most_) {
      place_.in_vain();
      return !(over_ = true);
    }
    ++polls_;
    detail::cpu_relax();
    return true;
  }

 private:
  spin_place& place_;
  const duration at_most_;
  std::uint32_t polls_ = 0;
  bool over_ = false;
  time_point begin_{};
};

using spin = basic_spin<clock>;

/// How long to sleep where nobody wakes the sleeper: longer each time that it was too early.
class nap {
 public:
  nap(duration first, duration most) noexcept : first_(first), most_(most), next_(first) {}
  duration next() noexcept {
    const duration n = next_;
    next_ = n * 2 < most_ ? n * 2 : most_;
    return n;
  }
  /// What it slept for came.
  void reset() noexcept { next_ = first_; }

 private:
  duration first_, most_, next_;
};

}  // namespace fm::os
