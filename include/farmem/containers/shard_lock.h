// Locks of the shards of managed maps. They are of this process, not of the heap: one table of reader-writer locks, and a
// shard finds its own by the map's slot. Shards of different maps may share one.
//
// Invariant: a thread holds at most one of these locks, and takes none inside the other; so sharing cannot deadlock. Code
// of the program that runs under a lock and uses a managed map gets scope_misuse.
#pragma once

#include <array>
#include <farmem/handles.h>
#include <mutex>
#include <shared_mutex>

namespace fm::detail {

constexpr std::size_t shard_locks_count = 1024;

struct alignas(cache_line_bytes) shard_mutex {
  std::shared_mutex mutex;
};
inline std::array<shard_mutex, shard_locks_count> shard_mutexes;
inline thread_local bool holds_shard = false;

/// Holds the lock of one shard, shared or exclusive.
template <template <class> class Lock>
class shard_guard {
 public:
  shard_guard(slot_t map, std::size_t shard) {
    if (holds_shard)
      throw error(errc::scope_misuse, "a managed map is used from within a function given to fm::hash_map::update");
    const std::uint64_t at = (map + (shard << 6)) * 0x9e3779b97f4a7c15 >> 54;
    lock_ = Lock<std::shared_mutex>(shard_mutexes[at].mutex);
    holds_shard = true;
  }
  ~shard_guard() { holds_shard = false; }
  shard_guard(const shard_guard&) = delete;
  shard_guard& operator=(const shard_guard&) = delete;

 private:
  Lock<std::shared_mutex> lock_;
};
static_assert(shard_locks_count == 1u << (64 - 54));

using shard_reading = shard_guard<std::shared_lock>;
using shard_writing = shard_guard<std::unique_lock>;

}  // namespace fm::detail
