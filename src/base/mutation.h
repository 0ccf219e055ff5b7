// Named mistakes that the simulation (test/sim) puts into the code, one at a time, to show that it would notice.
//
// Invariant: each stands in the place that owns the invariant that it breaks. In every build but the simulation's own
// they are constants and cost nothing. Code of the library asks mutated(); test/sim alone chooses.
//
// No mutation has eviction copy out what a collection has found dead (collector_view::doomed): nobody could notice it.
// The sweep frees no object that is being written back, and no young one that is young no more (may_free in
// cache/collection.cc). So the object stays until a later full cycle. Nothing reaches it, and no agent follows its copy.
// The model young.pml is verified with such copies (COPY_DOOMED), and finds the error if the sweep frees them
// (FREE_GROWN_UP). `doomed` saves their writing.
#pragma once

#include <cstdint>

namespace fm::detail {

enum class mutation : std::uint8_t {
  none,
  evict_without_grace,     ///< sweep a segment that was cooled just now
  drop_open_page,          ///< discard a page of the HIT that was not closed for a grace period
  clean_when_copied,       ///< an object is clean once it is in a batch, acknowledged or not
  index_out_of_turn,       ///< apply an index message whatever its number is
  read_past_acknowledged,  ///< an elastic window is not clipped to what is acknowledged
  sweep_by_entry,          ///< dead is what is not marked, allocated at the snapshot or not
  retire_while_read,       ///< agree to a retirement without looking at sections
  return_slots_early,      ///< use slots again before their agent has forgotten them
  end_marking_early,       ///< marking ends with a round that still brought something
  lock_without_asking,     ///< a weak handle is locked without a look at the marks
  log_nothing,             ///< what is overwritten while a cycle marks is not logged
  move_while_pinned,       ///< a pin does not keep its frame in place
  scan_old_homes,          ///< agents do not learn which objects are dirty at the owner
  forget_gone_home,        ///< an object that was dirty and is evicted before the owner scans it is scanned by nobody
  young_for_ever,          ///< what a home copy refers to stays young
  grow_up_unnoticed,       ///< what ceases to be young while young objects are marked is not logged
  believe_no_news,         ///< a page in which a scan found dirty objects has a clean card afterwards
  believe_no_pins,         ///< a scan for young objects takes none for pinned
  young_only,              ///< old objects that are dirty are no roots of young ones
  one_round,  ///< marking ends with the first round in which all were idle, though agents talk to each other
  acknowledge_references_early,  ///< what another agent sends is acknowledged, and queued later
  rehome_without_grace,          ///< re-homing waits for no section and for no fetch
  acknowledge_after_rehoming,    ///< re-homing does not wait for the lost agent's batches
  forget_losses,                 ///< what was lost is on no list
  rehome_in_cycle,               ///< tablets get new agents while a cycle marks
  release_dead_without_grace,    ///< segments of dead objects wait for no section
  stale_rescan,                  ///< an agent scans a tablet anew, and overflows meanwhile do not list it again
  stale_local_rescan,            ///< the same of the owner's tracer
  ignore_waiting_threads,        ///< a slot that a waiting thread is about to reach is no root
  unpin_without_log,             ///< a pin that is given back while a cycle marks is not logged
  gather_unpinned,               ///< the sender of a graph does not pin an object that it sends in pieces
  link_clean,                    ///< the receiver of a graph does not say that it writes to objects that are there
  queue_unrooted,                ///< a send that waits for its turn does not root its graph
  acknowledge_before_all,        ///< a batch counts as stored when the first member of its replica set has indexed it
  release_at_primary_only,       ///< slots of dead objects are used again before the backups have released them
  believe_old_hints,             ///< a promotion leaves the hints to the old primary as they are
  import_over,                   ///< what a new backup is given replaces newer copies
  join_unfinished,               ///< a new backup counts as whole before it has everything
  renew_in_use,                  ///< a tablet with objects is taken for one that has none
  hand_over_open,                ///< a tablet is read from its old primary while it is handed over
  hand_over_unsettled,           ///< a tablet is handed over while batches of it are under way
  forget_nothing_left,           ///< an agent that was the primary of a tablet goes on taking itself for it
};

#ifdef FARMEM_SIM
inline constexpr bool simulated = true;
extern mutation chosen_mutation;
inline bool mutated(mutation m) noexcept { return chosen_mutation == m; }
#else
inline constexpr bool simulated = false;
constexpr bool mutated(mutation) noexcept { return false; }
#endif

}  // namespace fm::detail
