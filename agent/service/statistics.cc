// What a store tells about itself, as JSON: everything for the administrator (store::statistics), and its own part for an
// owner (the statistics message), which learns nothing of other heaps.
#include <fmt/format.h>

#include "agent/tracing/tracer.h"
#include "agent_store.h"

namespace fm::store::node {

std::string quoted(const std::string& s) {
  std::string q = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') q += '\\';
    if (static_cast<unsigned char>(c) >= 32) q += c;
  }
  return q + '"';
}

namespace {

struct sums {
  std::uint64_t regions = 0, live = 0, garbage = 0, metadata = 0, objects = 0, batches = 0;
};

/// One heap; its mutex is held. Live bytes are rounded up to size classes, so they are exact up to objects of 1 KiB.
std::string heap_json(const heap& h, time_point now, sums& total) {
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
      R"({{"name":{},"id":"{:016x}{:016x}","connected":{},"lease_ms":{},"lease_left_ms":{},"quota_bytes":{},)"
      R"("region_memory_bytes":{},"live_bytes":{},"garbage_bytes":{},"metadata_bytes":{},"objects":{},"tablets":{},"types":{},)"
      R"("regions":{},"regions_open":{},"regions_sealed":{},"regions_retiring":{},"regions_unwalkable":{},)"
      R"("batches":{},"batch_bytes":{},"objects_indexed":{},"applied_seq":{},)"
      R"("regions_retired":{},"regions_cleaned":{},"bytes_cleaned":{},"cleaner_lost":{},)"
      R"("evacuating":{},"regions_evacuated":{},"bytes_evacuated":{},"objects_evacuated":{},)"
      R"("cycle":{},"cycle_marked":{},"cycle_tracing_ns":{},"trace_faults":{},"slots_released":{}}})",
      quoted(h.name), h.key.heap_id[0], h.key.heap_id[1], h.owner != nullptr, h.lease_ms, left, h.quota_bytes,
      h.regions.size() * h.regions_pool.region_bytes(), live, garbage, h.metadata_bytes(), h.objects, h.tablets,
      h.types.size(), h.regions.size(), open, sealed, retiring, unwalkable, h.batches, h.batch_bytes, h.objects_indexed,
      h.applied_seq, h.regions_retired, h.regions_cleaned, h.bytes_cleaned, h.cleaner_lost, h.evacuation_runs.load(),
      h.regions_evacuated, h.bytes_evacuated, h.objects_evacuated, cycle ? cycle->cycle : 0,
      cycle ? cycle->marked() : 0, cycle ? cycle->tracing_ns() : 0, h.trace_faults + (cycle ? cycle->faults() : 0),
      h.slots_released);
}

}  // namespace

std::string agent_store::statistics() const {
  sums total;
  std::string heaps;
  const auto all = all_heaps();
  for (const auto& h : all) {
    std::lock_guard lock(h->mutex);
    if (!heaps.empty()) heaps += ',';
    heaps += heap_json(*h, now(), total);
  }
  std::uint64_t expired = 0;
  {
    std::lock_guard lock(heaps_mutex_);
    expired = heaps_expired_;
  }
  const std::uint64_t used = pool_.regions_in_use();
  return fmt::format(
      R"({{"name":{},"memory_bytes":{},"region_bytes":{},"regions_max":{},"regions_in_use":{},"regions_reserved":{},)"
      R"("memory_used_bytes":{},"sessions":{},"sessions_opened":{},"heaps_expired":{},)"
      R"("totals":{{"heaps":{},"regions":{},"live_bytes":{},"garbage_bytes":{},"metadata_bytes":{},"objects":{},"batches":{}}},)"
      R"("peers":{{{},"ghosts_received":{},"messages_refused":{}}},"heaps":[{}],"pools":[{}],"spaces":{}}})",
      quoted(options_.name), pool_.memory_bytes(), pool_.region_bytes(), pool_.regions_max(), used,
      pool_.regions_reserved(), used * pool_.region_bytes(), sessions_open_.load(), sessions_opened_.load(), expired,
      all.size(), total.regions, total.live, total.garbage, total.metadata, total.objects, total.batches,
      ghosts_.statistics(), ghosts_received_.load(), ghosts_refused_.load(), heaps, pools_json(), paged_.statistics());
}

errc agent_store::heap_statistics(session&, heap& h, body b, fabric::answer& out) {
  if (!b.empty()) return errc::bad_frame;
  sums total;
  std::string text;
  {
    std::lock_guard lock(h.mutex);
    text = heap_json(h, now(), total);
  }
  begin_answer(out, message_type::statistics, text.data(), text.size());
  return errc::ok;
}

}  // namespace fm::store::node
