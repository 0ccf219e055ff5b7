// The state of every page of a range: one word each, and a lock for every group of pages that may be in one block.
//
//   31..20 tag | 19 read ahead | 18 sampled | 17,16 queue | 15..12 hint | 11..8 order | 7 writing back | 6 touched | 5 mapped | 4 home | 3 dirty | 2..0 state
//
//   state      untouched --fill--> resident --cool--> inactive --send--> writing --acknowledged--> remote
//            remote ------fill-------^ ^  ^----touched again---'            |
//                                      '------------touched again-----------'   (the write was in vain)
//              busy is in between, while one thread fills or removes pages without the lock; others wait for it.
//     untouched  zero: nobody has it, because it was never written, or was discarded
//     remote     its agent has it
//     resident   in local memory, and mapped, or about to be on its first touch
//     inactive   in local memory and not mapped: a touch comes here
//     writing    as inactive, and its write-back is under way
//   dirty      the home copy, or zero without one, is not what is here; of an absent page: lost
//   home       the agent has a copy, perhaps an old one
//   order      a block is 2^order pages, aligned; all its pages have the same state, order and dirty bit, and the first one (the
//              head) has queue, tag, sampled, read ahead and writing back for all. For absent pages it means nothing
//   hint       the order of the block that a fault on this page would like to fetch
//   touched    used since it became present, as far as is known; of an absent page: poisoned
//   tag        of the head: goes up when the block enters a queue, so that older entries in queues are known to be
//   mapped     only what was true when it was noted: an unmapping may still be on its way
//
// Words change under their group's lock only. Entries of queues are compared with them without it, and again with it.
#pragma once

#include "os/os.h"
#include <algorithm>
#include <atomic>

namespace fm::detail {

enum class block_state : std::uint32_t { untouched = 0, remote = 1, busy = 2, resident = 3, inactive = 4, writing = 5 };
enum class page_queue : std::uint32_t { none = 0, active = 1, proactive = 2, inactive = 3 };

/// A page's word, taken apart. Setters change the copy.
struct page_word {
  std::uint32_t bits = 0;

  static constexpr std::uint32_t tag_limit = 1u << 12;

  [[nodiscard]] block_state state() const noexcept { return static_cast<block_state>(bits & 7); }
  void state(block_state s) noexcept { bits = (bits & ~7u) | static_cast<std::uint32_t>(s); }
  [[nodiscard]] bool absent() const noexcept {
    return state() == block_state::untouched || state() == block_state::remote;
  }
  [[nodiscard]] bool present() const noexcept { return state() >= block_state::resident; }

  [[nodiscard]] bool dirty() const noexcept { return flag(3); }
  void dirty(bool v) noexcept { flag(3, v); }
  /// Of an absent page: no agent has its bytes any more.
  [[nodiscard]] bool lost() const noexcept { return absent() && dirty(); }
  [[nodiscard]] bool home() const noexcept { return flag(4); }
  void home(bool v) noexcept { flag(4, v); }
  [[nodiscard]] bool mapped() const noexcept { return flag(5); }
  void mapped(bool v) noexcept { flag(5, v); }
  [[nodiscard]] bool touched() const noexcept { return flag(6); }
  void touched(bool v) noexcept { flag(6, v); }
  /// Of an absent page: an access to it has failed for good, and the kernel knows.
  [[nodiscard]] bool poisoned() const noexcept { return absent() && touched(); }
  void poisoned(bool v) noexcept { touched(v); }
  [[nodiscard]] bool writing_back() const noexcept { return flag(7); }
  void writing_back(bool v) noexcept { flag(7, v); }
  [[nodiscard]] bool sampled() const noexcept { return flag(18); }
  void sampled(bool v) noexcept { flag(18, v); }
  [[nodiscard]] bool ahead() const noexcept { return flag(19); }
  void ahead(bool v) noexcept { flag(19, v); }

