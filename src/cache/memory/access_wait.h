// How a thread waits inside of the cache: outside of its sections, and counted, so that a heap that closes waits for it.
//
// Invariant: the thread is counted from before it leaves its sections until it has entered them again. So it is always
// in a section or counted while it uses the cache.
//
// Misses, allocation and waits for memory use it.
#pragma once

#include "cache/memory/pressure.h"
#include <farmem/detail/barriers/section_break.h>

namespace fm::detail {

class access_wait {
 public:
  /// `reaches`: the slot that the thread is about to reach; 0: none. Without effect outside of sections.
  explicit access_wait(memory_pressure& pressure, slot_t reaches = 0) noexcept : counted_(pressure), left_(reaches) {}
  access_wait(const access_wait&) = delete;
  access_wait& operator=(const access_wait&) = delete;

  /// Whether the thread is outside of sections now. Not if they had handed out more than is noted.
  [[nodiscard]] bool outside() const noexcept { return this_thread.depth == 0; }

 private:
  class counted {
   public:
    explicit counted(memory_pressure& pressure) noexcept : pressure_(this_thread.depth != 0 ? &pressure : nullptr) {
      if (pressure_) pressure_->waiters.fetch_add(1, std::memory_order_acq_rel);
    }
    ~counted() {
      if (pressure_) pressure_->waiters.fetch_sub(1, std::memory_order_release);
    }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;

   private:
    memory_pressure* pressure_;
  };

  counted counted_;
  section_break left_;
};

/// Waiting inside of a section that cannot be left: frames stay, but nothing at home is read.
class reading_nothing {
 public:
  reading_nothing() noexcept { this_thread.reads_nothing.store(1, std::memory_order_release); }
  ~reading_nothing() {
#if FM_TSAN
    this_thread.reads_nothing.exchange(0, std::memory_order_seq_cst);
#else
    this_thread.reads_nothing.store(0, std::memory_order_relaxed);
#endif
    os::light_fence();
  }
  reading_nothing(const reading_nothing&) = delete;
  reading_nothing& operator=(const reading_nothing&) = delete;
};

}  // namespace fm::detail
