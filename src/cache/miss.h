// Misses: what happens when a word is not resident. One-sided by hint, checked by header; by slot when the hint is old
// or unknown; neighbours that come along are installed cold.
//
// Invariants owned here
//   - A word that says `fetching` leads to the record of the thread that waits, and leaves that state before the thread
//     does.
//   - Only a home copy whose header names the slot is installed; an answer by slot goes over an unknown word only as
//     "Page give-back" (table/pages.h) allows.
//   - A home copy is installed only if each of its references is null or a slot of this heap. So barriers follow what is
//     in frames without a check. Detached fetches hold to the same (detached.h). That the slot is allocated, and of the
//     field's type, is not checked.
//   - A thread waits for an agent, or for another thread's fetch, outside of its sections (access_wait.h). Its fetch is
//     then like a detached one: `posted_at` holds the retirement of regions up until the fetch has ended, and
//     `inflight` the segment of its frame. A word that says `fetching` holds its page of the table.
//
// object_cache::resolve calls it, inside a section.
#pragma once

#include "base/growing_list.h"
#include "base/replica_limits.h"
#include "cache/frames/elastic.h"
#include "cache/frames/ghosts.h"
#include "mutator.h"
#include "table/pages.h"
#include <farmem/base/histogram.h>
#include <farmem/detail/barriers/access.h>
#include <memory>
#include <vector>

namespace fm::detail {

class tablet_home;

class miss_handler {
 public:
  miss_handler(object_cache& cache, std::uint64_t capacity_bytes) : cache_(cache), left_(capacity_bytes) {}
  /// Elastic windows for each of the heap's agents. Once, before anything is fetched.
  void add_agent();

  /// Makes the object resident, or tries to: the caller looks at the word again. Throws agent_lost, timed_out,
  /// not_found, corrupt, cache_full.
  void miss(slot_t slot, std::atomic<word_t>& word, word_t seen);
  /// Waits until the word is no longer `fetching` by this record, or throws timed_out.
  void wait_for_fetch(slot_t slot, std::atomic<word_t>& word, word_t seen, time_point deadline);
  elastic_windows& windows(std::uint32_t agent) noexcept { return *windows_[agent]; }
  /// What has left the cache while it was on trial.
  ghosts& left() noexcept { return left_; }
  /// The object comes back into this frame, which nobody knows yet: if it had left only just before, it is not on trial.
  void note_back(slot_t slot, char* payload) noexcept;

  histogram miss_ns;
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> ghost_hits{0};

 private:
  void miss_unknown(slot_t slot, std::atomic<word_t>& word);
  /// Asks for the entries of an opened group of pages and puts them over words that are unknown. Whatever fails here is
  /// met again by slot.
  void learn_group(const hit_pages::group& group, slot_t slot, const tablet_home& tablet, time_point deadline);
  /// Fills the fetch's frame from home, by hint and if need be by slot; the word says `fetching`. Throws.
  word_t load(fetch& f, mutator& m, std::uint32_t agent);
  /// Reads the home copy at `from` into the frame, or a window of it into staging; the number of bytes of the object, 0
  /// when the header names something else.
  std::uint64_t read_hint(fetch& f, mutator& m, remote::agent_session& link, const home_address& from,
                          std::uint32_t& window);
  /// Null when there is none for it.
  char* staging_of(mutator& m);
  /// How many were installed.
  std::uint32_t install_neighbours(mutator& m, std::uint32_t agent, const home_address& first, std::uint64_t skip,
                                   std::uint32_t window);

  object_cache& cache_;
  growing_list<elastic_windows> windows_{limits::agents_max};
  ghosts left_;
  os::spin_place waits_;  ///< for others' fetches, and for those that were posted ahead
};

}  // namespace fm::detail
