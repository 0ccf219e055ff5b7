// One region of the agent: its memory, who owns it, what has been appended, what of it is live.
//
// Invariants owned here
//   - The gate: a user (a one-sided operation, a fetch, a mover) enters only with the region's current generation,
//     and the memory goes away only when the gate is closed and the last user has left, exactly once.
//   - Bytes inside an extent belong to indexed (or abandoned) batches and never change again.
// Fields below "guarded" belong to whoever holds the owning heap's mutex.
#pragma once

#include "fabric/server/server.h"
#include "os/os.h"
#include <farmem/detail/barriers/word.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace fm::agent {

struct heap;

/// free -> open (taken from the pool) -> sealed -> retiring (no live entry, the owner was asked) -> free (it agreed).
/// Closing a heap takes its regions from any state to free.
enum class region_state : std::uint8_t { free, open, sealed, retiring };

/// What a region is opened for, which decides how much of the memory may be used up for it: owners leave the reserve
/// alone, evacuations leave alone what owners need soon, and the cleaner, which frees more than it takes, may use all.
/// Regions for readers are owners' whose memory the agent alone can write, whoever has its descriptor.
enum class region_use : std::uint8_t { owner, readers, evacuation, cleaning };

/// Appended bytes, [begin, end). Contiguous batches make one extent, so a region usually has one.
struct extent {
  std::uint32_t begin;
  std::uint32_t end;
};

struct region {
  explicit region(std::uint32_t n) : number(n) {}

  const std::uint32_t number;
  std::uint32_t last_generation = 0;   ///< pool's lock; highest generation ever used
  os::memory_file memory;              ///< changes only while the region is free
  std::uint64_t memory_owner[3] = {};  ///< pool's lock; heap id and incarnation that the memory's bytes belong to
  bool keep_memory = false;            ///< set before the gate closes: the same owner may get the memory again

  std::atomic<heap*> owner{nullptr};  ///< for a user of the gate: the heap that it entered it of, or null
  /// What it belongs to instead: a pool (agent/pools/pool.h) or a space (agent/spaces/spaces.h). Stable for a user.
  std::atomic<const void*> tenant{nullptr};
  std::atomic<bool> writable{false};         ///< the owner may write past what is appended
  std::atomic<std::uint32_t> append_end{0};  ///< end of the last extent
  std::atomic<bool> confirmed{false};        ///< the owner has used it, so it knows of it

  // ---- guarded ----
  region_state state = region_state::free;
  bool by_mover = false;        ///< filled by the cleaner and evacuations, not by the owner
  bool unwalkable = false;      ///< its batch headers are damaged; who moves objects leaves it alone
  bool notice_pending = false;  ///< retiring, and the owner has not been told on this session
  std::uint64_t opened_by_session = 0;
  std::uint32_t generation = 0;  ///< current one
  std::vector<extent> extents;   ///< ascending, disjoint, not touching
  std::uint64_t live_count = 0;  ///< entries that name a copy in here
  std::uint64_t live_bytes = 0;  ///< of those, each rounded up to its size class: derived from entries alone

  /// Bytes appended, holes left out.
  [[nodiscard]] std::uint64_t appended() const {
    std::uint64_t n = 0;
    for (const extent& e : extents) n += e.end - e.begin;
    return n;
  }
  /// Bytes from the start that consist of complete batches.
  [[nodiscard]] std::uint64_t readable() const {
    if (state != region_state::open) return memory.bytes();
    return extents.empty() || extents.front().begin != 0 ? 0 : extents.front().end;
  }
  /// The extent that contains [offset, offset + bytes), or null.
  [[nodiscard]] const extent* containing(std::uint64_t offset, std::uint64_t bytes) const {
    for (const extent& e : extents)
      if (offset >= e.begin && offset + bytes <= e.end) return &e;
    return nullptr;
  }
  [[nodiscard]] bool overlaps(std::uint64_t offset, std::uint64_t bytes) const {
    for (auto e = extents.rbegin(); e != extents.rend() && e->end > offset; ++e)
      if (offset + bytes > e->begin) return true;
    return false;
  }
  /// Adds appended bytes that overlap nothing.
  void append(std::uint32_t begin, std::uint32_t end) {
    auto at = std::find_if(extents.begin(), extents.end(), [&](const extent& e) { return e.begin >= begin; });
    if (at != extents.begin() && std::prev(at)->end == begin) {
      at = std::prev(at);
      at->end = end;
    } else {
      at = extents.insert(at, {begin, end});
    }
    if (const auto next = std::next(at); next != extents.end() && next->begin == at->end) {
      at->end = next->end;
      extents.erase(next);
    }
    append_end.store(extents.back().end, std::memory_order_release);
  }

  // ---- the gate: 63..32 generation | 31 closed | 30..0 users ----
  static constexpr std::uint64_t closed_bit = std::uint64_t{1} << 31;
  std::atomic<std::uint64_t> gate{closed_bit};

  /// Enters; false when the region is not in this generation. A failed entry must be followed by nothing.
  /// `last_out` tells that the caller became the last one out of a closed region: it must release it (pool::leave).
  [[nodiscard]] bool enter(std::uint32_t g, bool& last_out) noexcept {
    const std::uint64_t old = gate.fetch_add(1, std::memory_order_acq_rel);
    last_out = false;
    if ((old & closed_bit) == 0 && old >> 32 == g) return true;
    last_out = leave();
    return false;
  }
  /// Leaves; true when the caller is the one that must release the region.
  [[nodiscard]] bool leave() noexcept {
    std::uint64_t left = gate.fetch_sub(1, std::memory_order_acq_rel) - 1;
    return (left & closed_bit) != 0 && (left & (closed_bit - 1)) == 0 && left >> 32 != 0 && claim(left);
  }
  /// Closes the gate; true when nobody is inside and the caller must release the region.
  [[nodiscard]] bool close() noexcept {
    const std::uint64_t old = gate.fetch_or(closed_bit, std::memory_order_acq_rel);
    return (old & (closed_bit - 1)) == 0 && old >> 32 != 0 && claim(old | closed_bit);
  }
  void open(std::uint32_t g) noexcept {
    // Late comers of an older generation may be between their add and their subtract, so the count is kept.
    gate.fetch_add((std::uint64_t{g} << 32) - closed_bit, std::memory_order_acq_rel);
  }

 private:
  /// Whoever turns {generation, closed, no users} into {0, closed, no users} releases the region.
  bool claim(std::uint64_t seen) noexcept {
    return gate.compare_exchange_strong(seen, closed_bit, std::memory_order_acq_rel);
  }
};

}  // namespace fm::agent
