// Locks and versions of the shards of managed maps, and of managed queues. They belong to the process, not to a heap:
// there is one table, and a shard finds its entry by the container's slot. Shards of different containers may share
// one.
//
// An entry is a mutex for writers and a version for readers. A writer holds the mutex, and while it moves entries about
// (shard_motion) the version is odd. A reader of a map takes nothing and writes nothing: it notes an even version,
// reads, and trusts what it saw if the version is still the same (Lamport, CACM 1977; as seqlocks in Linux). During a
// motion a reader may look at words that change. These are stored with release and loaded with acquire, word by word,
// so a reader that saw one word of a motion sees its odd version too. That costs nothing on x86-64.
//
// A reader that finds itself in motions again and again takes the mutex. So its tries have a bound, and it waits at
// most for one writer. Pages and texts that a writer unlinks are not freed while a section that saw them is open.
//
// Functions of the program run under none of these mutexes: what they wait for may be held by a thread that wants a
// container which shares the entry. hash_map::update gives its mutex back while its function runs. The entry lists the
// key meanwhile (key_update), and other writers of the key wait for the end of that. So it is while the program's ==
// looks for a key. erase_if lists all the keys of a bucket while it asks its predicate about them, and clear waits until
// no key of the table is listed.
//
// Invariants owned here
//   - A thread holds at most one of these mutexes and takes none inside, so sharing cannot deadlock. A tree that merges
//     leaves takes two, by their addresses, and none inside (tree/locks.h). If a function that
//     was given to update or erase_if, or the == of a key, uses such a container, it gets scope_misuse.
//   - Only who has listed keys erases or changes them, or who holds the mutex while nobody has listed them.
//   - A thread that waits for a mutex, or for the end of an update, has left its sections (section_break.h). So the
//     holder may wait for memory, which eviction gets only when sections end.
//   - A motion contains no miss, no allocation and no code of the program.
//
// Used by fm::hash_map, fm::hash_set and fm::queue, and, without versions and listed keys, by fm::map and fm::set.
#pragma once

#include <array>
#include <farmem/detail/barriers/section_break.h>
#include <farmem/handles/ptr.h>
#include <farmem/handles/scope.h>
#include <mutex>

namespace fm::detail {

constexpr std::size_t shard_entries_count = 1024;

class key_update;

/// Keys of a container: those whose hashes have these bits.
struct key_range {
  std::uint64_t bits = 0;
  std::uint64_t mask = ~std::uint64_t{0};
  [[nodiscard]] static key_range all() noexcept { return {0, 0}; }
  [[nodiscard]] bool overlaps(const key_range& o) const noexcept { return ((bits ^ o.bits) & mask & o.mask) == 0; }
};

struct alignas(2 * cache_line_bytes) shard_entry {
  std::mutex mutex;
  key_update* updates = nullptr;        ///< keys that functions of the program are changing; under the mutex
  std::atomic<std::uint32_t> ended{0};  ///< updates that have ended; who waits for one sleeps on it ...
  std::uint32_t waiting = 0;            ///< ... and is counted here, under the mutex
  alignas(cache_line_bytes) std::atomic<std::uint64_t> version{0};  ///< odd: entries are being moved
};
inline std::array<shard_entry, shard_entries_count> shard_entries;
/// This thread holds a shard, or runs a function that was given to update or erase_if, or the == of a key.
inline thread_local bool holds_shard = false;

inline shard_entry& entry_of_shard(slot_t container, std::size_t shard) {
  if (holds_shard)
    throw error(errc::scope_misuse,
                "a managed map, set or queue is used from within a function given to update or erase_if, or the == of "
                "a key");
  return shard_entries[(container + (shard << 6)) * 0x9e3779b97f4a7c15 >> 54];
}
static_assert(shard_entries_count == 1u << (64 - 54));

/// Holds a shard for writing.
class shard_writing {
 public:
  shard_writing(slot_t container, std::size_t shard) : entry_(entry_of_shard(container, shard)) { lock(); }
  /// For changing these keys: not while a function of the program does.
  shard_writing(slot_t container, std::size_t shard, const key_range& keys) : shard_writing(container, shard) {
    while (is_updated(container, keys)) wait_for_update();
  }
  /// For changing a key with that hash.
  shard_writing(slot_t container, std::size_t shard, std::uint64_t hash)
      : shard_writing(container, shard, key_range{hash}) {}
  ~shard_writing() { unlock(); }
  /// Whether a function of the program is changing one of these keys.
  [[nodiscard]] inline bool is_updated(slot_t container, const key_range& keys) const noexcept;
  /// Gives the shard back until such a function has ended, and holds it again.
  void wait_for_update() {
    const std::uint32_t seen = entry_.ended.load(std::memory_order_relaxed);
    ++entry_.waiting;
    unlock();
    {
      const section_break outside;
      // However long the program's function takes; a wake-up cannot be missed, since the number has changed then.
      os::futex_wait(entry_.ended, seen, clock::now() + std::chrono::seconds(1));
    }
    lock();
    --entry_.waiting;
  }
  /// For code that is shared with readers: what the holder sees is of one moment.
  [[nodiscard]] inline class shard_snapshot snapshot() const noexcept;
  shard_writing(const shard_writing&) = delete;
  shard_writing& operator=(const shard_writing&) = delete;

