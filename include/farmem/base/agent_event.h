// fm::agent_event: what heaps, pools and paged ranges tell a program of their agents.
// Values, which the program may keep.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fm {

/// What happened to an agent of a heap, of a pool or of a paged range. Pools tell `silent`, `back`, `lost` and `taken_over`.
enum class agent_change : std::uint8_t {
  silent,      ///< its connection is gone; accesses to it wait
  back,        ///< it is connected again, and nothing was lost
  full,        ///< it refuses memory; told again only after it gave some; of heaps
  lost,        ///< it answered with nothing of the heap, pool or range, or was gone for too long
  rehomed,     ///< it was lost, and its slots have other agents; objects that only it had are lost; of heaps
  leaving,     ///< it asks to be left (farmem-agent --drain): what it stores moves to the others
  staying,     ///< it does not ask for that any more
  left,        ///< it stores nothing of the heap or range any more, which is closed there
  added,       ///< it is one of the agents from now on
  replicated,  ///< of all agents: each object or page is stored on `replicas` of them again
  taken_over,  ///< it serves a part of the pool that another agent served, with all that was acknowledged; of pools
};

/// The name of the enumerator, for logs. O(1).
std::string_view to_string(agent_change change) noexcept;

/// Lost objects of one type, of agent_event::lost_types.
struct lost_type {
  std::string name;           ///< as the program spells it; an array of T is "T[]"
  std::uint64_t objects = 0;  ///< about how many are lost
};

/// Is told to heap_options::on_agent_event, pool_options::on_agent_event and paged_options::on_agent_event.
struct agent_event {
  agent_change change = agent_change::silent;  ///< what happened
  std::string agent;                           ///< URL of the agent
  std::uint64_t tablets = 0;  ///< of `rehomed`: tablets, of 65,536 slots each, that have other agents now
  std::uint64_t promoted_tablets =
      0;                           ///< of `rehomed`: those of them that a backup took over, so nothing of them is lost
  std::uint64_t lost_objects = 0;  ///< of `rehomed`: objects that are lost, garbage included
  /// Of `rehomed`: the types of the lost objects, most objects first. The counts add up to `lost_objects`. They are an
  /// estimate: in proportion to what the agent stored when the last full collection ended, of up to 262,144 of its
  /// slots. Empty if no collection has ended before the loss.
  std::vector<lost_type> lost_types;
  std::uint64_t missed = 0;  ///< events before this one that nobody was told of, because too many waited
};

}  // namespace fm
