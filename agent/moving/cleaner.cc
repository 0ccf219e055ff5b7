// The cleaner: moves what is live in sparse sealed regions into the heap's target (mover.h), so that the sources
// retire, when memory or a quota is short. One bounded part of one source a step. A region whose batch headers are
// damaged is left alone.
//
// Invariant owned here: of a heap's memory beyond its quota, a few regions at most wait for its owner. The cleaner may use
// the reserve and go beyond the quota, and what it empties comes back only when the owner agrees. So it begins nothing for
// an owner that is not there or does not agree: memory that others have left would go to copies.
#include "agent/base/limits.h"
#include "mover.h"

namespace fm::agent {

namespace {

/// The sealed region with the fewest live bytes, if it is worth cleaning. What a mover has filled is so only if something
/// of it has died: objects that fill regions badly would be moved for ever.
region* choose_source(const heap& h, double below_live_ratio) {
  region* best = nullptr;
  const auto most = [&](const region& r) {
    const std::uint64_t of = r.by_mover ? r.appended() : h.regions_pool.region_bytes();
    return static_cast<std::uint64_t>(below_live_ratio * static_cast<double>(of));
  };
  for (region* r : h.regions)
    if (r->state == region_state::sealed && !r->unwalkable && (best == nullptr || r->live_bytes < best->live_bytes) &&
        r->live_bytes < most(*r))
      best = r;
  return best;
}

/// Chooses what this step works on; false when there is nothing to do. heap.mutex is held.
bool prepare(heap& h, double below_live_ratio) {
  heap::cleaning_state& c = h.cleaning;
  if (h.closed.load()) return false;
  if (c.source != nullptr &&
      (!h.owns(*c.source) || c.source->generation != c.source_generation || c.source->state != region_state::sealed))
    c.source = nullptr;  // it retired, or was freed, under way
  if (c.source != nullptr) return true;
  region* next = h.is_low() && h.may_empty_regions() ? choose_source(h, below_live_ratio) : nullptr;
  if (next != nullptr) {
    c = {next, next->generation, {}};
    return true;
  }
  // Nothing left to clean: a target in which everything has died meanwhile is worth giving back.
  if (h.move_target != nullptr && h.move_target->live_count == 0 && !h.move_target->extents.empty()) seal_target(h);
  return false;
}

}  // namespace

bool clean_step(heap& h, double below_live_ratio, void (*copied)(void*) noexcept, void* context) {
  std::lock_guard one(h.mover);
  // Changed only here and by close(), both in the mutex; used in between as a copy.
  heap::cleaning_state mine;
  entered_region source(h.regions_pool);
  move_batch batch(h);
  {
    std::lock_guard lock(h.mutex);
    if (!prepare(h, below_live_ratio) || !batch.begin(h, region_use::cleaning)) return false;
    mine = h.cleaning;
    source.enter(mine.source->number, mine.source_generation);
  }
  const walked how =
      walk_live(h, *source, mine.at, limits::walk_bytes_max,
                [&](entry_t& entry, word_t here, std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
                  if (!batch.add(entry, here, header, copy, bytes)) return visit::stop_here;
                  return batch.bytes() >= limits::clean_bytes_max ? visit::stop_behind : visit::on;
                });
  if (copied != nullptr && !batch.empty()) copied(context);
  const move_batch::outcome o = batch.publish(h);
  std::lock_guard lock(h.mutex);
  if (h.closed.load()) return true;
  h.bytes_cleaned += o.bytes;
  h.cleaner_lost += o.lost;
  h.cleaning = mine;
  if (how == walked::all || how == walked::damaged) {
    ++h.regions_cleaned;
    h.cleaning.source = nullptr;
    note_unwalkable(h, *source, mine.at);
  }
  return true;
}

}  // namespace fm::agent
