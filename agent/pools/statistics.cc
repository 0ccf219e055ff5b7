// Counts of pools: to a pool's clients as records, to the administrator as JSON.
// A pool's structure is held for a moment, so the counts of one pool belong together.
// Called by pool_session and by the agent's statistics.
#include <fmt/format.h>

#include "pool_keeper.h"
#include "pool_session.h"
#include "pools.h"

namespace fm::agent {

errc pool_session::statistics(pool& p, fabric::answer& out) {
  const pool_blocks& k = *p.blocks;
  std::uint64_t allocations = 0, frees = 0;
  std::vector<pool_class_record> classes;
  for (const std::uint32_t c : blocks::classes_in_order) {
    const auto& n = k.counts(c);
    allocations += n.allocated;
    frees += n.freed;
    if (!k.layout().exists(c) || (n.frames == 0 && n.merges_tried == 0)) continue;
    classes.push_back({c, blocks::slot_bytes(c), k.layout().block(c), static_cast<std::uint16_t>(k.naming(c)),
                       static_cast<std::uint16_t>(k.compactable(c) ? 1 : 0), n.frames, n.frames * k.layout().slots(c),
                       n.objects(), n.payload_bytes, n.vblocks - n.frames, n.merges_tried, n.merges_made,
                       n.merges_in_conflict, n.ids_in_conflict, n.objects_moved, n.slots_kept});
  }
  const pool_statistics_answer a{p.quota_bytes,
                                 p.frames->used_bytes(),
                                 k.grave_bytes(),
                                 k.books_bytes(),
                                 p.frames->regions(),
                                 p.frames->regions() * p.frames->region_bytes(),
                                 k.epoch(),
                                 k.vblocks_mapped(),
                                 k.vblocks_reused(),
                                 k.vblocks_retired(),
                                 allocations,
                                 frees,
                                 p.count.writes,
                                 p.count.reads,
                                 p.count.releases,
                                 p.count.steps,
                                 p.count.step_ns_max,
                                 static_cast<std::uint32_t>(p.clients.size()),
                                 static_cast<std::uint32_t>(p.count.fenced),
                                 static_cast<std::uint32_t>(classes.size()),
                                 0};
  begin_answer(out, message_type::pool_statistics, &a, sizeof a);
  append_answer(out, classes.data(), classes.size() * sizeof(pool_class_record));
  return errc::ok;
}

errc pool_session::replicas(const pool& p, fabric::answer& out) {
  constexpr auto type = message_type::pool_replicas;
  if (p.replicas == nullptr) return refuse(out, type, errc::unsupported, "the pool has no replicas");
  const std::string backup = p.replicas->keeper->backup();
  const pool_replicas_answer a{p.replicas->members.term(), backup.empty() ? 0u : 1u, 0};
  begin_answer(out, type, &a, sizeof a);
  append_answer(out, backup.data(), backup.size());
  return errc::ok;
}

errc pool_session::expiries(const pool& p, fabric::answer& out) {
  const pool_expiries_answer a{p.blocks->expiring(), p.blocks->expired()};
  begin_answer(out, message_type::pool_expiries, &a, sizeof a);
  return errc::ok;
}

namespace {

std::string replicas_of(const pool& p) {
  if (p.replicas == nullptr) return {};
  return fmt::format(R"(,"instance":"{:08x}","role":{},"term":{},"backup":{})", p.instance,
                     quoted(to_string(p.replicas->members.role())), p.replicas->members.term(),
                     quoted(p.replicas->keeper->backup()));
}

}  // namespace

std::string pools::statistics() const {
  std::string all;
  std::lock_guard pools_lock(mutex_);
  for (const auto& [key, p] : by_name_) {
    std::lock_guard lock(p->structure);
    std::uint64_t objects = 0, bytes = 0, merges = 0, allocations = 0, frees = 0;
    for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
      const auto& n = p->blocks->counts(c);
      objects += n.objects();
      bytes += n.payload_bytes;
      merges += n.merges_made;
      allocations += n.allocated;
      frees += n.freed;
    }
    if (!all.empty()) all += ',';
    all += fmt::format(
        R"({{"name":{},"clients":{},"clients_fenced":{},"quota_bytes":{},"region_memory_bytes":{},"frame_bytes":{},)"
        R"("waiting_bytes":{},"books_bytes":{},"objects":{},"live_bytes":{},"merges":{},"allocations":{},"frees":{},"writes":{},"reads":{},)"
        R"("expiring":{},"expired":{}{}}})",
        quoted(p->name), p->clients.size(), p->count.fenced, p->quota_bytes,
        p->frames->regions() * p->frames->region_bytes(), p->frames->used_bytes(), p->blocks->grave_bytes(),
        p->blocks->books_bytes(), objects, bytes, merges, allocations, frees, p->count.writes.load(),
        p->count.reads.load(), p->blocks->expiring(), p->blocks->expired(), replicas_of(*p));
  }
  return all;
}

}  // namespace fm::agent
