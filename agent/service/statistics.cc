// The agent's statistics for the administrator, as one JSON document: its memory, and the statistics of each part.
// The names in it are an interface: tools read them.
// Called by the admin socket and by tests, on any thread.
#include <fmt/format.h>

#include "agent_store.h"

namespace fm::agent {

std::string agent_store::statistics() const {
  heap_sums total;
  const std::string heaps = heaps_.statistics(total);
  const std::uint64_t expired = heaps_.expired();
  const std::uint64_t used = regions_.regions_in_use();
  return fmt::format(
      R"({{"name":{},"busy":{:.3f},"memory_bytes":{},"region_bytes":{},"regions_max":{},"regions_in_use":{},"regions_reserved":{},)"
      R"("memory_used_bytes":{},"sessions":{},"sessions_opened":{},"heaps_expired":{},)"
      R"("totals":{{"heaps":{},"regions":{},"live_bytes":{},"garbage_bytes":{},"metadata_bytes":{},"objects":{},"batches":{}}},)"
      R"("peers":{{{}}},"heaps":[{}],"pools":[{}],"spaces":{}}})",
      quoted(agent_.options.name), agent_.busy(), regions_.memory_bytes(), regions_.region_bytes(),
      regions_.regions_max(), used, regions_.regions_reserved(), used * regions_.region_bytes(), sessions_open_.load(),
      sessions_opened_.load(), expired, total.heaps, total.regions, total.live, total.garbage, total.metadata,
      total.objects, total.batches, peers_.statistics(), heaps, pools_.statistics(), spaces_.statistics());
}

}  // namespace fm::agent