 private:
  friend class shard_motion;
  friend class key_update;

  void lock() {
    if (!entry_.mutex.try_lock()) {
      const section_break outside;
      entry_.mutex.lock();
    }
    holds_shard = true;
  }
  void unlock() noexcept {
    holds_shard = false;
    entry_.mutex.unlock();
  }

  shard_entry& entry_;
};

/// While it lives, this thread changes keys by a function of the program, and does not hold the shard.
class key_update {
 public:
  key_update(shard_writing& held, slot_t container, const key_range& keys) noexcept
      : held_(held), container_(container), keys_(keys), next_(held.entry_.updates) {
    held_.entry_.updates = this;
    held_.unlock();
    holds_shard = true;
  }
  /// Holds the shard again.
  ~key_update() {
    holds_shard = false;
    held_.lock();
    shard_entry& entry = held_.entry_;
    key_update** at = &entry.updates;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
    entry.ended.fetch_add(1, std::memory_order_relaxed);
    if (entry.waiting != 0) os::futex_wake(entry.ended, INT32_MAX);
  }
  key_update(const key_update&) = delete;
  key_update& operator=(const key_update&) = delete;

 private:
  friend class shard_writing;
  shard_writing& held_;
  const slot_t container_;
  const key_range keys_;
  key_update* next_;
};

inline bool shard_writing::is_updated(slot_t container, const key_range& keys) const noexcept {
  const key_update* u = entry_.updates;
  while (u != nullptr && (u->container_ != container || !u->keys_.overlaps(keys))) u = u->next_;
  return u != nullptr;
}

/// While it lives, readers of the shard do not believe what they see.
class shard_motion {
 public:
  explicit shard_motion(const shard_writing& held) noexcept : version_(held.entry_.version) {
    // The release stores that follow keep this one before them.
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  ~shard_motion() { version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  shard_motion(const shard_motion&) = delete;
  shard_motion& operator=(const shard_motion&) = delete;

 private:
  std::atomic<std::uint64_t>& version_;
};

/// Whether what a reader has loaded so far, all of it with acquire, was of one moment.
class shard_snapshot {
 public:
  shard_snapshot(const std::atomic<std::uint64_t>& version, std::uint64_t seen) noexcept
      : version_(version), seen_(seen) {}
  [[nodiscard]] bool holds() const noexcept { return version_.load(std::memory_order_relaxed) == seen_; }
  /// Whether it was taken during a motion, so that nothing can be believed.
  [[nodiscard]] bool is_moving() const noexcept { return (seen_ & 1) != 0; }

 private:
  const std::atomic<std::uint64_t>& version_;
  std::uint64_t seen_;
};

inline shard_snapshot shard_writing::snapshot() const noexcept {
  return {entry_.version, entry_.version.load(std::memory_order_relaxed)};
}

/// Runs read(const shard_snapshot&) in a section of its own, without a lock if it can, until it returns true: it says
/// whether the snapshot held after the last load of what it made up its mind from. `read` may run several times, and
/// must not take what it loads for consistent before it asked.
template <class Read>
void read_shard(slot_t container, std::size_t shard, Read&& read) {
  constexpr int tries = 32;
  shard_entry& entry = entry_of_shard(container, shard);
  for (int i = 0; i < tries; ++i) {
    const std::uint64_t version = entry.version.load(std::memory_order_acquire);
    if ((version & 1) != 0) {
      cpu_relax();
      continue;
    }
    const user_section in_section;
    if (read(shard_snapshot(entry.version, version))) return;
  }
  const shard_writing held(container, shard);
  const user_section in_section;
  const bool believed = read(held.snapshot());
  FM_CHECK(believed, "a shard of a managed map changes without its lock");
}

// ---- values that are read and written at the same time ----

template <class T>
struct shared_words {
  static constexpr std::size_t bytes = alignof(T) >= 8 ? 8 : alignof(T);
  static constexpr std::size_t count = sizeof(T) / bytes;
  static_assert(sizeof(T) % bytes == 0);
  using unsigned_word = std::conditional_t<
      bytes == 8, std::uint64_t,
      std::conditional_t<bytes == 4, std::uint32_t, std::conditional_t<bytes == 2, std::uint16_t, std::uint8_t>>>;
  using word [[gnu::may_alias]] = unsigned_word;
};
/// A value that is stored and loaded as a whole.
template <class T>
constexpr bool single_word = shared_words<T>::count == 1;

/// A plain value that a writer may be changing; to be believed once a snapshot held.
template <class T>
T load_shared(const T& from) noexcept {
  using words = shared_words<T>;
  T to;
  for (std::size_t i = 0; i < words::count; ++i)
    reinterpret_cast<typename words::word*>(&to)[i] =
        __atomic_load_n(reinterpret_cast<const typename words::word*>(&from) + i, __ATOMIC_ACQUIRE);
  return to;
}
template <class T>
void store_shared(T& to, const T& from) noexcept {
  using words = shared_words<T>;
  for (std::size_t i = 0; i < words::count; ++i)
    __atomic_store_n(reinterpret_cast<typename words::word*>(&to) + i,
                     reinterpret_cast<const typename words::word*>(&from)[i], __ATOMIC_RELEASE);
}

}  // namespace fm::detail
