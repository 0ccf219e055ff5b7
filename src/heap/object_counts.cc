// Objects by type, for heap.stats(detail_level::types). Agents count the home copies that they store, and answer which
// slots those are of. Of all other slots, the frames count.
//
// Invariant owned here: an object that lives all the while is counted once. A step is a few thousand slots. Nothing is
// held between two steps but the pages of the table, which are not given back meanwhile.
#include "cache/collections/object_counts.h"
#include "heap/heap_core.h"

#include <algorithm>
#include <map>

namespace fm::detail {

namespace {

class counted_types {
 public:
  void stored(const protocol::census_record& r) {
    type_stats& t = at(r.type);
    t.objects += r.objects;
    t.bytes += r.bytes;
  }
  void resident(const resident_object& o) {
    type_stats& t = at(o.type);
    ++t.objects;
    t.bytes += o.bytes;
    ++t.resident_only_objects;
    t.resident_only_bytes += o.bytes;
  }
  std::vector<type_stats> sorted() {
    std::vector<type_stats> all;
    for (auto& [id, t] : types_) all.push_back(std::move(t));
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return all;
  }

 private:
  type_stats& at(std::uint32_t id) {
    const auto [it, fresh] = types_.try_emplace(id);
    if (fresh) it->second.name = name_of_type(id);
    return it->second;
  }
  std::map<std::uint32_t, type_stats> types_;
};

}  // namespace

void heap_core::count_types(heap_stats& out) {
  constexpr std::uint32_t step = protocol::census_slots_max;
  const held_pages held(cache_->collections());
  counted_types types;
  std::vector<resident_object> aside, near;
  list_aside(*cache_, aside);
  std::sort(aside.begin(), aside.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
  auto next_aside = aside.begin();
  std::vector<bool> silent(links_.size());  // agents that do not answer
  std::vector<std::uint64_t> stored;
  std::vector<protocol::census_record> records;
  std::vector<std::uint32_t> tablets = cache_->slots().tablets();
  std::sort(tablets.begin(), tablets.end());
  for (const std::uint32_t tablet : tablets)
    for (std::uint64_t at = 0; at < tablet_slots; at += step) {
      const slot_t first = std::uint64_t{tablet} * tablet_slots + at;
      const std::uint32_t agent = tablet_info_of(first).agent.load(std::memory_order_relaxed);
      // Frames first: what has none then has a home copy, and keeps it until it is dead.
      near.clear();
      list_resident(*cache_, first, step, near);
      if (silent[agent] || links_[agent]->census(first, step, stored, records) != errc::ok) {
        silent[agent] = true;
        stored.assign(step / 64, 0);
        records.clear();
      }
      for (const protocol::census_record& r : records) types.stored(r);
      const auto count = [&](const resident_object& o) {
        const std::uint64_t i = o.slot - first;
        if ((stored[i / 64] >> (i % 64) & 1) == 0) types.resident(o);
      };
      for (const resident_object& o : near) {
        for (; next_aside != aside.end() && next_aside->slot < o.slot; ++next_aside) count(*next_aside);
        if (next_aside != aside.end() && next_aside->slot == o.slot) ++next_aside;  // back in the table
        count(o);
      }
      for (; next_aside != aside.end() && next_aside->slot < first + step; ++next_aside) count(*next_aside);
    }
  out.types = types.sorted();
  out.agents_not_counted = static_cast<std::uint32_t>(std::count(silent.begin(), silent.end(), true));
}

}  // namespace fm::detail
