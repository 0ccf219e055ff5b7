// A fetch in flight, found through the HIT word that says `fetching`, and what both ways of fetching share: misses that
// a thread waits for (miss.h) and detached fetches (detached.h).
//
// Invariant: records are never freed while the heap lives, so a waiter may look at one through a word that has changed
// since; it then sees another sequence number.
#pragma once

#include "remote/agent_session.h"
#include "table/table.h"
#include <farmem/detail/awaited.h>

namespace fm::detail {

class mutator;
class object_cache;
struct segment;

struct alignas(16) fetch {
  fabric::request request;
  std::atomic<std::uint32_t> sequence{0};  ///< goes up when the fetch ends; waiters sleep on it
  std::atomic<std::uint32_t> waiters{0};
  /// Epoch in which a fetch was posted that is in flight without a section: a detached one, or one whose thread has left
  /// its sections to wait for it. 0: there is none.
  std::atomic<std::uint64_t> posted_at{0};
  slot_t slot = 0;
  word_t hint = 0;                      ///< the word that `fetching` replaced
  char* payload = nullptr;              ///< the frame that it fills
  std::uint32_t bytes = 0;              ///< asked for, header included
  segment* seg = nullptr;               ///< counted in inflight, while posted_at is not 0
  std::atomic<mutator*> from{nullptr};  ///< whose record it is
  std::atomic<std::uint32_t> busy{0};   ///< a detached fetch is given back by whichever thread completes it
};

/// The fetch has ended, and the word says so: wakes who waits for it.
void end_fetch(fetch& f) noexcept;

/// An access failed: the error names the slot and the agent.
[[noreturn]] void throw_access(errc code, slot_t slot, const remote::agent_session& link);

/// Throws corrupt, which names the slot, the agent and the reference, if what the agent sent for the slot refers to
/// anything but slots of the heap.
void check_references(const object_cache& cache, std::uint64_t header, const char* payload, slot_t slot,
                      const remote::agent_session& link);

/// An object has more bytes than the cache takes: too_large if an earlier owner of the heap may have stored it, or else
/// corrupt.
[[noreturn]] void throw_size(const object_cache& cache, slot_t slot, const remote::agent_session& link,
                             std::uint64_t bytes);
/// Whether the cache takes an object as large as the hint says.
bool is_possible_size(const object_cache& cache, const home_address& hint) noexcept;

/// How many of `bytes` bytes at `from` may be read. A size class may reach beyond its object, into a batch that is just
/// being appended: not read.
std::uint32_t readable_bytes(const remote::agent_session& link, const home_address& from, std::uint32_t bytes);

}  // namespace fm::detail
