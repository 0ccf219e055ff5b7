// A fetch in flight, found through the HIT word that says `fetching`. Records are never freed while the heap lives, so a
// waiter may look at one through a word that has changed since; it then sees another sequence number.
//
// Who awaits an object without blocking holds no record, only the slot: what he waits for is that the word becomes
// resident, whoever fetched it. So an await can be given up at any time, and its fetch ends as a prefetch would.
#pragma once

#include <farmem/store.h>
#include <farmem/table.h>

namespace fm::detail {

class object_cache;
class mutator;
struct segment;

struct alignas(16) fetch {
  fabric::request request;
  std::atomic<std::uint32_t> sequence{0};  ///< goes up when the fetch ends; waiters sleep on it
  std::atomic<std::uint32_t> waiters{0};
  std::atomic<std::uint64_t> posted_at{0};  ///< epoch in which a detached fetch was posted; 0 when it is not in flight
  slot_t slot = 0;
  word_t hint = 0;          ///< the word that `fetching` replaced
  char* payload = nullptr;  ///< the frame that it fills
  std::uint32_t bytes = 0;  ///< asked for, header included
  segment* seg = nullptr;   ///< counted in inflight, for detached fetches
  object_cache* cache = nullptr;
  mutator* from = nullptr;             ///< whose record it is
  std::atomic<std::uint32_t> busy{0};  ///< a detached fetch is given back by whichever thread completes it
};

/// What keeps an awaited object from being here.
enum class holdup : std::uint8_t {
  none,
  fetch,         ///< a fetch of this thread is in flight
  others_fetch,  ///< another thread's is
  records,       ///< this thread has as many in flight as it may have
  memory,        ///< no frame to be had until something is evicted
  connection,    ///< the session reconnects
};

/// One object that a thread awaits without blocking: what is remembered between two looks (object_cache::look_for).
struct awaited {
  static constexpr word_t untried = 1;  ///< no word looks like that

  slot_t slot = 0;
  holdup why = holdup::none;
  object_cache* cache = nullptr;  ///< set by the first look; good while the heap is open
  time_point begun{};             ///< the first look that did not find it
  time_point memory_short{};      ///< since when there is no frame for it
  word_t tried = untried;         ///< the hint that a fetch was posted for, ...
  std::uint32_t generation = 0;   ///< ... and the session's generation then
};

}  // namespace fm::detail
