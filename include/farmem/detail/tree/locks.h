// The locks of managed trees. They belong to the process, not to a heap, and are found by slots; several trees may share
// one. Readers take none of them, except after many failed attempts at one leaf.
//
//   structure   one of a tree: only its holder splits and merges nodes, or publishes new ones
//   leaf        the mutex of an entry of shard_lock.h, by the leaf's slot: only its holder changes the leaf
//   updates     which keys functions of the program are changing
//
// Order: structure, then one or two leaves by the addresses of their entries, then updates. A thread takes one of the
// first and the last kind at most. Hash tables and queues, which share the entries, take one and nothing inside. So
// there is no cycle.
//
// Invariants owned here
//   - A function of the program runs under none of them. Only constant expressions compare under a leaf's.
//   - A thread that waits for one has left its sections (section_break.h).
//   - A key is listed as updated by a thread that holds its leaf. The lock of a leaf is passed on to the leaves that
//     replace it, so whoever holds the leaf that has the key sees the listing.
//
// Used by fm::map and fm::set only.
#pragma once

#include <array>
#include <farmem/detail/container.h>
#include <farmem/detail/shard_lock.h>
#include <functional>
#include <mutex>
#include <utility>

namespace fm::detail {

constexpr std::size_t tree_entries_count = 256;
constexpr std::size_t tree_entry_of(std::uint64_t x) { return x * 0x9e3779b97f4a7c15 >> 56; }
static_assert(tree_entries_count == 1u << (64 - 56));

inline void lock_outside_of_sections(std::mutex& m) {
  if (m.try_lock()) return;
  const section_break outside;
  m.lock();
}

struct alignas(2 * cache_line_bytes) tree_structure {
  std::mutex mutex;
};
inline std::array<tree_structure, tree_entries_count> tree_structures;

/// Holds the structure of a tree.
class structure_writing {
 public:
  explicit structure_writing(slot_t tree) : mutex_(tree_structures[tree_entry_of(tree)].mutex) {
    lock_outside_of_sections(mutex_);
  }
  ~structure_writing() { mutex_.unlock(); }
  structure_writing(const structure_writing&) = delete;
  structure_writing& operator=(const structure_writing&) = delete;

 private:
  std::mutex& mutex_;
};

/// Holds a leaf, or two.
class leaf_writing {
 public:
  explicit leaf_writing(slot_t leaf) : leaf_writing(leaf, leaf) {}
  leaf_writing(slot_t a, slot_t b) : first_(&entry_of_shard(a, 0)), second_(&entry_of_shard(b, 0)) {
    if (std::less<>{}(second_, first_)) std::swap(first_, second_);
    lock_outside_of_sections(first_->mutex);
    if (second_ != first_) lock_outside_of_sections(second_->mutex);
    holds_shard = true;
  }
  ~leaf_writing() {
    holds_shard = false;
    if (second_ != first_) second_->mutex.unlock();
    first_->mutex.unlock();
  }
  leaf_writing(const leaf_writing&) = delete;
  leaf_writing& operator=(const leaf_writing&) = delete;

 private:
  shard_entry* first_;
  shard_entry* second_;
};

/// Throws scope_misuse in a function that was given to update.
inline void require_no_function() {
  if (holds_shard) (void)entry_of_shard(0, 0);
}

class tree_update;
struct alignas(2 * cache_line_bytes) tree_updates {
  std::mutex mutex;
  tree_update* first = nullptr;         ///< under the mutex, as what is not atomic
  std::atomic<std::uint32_t> count{0};  ///< of the list
  std::atomic<std::uint32_t> ended{0};  ///< who waits for the end of one sleeps on it ...
  std::uint32_t waiting = 0;            ///< ... and is counted here
};
inline std::array<tree_updates, tree_entries_count> updates_of_trees;

/// A key that a function of the program is changing, from begin() on.
class tree_update {
 public:
  tree_update() noexcept = default;
  ~tree_update() {
    if (entry_ == nullptr) return;
    const std::lock_guard lock(entry_->mutex);
    tree_update** at = &entry_->first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
    entry_->count.fetch_sub(1, std::memory_order_relaxed);
    entry_->ended.fetch_add(1, std::memory_order_relaxed);
    if (entry_->waiting != 0) os::futex_wake(entry_->ended, INT32_MAX);
  }
  tree_update(const tree_update&) = delete;
  tree_update& operator=(const tree_update&) = delete;

  /// Lists the key, which is not listed. Under the lock of its leaf. `tree`: a slot that the tree has until it is
  /// cleared; `key`: its number (tree/keys.h).
  void begin(slot_t tree, std::uint64_t key) {
    tree_ = tree;
    key_ = key;
    entry_ = &entry_of(tree, key);
    const std::lock_guard lock(entry_->mutex);
    next_ = std::exchange(entry_->first, this);
    entry_->count.fetch_add(1, std::memory_order_relaxed);
  }
  /// Whether a key is listed. Under the lock of its leaf.
  static bool lists(slot_t tree, std::uint64_t key) {
    tree_updates& e = entry_of(tree, key);
    if (e.count.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(e.mutex);
    return is_listed(e, tree, key);
  }
  /// Waits for the end of an update of the key, if there is one. Without locks.
  static void wait(slot_t tree, std::uint64_t key) {
    tree_updates& e = entry_of(tree, key);
    std::unique_lock lock(e.mutex);
    if (!is_listed(e, tree, key)) return;
    const std::uint32_t seen = e.ended.load(std::memory_order_relaxed);
    ++e.waiting;
    lock.unlock();
    {
      const section_break outside;
      // However long the program's function takes; a wake-up cannot be missed, since the number has changed then.
      os::futex_wait(e.ended, seen, clock::now() + std::chrono::seconds(1));
    }
    lock.lock();
    --e.waiting;
  }

 private:
  static tree_updates& entry_of(slot_t tree, std::uint64_t key) { return updates_of_trees[tree_entry_of(tree ^ key)]; }
  static bool is_listed(const tree_updates& e, slot_t tree, std::uint64_t key) {
    const tree_update* u = e.first;
    while (u != nullptr && (u->tree_ != tree || u->key_ != key)) u = u->next_;
    return u != nullptr;
  }

  tree_updates* entry_ = nullptr;
  slot_t tree_ = 0;
  std::uint64_t key_ = 0;
  tree_update* next_ = nullptr;
};

/// While it lives, this thread runs a function that was given to update: if that uses a managed map, set or queue, it
/// gets scope_misuse. Two such functions could otherwise wait for each other's keys.
class function_running {
 public:
  function_running() noexcept { holds_shard = true; }
  ~function_running() { holds_shard = false; }
  function_running(const function_running&) = delete;
  function_running& operator=(const function_running&) = delete;
};

}  // namespace fm::detail