  [[nodiscard]] std::uint32_t order() const noexcept { return bits >> 8 & 15; }
  void order(std::uint32_t v) noexcept { bits = (bits & ~(15u << 8)) | v << 8; }
  [[nodiscard]] std::uint32_t hint() const noexcept { return bits >> 12 & 15; }
  void hint(std::uint32_t v) noexcept { bits = (bits & ~(15u << 12)) | v << 12; }
  [[nodiscard]] page_queue queue() const noexcept { return static_cast<page_queue>(bits >> 16 & 3); }
  void queue(page_queue q) noexcept { bits = (bits & ~(3u << 16)) | static_cast<std::uint32_t>(q) << 16; }
  [[nodiscard]] std::uint32_t tag() const noexcept { return bits >> 20; }
  void tag(std::uint32_t v) noexcept { bits = (bits & 0xfffffu) | v % tag_limit << 20; }

 private:
  [[nodiscard]] bool flag(int n) const noexcept { return (bits >> n & 1) != 0; }
  void flag(int n, bool v) noexcept { bits = v ? bits | 1u << n : bits & ~(1u << n); }
};

/// The lock of a group, and what tells those who wait for a busy page of it.
class page_group {
 public:
  void lock() noexcept {
    std::uint32_t seen = 0;
    if (word_.compare_exchange_strong(seen, 1, std::memory_order_acquire)) return;
    for (int i = 0; i < 64; ++i) {
      cpu_relax();
      seen = 0;
      if (word_.load(std::memory_order_relaxed) == 0 &&
          word_.compare_exchange_strong(seen, 1, std::memory_order_acquire))
        return;
    }
    while (word_.exchange(2, std::memory_order_acquire) != 0)
      os::futex_wait(word_, 2, clock::now() + std::chrono::milliseconds(20));
  }
  void unlock() noexcept {
    if (word_.exchange(0, std::memory_order_release) == 2) os::futex_wake(word_, 1);
  }
  /// Noted with the lock held, before waiting without it.
  [[nodiscard]] std::uint32_t seen() const noexcept { return changes_.load(std::memory_order_acquire); }
  /// A busy page is not busy any more.
  void changed() noexcept {
    changes_.fetch_add(1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) != 0) os::futex_wake(changes_, INT32_MAX);
  }
  void wait(std::uint32_t seen, time_point until = time_point::max()) noexcept {
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    if (changes_.load(std::memory_order_seq_cst) == seen)
      os::futex_wait(changes_, seen, std::min(until, clock::now() + std::chrono::milliseconds(20)));
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  std::atomic<std::uint32_t> word_{0}, changes_{0}, waiters_{0};
};

class page_table {
 public:
  /// `group_order`: that of the largest block at least. The last group may have fewer pages.
  page_table(std::uint64_t pages, std::uint32_t group_order)
      : pages_(pages),
        group_order_(group_order),
        words_(pages * sizeof(std::uint32_t), page_bytes),
        groups_(((pages + (std::uint64_t{1} << group_order) - 1) >> group_order) * sizeof(page_group), page_bytes) {}

  [[nodiscard]] std::uint64_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::uint32_t group_order() const noexcept { return group_order_; }
  [[nodiscard]] page_word get(std::uint64_t page) const noexcept {
    return {word(page).load(std::memory_order_relaxed)};
  }
  void set(std::uint64_t page, page_word w) noexcept { word(page).store(w.bits, std::memory_order_relaxed); }
  [[nodiscard]] page_group& group(std::uint64_t page) noexcept {
    return reinterpret_cast<page_group*>(groups_.base())[page >> group_order_];
  }
  /// Changes every page of a block.
  template <class Change>
  void update(std::uint64_t first, std::uint32_t order, Change&& change) noexcept {
    for (std::uint64_t p = first; p < first + (std::uint64_t{1} << order); ++p) {
      page_word w = get(p);
      change(w);
      set(p, w);
    }
  }
  static std::uint64_t head(std::uint64_t page, std::uint32_t order) noexcept { return page >> order << order; }

 private:
  // Reserved memory is zero when it is first touched, which is what both begin as.
  [[nodiscard]] std::atomic<std::uint32_t>& word(std::uint64_t page) const noexcept {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(words_.base())[page];
  }

  std::uint64_t pages_;
  std::uint32_t group_order_;
  os::reservation words_, groups_;
};

}  // namespace fm::detail
