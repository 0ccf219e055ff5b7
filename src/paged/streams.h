// Sequential streams: found from the misses, and what to fetch for them before it is touched. Of what is read ahead,
// the first block is not mapped: its touch is noticed, and says that the stream goes on, while the rest of the window
// is still to be used.
#pragma once

#include "os/os.h"
#include "paged_limits.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace fm::detail {

/// Pages to fetch before they are touched.
struct ahead_job {
  std::uint64_t first = 0;
  std::uint64_t pages = 0;
  bool write = false;   ///< the stream writes
  bool stream = false;  ///< of a stream: the first block is a trigger. Otherwise somebody asked for all of them
};

/// Where streams are going. Guesses only: lost updates between threads do no harm.
class stream_table {
 public:
  /// `window_max`: pages, 0: no reading ahead; `block`: pages of the largest block.
  stream_table(std::uint64_t window_max, std::uint64_t block) : window_max_(window_max), block_(block) {}

  /// Somebody began to use [first, first + pages), which was absent or a trigger. True when `job` should be done.
  bool advance(std::uint64_t first, std::uint64_t pages, bool write, ahead_job& job) noexcept {
    if (window_max_ == 0) return false;
    const std::uint64_t end = first + pages;
    for (stream& s : streams_) {
      const std::uint64_t next = s.next.load(std::memory_order_relaxed);
      if (next == 0 || first >= next + pages + block_) continue;
      if (first < next) {
        // What is being read ahead, and was not there in time, is no new stream.
        if (first + s.window.load(std::memory_order_relaxed) >= next) return false;
        continue;
      }
      const std::uint64_t run = s.run.load(std::memory_order_relaxed) + 1;
      s.run.store(run, std::memory_order_relaxed);
      if (run < paged_limits::stream_run_min) {
        s.next.store(end, std::memory_order_relaxed);
        return false;
      }
      // Doubles with every step: from two blocks, or what the stream has shown so far.
      const std::uint64_t before = s.window.load(std::memory_order_relaxed);
      const std::uint64_t window = std::min(std::max({2 * block_, 2 * before}), window_max_);
      const std::uint64_t ahead_end = s.end.load(std::memory_order_relaxed);
      const std::uint64_t from = ahead_end > end && ahead_end <= end + 2 * window_max_ ? ahead_end : end;
      job = {from, window, write, true};
      s.window.store(window, std::memory_order_relaxed);
      s.next.store(from, std::memory_order_relaxed);
      s.end.store(from + window, std::memory_order_relaxed);
      return true;
    }
    stream& s = streams_[turn_.fetch_add(1, std::memory_order_relaxed) % streams_.size()];
    s.next.store(end, std::memory_order_relaxed);
    s.run.store(0, std::memory_order_relaxed);
    s.window.store(0, std::memory_order_relaxed);
    s.end.store(0, std::memory_order_relaxed);
    return false;
  }
  /// Whether the window that begins there is still to be used. When reading ahead comes too late it is not.
  [[nodiscard]] bool awaits(std::uint64_t first) const noexcept {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const stream& s) { return s.next.load(std::memory_order_relaxed) == first; });
  }
  /// What was read ahead at `page` was not used: the stream that it was for is over.
  void in_vain(std::uint64_t page) noexcept {
    for (stream& s : streams_) {
      const std::uint64_t next = s.next.load(std::memory_order_relaxed);
      if (page >= next && page < s.end.load(std::memory_order_relaxed)) s.next.store(0, std::memory_order_relaxed);
    }
  }

 private:
  struct stream {
    std::atomic<std::uint64_t> next{0};    ///< page at which it is expected
    std::atomic<std::uint64_t> run{0};     ///< how often it was where it was expected
    std::atomic<std::uint64_t> window{0};  ///< pages read ahead last
    std::atomic<std::uint64_t> end{0};     ///< of what was read ahead
  };
  const std::uint64_t window_max_, block_;
  std::array<stream, 8> streams_;
  std::atomic<std::uint32_t> turn_{0};
};

/// Jobs for the thread that reads ahead. Bounded: what does not fit is dropped.
class ahead_queue {
 public:
  bool push(const ahead_job& j) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (count_ == jobs_.size()) return false;
      jobs_[(first_ + count_++) % jobs_.size()] = j;
    }
    wake();
    return true;
  }
  bool pop(ahead_job& j) noexcept {
    const std::lock_guard lock(mutex_);
    if (count_ == 0) return false;
    j = jobs_[first_];
    first_ = (first_ + 1) % jobs_.size();
    --count_;
    return true;
  }
  [[nodiscard]] std::uint32_t seen() const noexcept { return work_.load(std::memory_order_seq_cst); }
  void wait(std::uint32_t seen) noexcept { os::futex_wait(work_, seen, clock::now() + std::chrono::seconds(1)); }
  void wake() noexcept {
    work_.fetch_add(1, std::memory_order_seq_cst);
    os::futex_wake(work_, 1);
  }

 private:
  std::mutex mutex_;
  std::array<ahead_job, 64> jobs_;
  std::size_t first_ = 0, count_ = 0;
  std::atomic<std::uint32_t> work_{0};
};

}  // namespace fm::detail
