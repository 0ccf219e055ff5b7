// An object that a coroutine awaits. The await holds no record of a fetch, only the slot: it waits until the word
// becomes resident, whichever thread fetched the object.
//
// Invariant: an await can be given up at any time, and its fetch ends as a prefetch does. fetch_wait (farmem/tasks/await.h)
// keeps the state between two looks, and detached_fetches::look_for fills it in.
#pragma once

#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

class object_cache;

/// What keeps an awaited object from being here.
enum class holdup : std::uint8_t {
  none,
  fetch,         ///< a fetch of this thread is in flight
  others_fetch,  ///< another thread's is
  records,       ///< this thread has as many in flight as it may have
  memory,        ///< no frame to be had until something is evicted
  connection,    ///< the session reconnects
};

/// One object that a thread awaits without blocking: what is remembered between two looks (detached_fetches::look_for).
struct awaited {
  static constexpr word_t untried = 1;  ///< no word looks like that

  slot_t slot = 0;
  holdup why = holdup::none;
  object_cache* cache = nullptr;  ///< set by the first look; good while the heap is open
  time_point begun{};             ///< the first look that did not find it
  time_point memory_short{};      ///< since when there is no frame for it
  time_point moved_at{};          ///< something moved meanwhile ...
  std::uint64_t moved = 0;        ///< ... so much had then
  word_t tried = untried;         ///< the hint that a fetch was posted for, ...
  std::uint32_t generation = 0;   ///< ... and the session's generation then
};

}  // namespace fm::detail
