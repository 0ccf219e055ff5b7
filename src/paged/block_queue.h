// The queues of blocks: FIFO, with buffers in front of the shared lock (dcm, section 3.4). An entry is a copy of what
// its block's head word said when it entered; when the word has moved on, the entry is an old one and means nothing. So
// a block leaves a queue, or goes to another one, by a change of its word alone, and who takes entries out looks at the
// word.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "page_table.h"

namespace fm::detail {

/// A block in a queue: 63..20 first page | 19..16 order | 15..12 queue | 11..0 tag.
struct block_entry {
  std::uint64_t bits = 0;

  static block_entry of(std::uint64_t first, page_word head) noexcept {
    return {first << 20 | std::uint64_t{head.order()} << 16 | static_cast<std::uint64_t>(head.queue()) << 12 |
            head.tag()};
  }
  [[nodiscard]] std::uint64_t first() const noexcept { return bits >> 20; }
  [[nodiscard]] std::uint32_t order() const noexcept { return bits >> 16 & 15; }
  [[nodiscard]] std::uint64_t pages() const noexcept { return std::uint64_t{1} << order(); }
  /// Whether the block is still where the entry says.
  [[nodiscard]] bool holds(page_word head) const noexcept { return head.present() && of(first(), head).bits == bits; }
};

class block_queue {
 public:
  /// Has room for so many blocks that are really in it.
  void reserve(std::uint64_t blocks) {
    const std::lock_guard lock(mutex_);
    if (2 * blocks > ring_.size()) resize(2 * blocks);
  }
  /// Puts a block at the young end, perhaps into a buffer first. Without allocations, but for a queue that is full of
  /// what is really in it.
  void push(block_entry e, const page_table& table) {
    buffer& b = buffers_[stripe() % buffers_.size()];
    if (b.taken.test_and_set(std::memory_order_acquire)) return push(std::span(&e, 1), table);
    b.entries[b.count++] = e;
    pages_.fetch_add(static_cast<std::int64_t>(e.pages()), std::memory_order_relaxed);
    if (b.count == b.entries.size()) {
      const std::lock_guard lock(mutex_);
      append({b.entries.data(), b.count}, table);
      b.count = 0;
    }
    b.taken.clear(std::memory_order_release);
  }
  void push(std::span<const block_entry> some, const page_table& table) {
    std::int64_t pages = 0;
    for (const block_entry& e : some) pages += static_cast<std::int64_t>(e.pages());
    pages_.fetch_add(pages, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    append(some, table);
  }
  /// Takes the oldest out; some of them may be old entries. Looks into the buffers when there is nothing else.
  std::size_t pop(std::span<block_entry> out, const page_table& table) {
    const std::lock_guard lock(mutex_);
    if (count_ == 0)
      for (buffer& b : buffers_) {
        if (b.taken.test_and_set(std::memory_order_acquire)) continue;
        append({b.entries.data(), b.count}, table);
        b.count = 0;
        b.taken.clear(std::memory_order_release);
      }
    std::size_t n = 0;
    std::int64_t pages = 0;
    for (; n < out.size() && count_ != 0; ++n, --count_) {
      out[n] = ring_[first_];
      first_ = (first_ + 1) % ring_.size();
      pages += static_cast<std::int64_t>(out[n].pages());
    }
    pages_.fetch_sub(pages, std::memory_order_relaxed);
    return n;
  }
  /// Pages in it, old entries included. Wait-free.
  [[nodiscard]] std::uint64_t pages() const noexcept {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, pages_.load(std::memory_order_relaxed)));
  }

 private:
  struct alignas(cache_line_bytes) buffer {
    std::atomic_flag taken = ATOMIC_FLAG_INIT;
    std::uint32_t count = 0;
    std::array<block_entry, 15> entries;
  };
  /// A number of the calling thread's own.
  static std::uint32_t stripe() noexcept {
    static std::atomic<std::uint32_t> next{0};
    thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
    return mine;
  }
  void append(std::span<const block_entry> some, const page_table& table) {
    if (count_ + some.size() > ring_.size()) {
      compact(table);
      if (count_ + some.size() > ring_.size()) resize(2 * (count_ + some.size()));
    }
    for (const block_entry& e : some) ring_[(first_ + count_++) % ring_.size()] = e;
  }
  /// Drops old entries. A word only moves on, so what looks old is; what does not is kept.
  void compact(const page_table& table) {
    const std::size_t before = count_;
    std::int64_t pages = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < before; ++i) {
      const block_entry e = ring_[(first_ + i) % ring_.size()];
      if (e.holds(table.get(e.first())))
        ring_[(first_ + kept++) % ring_.size()] = e;
      else
        pages += static_cast<std::int64_t>(e.pages());
    }
    count_ = kept;
    pages_.fetch_sub(pages, std::memory_order_relaxed);
  }
  void resize(std::size_t n) {
    std::vector<block_entry> bigger(std::max<std::size_t>(n, 256));
    for (std::size_t i = 0; i < count_; ++i) bigger[i] = ring_[(first_ + i) % ring_.size()];
    ring_ = std::move(bigger);
    first_ = 0;
  }

  std::array<buffer, 8> buffers_;
  std::atomic<std::int64_t> pages_{0};
  std::mutex mutex_;
  std::vector<block_entry> ring_ = std::vector<block_entry>(256);
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace fm::detail
