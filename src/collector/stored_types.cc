// Sampling and estimating; see stored_types.h.
#include "collector/stored_types.h"

#include "base/log.h"
#include "cache/collections/object_counts.h"
#include "cache/object_cache.h"

#include <algorithm>

namespace fm::detail {

void stored_types::count(const std::function<bool()>& stop) noexcept {
  object_cache::links& links = cache_.agents();
  const time_point begun = clock::now();
  if (links.size() < 2 || begun < next_) return;
  try {
    by_agent_.resize(links.size());
    for (std::uint32_t agent = 0; agent < links.size(); ++agent) {
      counts fresh;
      if (links[agent]->lost() || !count_agent(agent, fresh, stop)) continue;
      by_agent_[agent] = std::move(fresh);
    }
    ++round_;
  } catch (const std::exception& e) {
    log::debug("the types that agents store are not counted: {}", e.what());
  }
  const time_point ended = clock::now();
  next_ = ended + limits::rest_after_census * (ended - begun);
}

bool stored_types::count_agent(std::uint32_t agent, counts& out, const std::function<bool()>& stop) {
  constexpr std::uint64_t each = limits::census_sample_slots;
  static_assert(tablet_slots % each == 0 && each <= protocol::census_slots_max && each % page_slots == 0);
  std::vector<std::uint32_t> tablets = cache_.slots().tablets();
  std::erase_if(tablets,
                [&](std::uint32_t t) { return hit.tablets[t].agent.load(std::memory_order_relaxed) != agent; });
  std::sort(tablets.begin(), tablets.end());
  const std::uint64_t per_tablet = tablet_slots / each, all = tablets.size() * per_tablet;
  const std::uint64_t asked = std::min<std::uint64_t>(all, samples_max_);
  std::vector<std::uint64_t> stored;
  std::vector<protocol::census_record> records;
  for (std::uint64_t i = 0; i < asked; ++i) {
    if (stop()) return false;
    const std::uint64_t at = (i * all / asked + round_) % all;
    const slot_t first = tablets[at / per_tablet] * tablet_slots + at % per_tablet * each;
    if (cache_.agents()[agent]->census(first, static_cast<std::uint32_t>(each), stored, records) != errc::ok)
      return false;
    for (const protocol::census_record& r : records) out[r.type] += r.objects;
  }
  return true;
}

std::vector<lost_type> stored_types::estimate(std::uint32_t agent, std::uint64_t lost) const {
  if (agent >= by_agent_.size()) return {};
  std::uint64_t sum = 0;
  for (const auto& [type, objects] : by_agent_[agent]) sum += objects;
  if (sum == 0 || lost == 0) return {};
  std::vector<lost_type> out;
  std::uint64_t seen = 0, given = 0;
  for (const auto& [type, objects] : by_agent_[agent]) {
    // By running sums, so that the counts add up to `lost`.
    seen += objects;
    const auto upto = static_cast<std::uint64_t>(static_cast<unsigned __int128>(lost) * seen / sum);
    if (upto != given) out.push_back({name_of_type(type), upto - given});
    given = upto;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const lost_type& a, const lost_type& b) { return a.objects > b.objects; });
  return out;
}

}  // namespace fm::detail
