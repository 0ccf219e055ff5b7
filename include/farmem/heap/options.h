// fm::heap_options: everything that a heap can be opened with. fm::heap copies the options and checks them when it
// opens; changing them later has no effect.
// Application code fills them in. docs/reference/options.md lists the same fields in a table; a test compares them.
#pragma once

#include <farmem/base/agent_event.h>
#include <farmem/base/units.h>
#include <farmem/heap/collect.h>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fm {

/// How heap::detach leaves a heap at its agents.
struct detach_options {
  /// The name by which it is found again, 1 to 63 bytes. At an agent one heap waits under a name.
  std::string name;
  /// Who attaches the heap has to know it; up to 63 bytes. It travels as it is: on a network that others read it protects
  /// from mistakes alone.
  std::string secret;
  /// How long the agents keep the heap without an owner; at most what farmem-agent --keep-detached says.
  duration keep_for = std::chrono::hours(24);
  /// How long what has changed may take to be written home.
  duration within = std::chrono::minutes(10);
};

/// Which heap heap::attach takes over, and how.
struct attach_options {
  /// As detach_options::name.
  std::string name;
  /// As detach_options::secret.
  std::string secret;
  /// URLs of agents that stored the heap and do not answer any more. Their objects are had from replicas. A heap is not
  /// attached without all of its other agents.
  std::vector<std::string> lost;
};

