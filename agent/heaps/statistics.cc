// Heaps as JSON: one for its own owner, who learns nothing of other heaps, and all of them for the administrator.
// Each heap's mutex is taken for a moment, so the sums are of slightly different moments.
// Live bytes are rounded up to size classes, so they are exact for objects up to 1 KiB.
#include <fmt/format.h>

#include "heaps.h"

namespace fm::agent {

// Live bytes are rounded up to size classes, so they are exact up to objects of 1 KiB.
std::string heap_json(const heap& h, time_point now, heap_sums& total) {
  std::uint64_t appended = 0, live = 0;
  std::uint64_t open = 0, sealed = 0, retiring = 0, unwalkable = 0;
  for (const region* r : h.regions) {
    appended += r->appended();
    live += r->live_bytes;
    open += r->state == region_state::open;
    sealed += r->state == region_state::sealed;
    retiring += r->state == region_state::retiring;
    unwalkable += r->unwalkable;
  }
  const std::uint64_t garbage = appended > live ? appended - live : 0;
  ++total.heaps;
  total.regions += h.regions.size();
  total.live += live;
  total.garbage += garbage;
  total.metadata += h.metadata_bytes();
  total.objects += h.objects;
  total.batches += h.batches;
  const std::int64_t left =
      h.owner != nullptr || h.lease_until == time_point::max()
          ? -1
          : std::max<std::int64_t>(0,
                                   std::chrono::duration_cast<std::chrono::milliseconds>(h.lease_until - now).count());
  const auto cycle = h.running_cycle();
  return fmt::format(
      R"({{"name":{},"detached_as":{},"id":"{:016x}{:016x}","connected":{},"lease_ms":{},"lease_left_ms":{},"quota_bytes":{},)"
      R"("region_memory_bytes":{},"live_bytes":{},"garbage_bytes":{},"metadata_bytes":{},"objects":{},"tablets":{},"types":{},)"
      R"("regions":{},"regions_open":{},"regions_sealed":{},"regions_retiring":{},"regions_unwalkable":{},)"
      R"("batches":{},"batch_bytes":{},"objects_indexed":{},"applied_seq":{},)"
      R"("regions_retired":{},"regions_cleaned":{},"bytes_cleaned":{},"cleaner_lost":{},)"
      R"("evacuating":{},"regions_evacuated":{},"bytes_evacuated":{},"objects_evacuated":{},)"
      R"("cycle":{},"cycle_marked":{},"cycle_tracing_ns":{},"trace_faults":{},"slots_released":{}}})",
      quoted(h.name), quoted(h.detached.record.empty() ? std::string() : h.detached.name), h.key.heap_id[0],
      h.key.heap_id[1], h.owner != nullptr, h.lease_ms, left, h.quota_bytes,
      h.regions.size() * h.regions_pool.region_bytes(), live, garbage, h.metadata_bytes(), h.objects, h.tablets,
      h.types.size(), h.regions.size(), open, sealed, retiring, unwalkable, h.batches, h.batch_bytes, h.objects_indexed,
      h.applied_seq, h.regions_retired, h.regions_cleaned, h.bytes_cleaned, h.cleaner_lost, h.evacuation_runs.load(),
      h.regions_evacuated, h.bytes_evacuated, h.objects_evacuated, cycle ? cycle->cycle : 0,
      cycle ? cycle->marked() : 0, cycle ? cycle->tracing_ns() : 0, h.trace_faults + (cycle ? cycle->faults() : 0),
      h.slots_released);
}

std::string heaps::statistics(heap_sums& total) const {
  std::string text;
  for (const auto& h : all()) {
    std::lock_guard lock(h->mutex);
    if (!text.empty()) text += ',';
    text += heap_json(*h, agent_.now(), total);
  }
  return text;
}

std::uint64_t heaps::expired() const {
  std::lock_guard lock(mutex_);
  return expired_;
}

}  // namespace fm::agent
