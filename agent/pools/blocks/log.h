// The log of a pool with replicas: what its primary has changed, in the order of one count, for the backup
// (protocol/pool_replica_messages.h). And the word that tells clients how much of it the backup has.
//
// Numbers go on whether or not somebody listens, because they are the versions of objects, too. Records are kept only
// while a backup learns or follows, and until it has confirmed them.
//
// Invariants owned here
//   - Of two changes of an object, or of the structure, the one that was made first has the smaller number: a number is
//     taken within the lock under which the change is made.
//   - The word is never beyond what counts: with a backup, what it has confirmed; without one, everything.
//   - Records leave in the order of their numbers, and none is forgotten before it is confirmed.
// Lock order: within all locks of blocks.h, and nothing within this one. Thread-safe.
#pragma once

#include "agent/base/protocol.h"
#include "protocol/pool_replica_messages.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace fm::agent {

class pool_log {
  struct node {
    node* next;
    record_head head;  ///< the rest of the record follows
  };
  struct release {
    void operator()(node* n) const noexcept { std::free(n); }
  };

 public:
  /// A record on its way into the log, or none.
  using entry = std::unique_ptr<node, release>;

  pool_log() = default;
  pool_log(const pool_log&) = delete;
  pool_log& operator=(const pool_log&) = delete;
  ~pool_log() { forget(); }

  /// Room for a record: taken before anything changes, because there may be none. Throws std::bad_alloc.
  static entry make(record_kind kind, std::size_t bytes);
  template <class Fixed>
  static entry make(record_kind kind, const Fixed& fixed, std::span<const std::byte> tail = {}) {
    entry e = make(kind, sizeof fixed + tail.size());
    std::memcpy(body_of(*e).data(), &fixed, sizeof fixed);
    if (!tail.empty()) std::memcpy(body_of(*e).data() + sizeof fixed, tail.data(), tail.size());
    return e;
  }
  /// The same, where what is fixed is known later: fill() says it.
  template <class Fixed>
  static void fill(const entry& e, const Fixed& fixed) noexcept {
    std::memcpy(body_of(*e).data(), &fixed, sizeof fixed);
  }

  /// The number of a change that is made now. `e` may be none: then nobody hears of it.
  std::uint64_t append(entry e) noexcept;
  [[nodiscard]] std::uint64_t end() const noexcept { return end_.load(std::memory_order_acquire); }
  /// Changes are to be written down. Readable by who has the pool's structure, shared or not.
  [[nodiscard]] bool is_recording() const noexcept { return recording_; }

  // ---- with the pool's structure exclusively ----
  /// Records are kept from now on, or are not, and those that were are forgotten. Then everything counts at once.
  void record(bool on) noexcept;
  /// From now on only what is confirmed counts. Returns the number up to which everything did.
  std::uint64_t wait_for_backup() noexcept;
  /// The word, 8 bytes of the pool's memory; null: there is none any more.
  void show_in(std::byte* word) noexcept;
  /// As the new primary goes on.
  void begin_after(std::uint64_t number) noexcept;

  // ---- of whoever sends ----
  /// Appends to `to` records that were not sent yet, as long as all are at most `bytes_max`; how many. One record at least.
  /// `after` is the number of the one that was sent before, or 0.
  std::uint32_t take(std::vector<std::byte>& to, std::size_t bytes_max, std::uint64_t& after);
  /// What was sent after that number is sent again.
  void send_again_after(std::uint64_t number) noexcept;
  void confirmed(std::uint64_t number) noexcept;
  [[nodiscard]] std::uint64_t confirmed() const noexcept { return confirmed_.load(std::memory_order_acquire); }
  /// Of records that are not confirmed.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Goes up with each record; who sleeps on it says so in `sleepers`.
  std::atomic<std::uint32_t> bell{0}, sleepers{0};
  void ring() noexcept;

 private:
  static std::span<std::byte> body_of(node& n) noexcept {
    return {reinterpret_cast<std::byte*>(&n + 1), n.head.bytes - sizeof(record_head)};
  }
  void forget() noexcept;
  void show(std::uint64_t number) noexcept;

  bool recording_ = false;  ///< the pool's structure
  std::mutex mutex_;
  node* first_ = nullptr;  ///< mutex_, as all that follows that is not atomic; not confirmed
  node* last_ = nullptr;
  node* unsent_ = nullptr;
  std::uint64_t sent_ = 0;  ///< the number before that
  bool waits_ = false;      ///< for confirmation
  std::byte* word_ = nullptr;
  std::atomic<std::uint64_t> end_{0}, confirmed_{0}, bytes_{0};
};

/// Of copies of records that are sent: times, which are of this agent's clock in a log, become how long from now. So a
/// backup has them late by no more than the way, however long records were kept.
void tell_how_long(std::span<std::byte> records, std::uint64_t now_ms) noexcept;

}  // namespace fm::agent