/// Options of fm::heap. Every field has a default that works on any machine. Sizes are bytes.
struct heap_options {
  /// Bytes of local memory for objects, at least 8 segments. Frames of resident objects live here.
  std::uint64_t cache = 256ull << 20;
  /// Bytes that heap::resize_cache may give the cache at most. 0: `cache`. Costs address space, four times as much, and
  /// records: 480 bytes for each segment, and up to 8 KiB for each MiB. `verbs://` without on-demand paging locks no more than the cache has.
  std::uint64_t cache_max = 0;
  /// URLs of the agents: `local:` (an agent in this process), `shm://PATH`, `tcp://HOST:PORT`, `verbs://HOST:PORT`.
  /// Objects are spread over all of them.
  std::vector<std::string> agents = {"local:"};
  /// Agents that store each object, 1 to 4. With 2, an agent may die: its objects are served by the others, no access fails,
  /// and the heap copies them to another agent. Each replica costs its share of the agents' memory, and a write-back of
  /// every object once more; accesses to resident objects and misses cost the same.
  std::uint32_t replicas = 1;
  /// If fewer agents than this store an object, what is written to it stays in the cache until there are enough again. 1:
  /// the heap goes on with fewer. Accesses that find no room then throw cache_full; evict_all returns under_replicated.
  std::uint32_t min_replicas = 1;
  /// With `replicas` of 2 and more: no two agents of one zone (farmem-agent --zone) store an object. A heap that has too few
  /// zones is not opened (invalid_argument); one that loses a zone stores objects on fewer agents. Otherwise replicas share
  /// a zone where it cannot be helped, and a warning says so.
  bool strict_zones = false;
  /// Moves objects from the fullest agent to the emptiest one when their shares of memory in use differ by a fifth, after an
  /// agent was added, say; and from an agent whose processors have been overloaded for 15 seconds to one that is far less
  /// busy. Beside the program, and to agents of other zones only where that was so.
  bool rebalance = true;
  /// With `replicas` of 2 and more: an agent that is silent or cannot be reached for so long is given up if the agents that
  /// have its objects answer. It is lost then, even if it comes back.
  duration suspect_within = std::chrono::milliseconds(500);
  /// Bytes of memory that the agent in this process gives to heaps. Only for `local:`.
  std::uint64_t local_memory = 1ull << 30;
  /// Bytes of a region of the agent in this process, a power of two. Only for `local:`.
  std::uint64_t local_region = 16ull << 20;
  /// Name of the heap in the agents' logs and status, at most 47 bytes. Empty: the name of the program.
  std::string name;
  /// Bytes wanted on each agent. 0: as many as the agent gives to one heap.
  std::uint64_t quota = 0;
  /// Bytes of a cache segment, a power of two from 4 KiB. 0: 1 MiB, halved down to 64 KiB while the cache has fewer
  /// than 64.
  std::uint64_t segment = 0;
  /// Slots of the process's heap indirection table (HIT), which the first heap of the process reserves. 0: the
  /// environment variable FARMEM_SLOTS, or 2^40. A later heap that asks for more throws slots_exhausted.
  std::uint64_t slots = 0;
  /// Bytes of the HIT (8 a slot) to keep in memory. 0: all. Above this limit, the heap gives back pages of the table
  /// that name few resident objects. When such a page is needed again, the heap asks the agents.
  std::uint64_t hit = 0;
  /// A page of the HIT (512 slots) may be given back if it names at most this many resident objects. Only with `hit`.
  std::uint32_t hit_residents = 64;
  /// Starts collections when enough has been allocated. If false, only heap::collect and its kin do.
  bool collect = true;
  /// Bytes allocated between two collections; bytes of young objects that were freed in between are subtracted. 0: the
  /// heap chooses `max(live bytes, 32 MiB, cache / 2)`. It chooses at most half of the room that the agents have left,
  /// and at least 1 MiB.
  std::uint64_t collect_every = 0;
  /// Collects young objects between two full collections, without the agents. A young object was never written back,
  /// and no object that was written back refers to it. Such a collection starts when `cache / 8` has been allocated and
  /// less than half of the cache is free. It also starts when `min(8 MiB, cache / 8)` has been allocated in objects of
  /// at least 1 KiB on average. If such collections free little, they start less often. Only with `collect`;
  /// `collect_share` does not apply.
  bool collect_young = true;
  /// Starts the next collection when the last one has ended and 1 MiB has been allocated since, or one second has
  /// passed. Garbage is found soonest, and the agents trace all the time (Semeru, section 4). Only with `collect`.
  bool collect_continuously = false;
  /// Share of a core, in (0, 1], that a collection takes while no thread waits for it. 1: all that it can use.
  double collect_share = 0.1;
  /// Verifies both sides before, within and after every collection, beside the program. Slow: for tests and debugging.
  /// The heap logs each contradiction and counts it in cycle_report::faults.
  bool verify_cycles = false;
  /// While they trace, agents send references to each other's objects to each other directly. References go through
  /// this process if this is false, if an agent cannot reach another, or if an agent's setting `peers` is false.
  bool agents_talk = true;
  /// Which regions the agents evacuate after each collection, and in which order they copy the objects.
  evacuation_options evacuation;
  /// Probability, in [0, 1], that a segment of fetched objects stays as if they had been used again: epsilon of dcm,
  /// section 3.2. It is not done where objects come back soon after they left, and one segment in two stays as long as few
  /// objects have been used again. More helps loops that are longer than the cache, less helps everything else. 0: none.
  double promote_probability = 0.05;
  /// Fetches neighbours of a missed object where they have been used before (dcm, section 4).
  bool elastic = true;
  /// Evicts ahead of need, on a thread of its own. If false, allocating threads evict.
  bool background_evictor = true;
  /// How long nothing comes before an access that misses throws timed_out or agent_lost: answers to earlier fetches on
  /// the same connection put that off, to at most six times as long in all.
  duration access_within = std::chrono::seconds(10);
  /// How long nothing moves before an allocation that waits for memory throws cache_full; at most six times that in all.
  duration memory_within = std::chrono::seconds(5);
  /// How long a broken connection is retried. After it, the agent counts as lost (agent_lost).
  duration reconnect_within = std::chrono::seconds(5);
  /// Opening a connection is given up when its agent has answered nothing for so long.
  duration connect_within = std::chrono::seconds(5);
  /// Is called when an agent falls silent, returns, is full or lost, and when its slots have other agents. Events come
  /// in order, one at a time, on a thread of the heap that does nothing else, outside of scopes. The function may use
  /// the heap and may block; it must not close the heap. An exception that it throws is logged. At most 256 events
  /// wait; further ones are dropped and counted in agent_event::missed.
  std::function<void(const agent_event&)> on_agent_event;
  /// `verbs://`: lets the device page cache memory in on demand instead of locking it. If the device cannot, the heap
  /// logs a warning that names it and locks the memory.
  bool on_demand_paging = false;
  /// Core dumps have the cache and the used part of the HIT, so that a debugger shows resident objects in them. If false,
  /// dumps leave both out: a dump is small, and has few objects of the program in it.
  bool dump_cache = false;
};

}  // namespace fm
