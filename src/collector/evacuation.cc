// Asking agents to evacuate; see evacuation.h.
#include "evacuation.h"

#include "base/limits.h"

#include <algorithm>
#include <new>

namespace fm::detail {

// A program's word for an order is the wire's.
static_assert(static_cast<std::uint32_t>(evacuation_order::address) ==
                  static_cast<std::uint32_t>(protocol::evacuation_order::address) &&
              static_cast<std::uint32_t>(evacuation_order::depth_first) ==
                  static_cast<std::uint32_t>(protocol::evacuation_order::depth_first) &&
              static_cast<std::uint32_t>(evacuation_order::breadth_first) ==
                  static_cast<std::uint32_t>(protocol::evacuation_order::breadth_first));

bool evacuation::ask(remote::agent_session& link, const protocol::evacuate_body& message, cycle_part& part,
                     bool& ended) noexcept {
  protocol::evacuate_answer a{};
  part.evacuation = link.evacuate(message, clock::now() + owner_.options().call_within, a);
  ended = part.evacuation != errc::ok || a.done != 0;
  if (part.evacuation != errc::ok) return false;
  const bool moved = a.objects != part.evacuated_objects || a.cpu_ns != part.evacuation_ns;
  part.order = static_cast<evacuation_order>(a.order);
  part.evacuated_objects = a.objects;
  part.evacuated_bytes = a.bytes;
  part.sparse_regions = a.regions;
  part.emptied_regions = a.emptied;
  part.evacuation_ns = a.cpu_ns;
  part.left_behind = a.left_behind != 0;
  return moved;
}

bool evacuation::is_in_the_way() const noexcept {
  if (owner_.stopping() || cache_.closed()) return true;
  if (cache_.losses().is_look_due()) return true;
  if (what_ == evacuate::all) return false;  // somebody waits for all of it
  return owner_.is_wanted() || cache_.requests().awaits_collection();
}

void evacuation::run() noexcept {
  const evacuation_options& options = owner_.options().evacuation;
  const auto below = what_ == evacuate::all
                         ? protocol::evacuation_whole
                         : static_cast<std::uint32_t>(options.below_live_ratio * protocol::evacuation_whole);
  if (below == 0) return;
  const time_point begin = clock::now();
  try {
    ask_all({report_.number, static_cast<std::uint32_t>(options.order), below});
  } catch (const std::bad_alloc&) {
    for (cycle_part& part : report_.agents) part.evacuation = errc::out_of_memory;
  }
  report_.evacuate_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
}

void evacuation::ask_all(const protocol::evacuate_body& message) {
  // The report's parts are of the agents that were not lost when the cycle began, in their order.
  struct asked {
    remote::agent_session* link;
    cycle_part* part;
    bool ended = false;
  };
  std::vector<asked> agents;
  for (auto& link : cache_.agents())
    if (agents.size() < report_.agents.size() && !link->lost() && link->url() == report_.agents[agents.size()].agent)
      agents.push_back({link.get(), &report_.agents[agents.size()]});
  for (std::size_t i = agents.size(); i < report_.agents.size(); ++i) report_.agents[i].evacuation = errc::agent_lost;

  time_point progress = clock::now();
  duration look_again = limits::look_again_first;
  for (;;) {
    const std::uint32_t seen = owner_.times_traced();
    bool moved = false;
    for (asked& a : agents)
      if (!a.ended) moved |= ask(*a.link, message, *a.part, a.ended) || a.ended;
    if (std::all_of(agents.begin(), agents.end(), [](const asked& a) { return a.ended; })) return;
    if (moved) {
      progress = clock::now();
      look_again = limits::look_again_first;
    }
    const bool hangs = clock::now() - progress > owner_.options().call_within;
    if (hangs || is_in_the_way()) {
      for (const asked& a : agents)
        if (!a.ended) a.part->evacuation = hangs ? errc::timed_out : errc::cancelled;
      return;
    }
    owner_.wait_traced(seen, look_again);
    look_again = std::min<duration>(look_again * 2, limits::look_again_most);
  }
}

}  // namespace fm::detail
