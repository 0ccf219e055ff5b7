// fm::pool_options: everything that a pool is opened with. The first process that opens a pool decides the settings of
// the pool itself. fm::pool checks the options when it opens, and names the option that is out of its bounds.
// Application code fills them in. docs/reference/options.md lists the same fields in a table; a test compares them.
#pragma once

#include <array>
#include <cstdint>
#include <farmem/base/agent_event.h>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <functional>
#include <string>
#include <vector>

namespace fm {

namespace fabric {
class service;
}

/// Identifies the owner of a pool: a secret of 128 bits. A process that knows it can open the tenant's pools; keep it
/// from all others.
struct pool_tenant {
  std::array<std::uint64_t, 2> words{};  ///< the secret; all zero: none
  /// A new tenant from the operating system's random numbers.
  static pool_tenant random();
  /// The secret as 32 hexadecimal digits in lower case, to hand to other processes.
  [[nodiscard]] std::string text() const;
  /// The tenant that text() of it gave. Throws fm::error invalid_argument if the text is not one, or is all zeros.
  static pool_tenant parse(const std::string& text);
  /// As parse, without exceptions.
  [[nodiscard]] static result<pool_tenant> try_parse(const std::string& text) {
    return attempt([&] { return parse(text); });
  }
  /// Whether it is none: all zero.
  [[nodiscard]] constexpr bool is_empty() const noexcept { return (words[0] | words[1]) == 0; }
  /// Whether both are the same tenant.
  friend bool operator==(const pool_tenant&, const pool_tenant&) = default;
};

/// How objects of a size class get names that are unique within a block. The names decide which blocks can be merged.
enum class pool_identity : std::uint8_t {
  birth,      ///< the block and index that the object was born with; no two are equal, so any two blocks can be merged
  offset,     ///< as birth, but objects keep their offset: blocks that share one cannot be merged (CoRM-0, Mesh)
  random_8,   ///< a random number of 8 bits, as in CoRM; blocks that share one cannot be merged
  random_12,  ///< the same with 12 bits
  random_16,  ///< the same with 16 bits
};

/// How a class is named if random ids would be too short. They are if two half full blocks of the class could be merged
/// less than once in a hundred tries (CoRM, section 3.4).
enum class pool_fallback : std::uint8_t {
  birth,   ///< use pool_identity::birth
  offset,  ///< use pool_identity::offset. CoRM's hybrid scheme does so when a block has more slots than ids
  none,    ///< use the random ids all the same; a class with more slots than ids is not compacted
};

/// The identity of the size classes up to a size. A class whose slots are not 32 bytes or a multiple of 64 has the
/// identity of the next larger one whose slots are.
struct pool_class_identity {
  std::uint32_t slot_bytes = 0;                   ///< largest slot, in bytes, that this entry applies to
  pool_identity identity = pool_identity::birth;  ///< identity of those classes
};

/// The threshold of background compaction for the size classes up to a size, which holds for them as
/// pool_class_identity does.
struct pool_class_threshold {
  std::uint32_t slot_bytes = 0;  ///< largest slot, in bytes, that this entry applies to
  double compact_above = 0.5;    ///< share of free slots, in [0, 1], above which they are compacted; 0: never
};

/// Options of pool::alloc, for one object.
struct pool_alloc_options {
  /// The agent frees the object so long after it has made it, at most 365 days; see pool::expire_after. 0: it does not
  /// expire.
  duration expires_after = duration::zero();
};

/// Options of fm::pool. Sizes are bytes. The first process that opens a pool decides the pool's settings; the other
/// fields apply to this process.
struct pool_options {
  /// URLs of the agents, each named once: `local:`, `shm://PATH`, `tcp://HOST:PORT`, `verbs://HOST:PORT`. Allocations
  /// go to them in turn.
  std::vector<std::string> agents = {"local:"};
  /// Name of the pool, 1 to 47 bytes. Processes that give the same name and tenant share the pool.
  std::string name = "pool";
  /// Owner of the pool. It must be given: pool_tenant::random() for a new one, or the tenant of the process that made
  /// the pool. An empty one is refused with invalid_argument, because it would silently make a pool that nobody shares.
  pool_tenant tenant{};

  /// Agents that store each object, 1 or 2. With 2, each of `agents` has a part of the pool and another one of them a
  /// copy of that part: when an agent is lost, the other one goes on, and nothing that was acknowledged is lost. It costs
  /// twice the memory, and each change a message between the agents. All processes name the same agents in the same
  /// order, of one kind of address, none of them `local:`. See docs/how-to/replicas.md.
  std::uint32_t replicas = 1;

  // ---- settings of the pool ----
  std::uint64_t quota = 0;  ///< bytes on each agent; 0: as many as the agent gives
  std::uint64_t block =
      64 << 10;  ///< bytes of a block: a power of two, 4 KiB to 1 MiB; larger for objects over block / 8
  /// Allocators of each serving thread of an agent, 1 to 64, each with blocks of its own. The client's threads take
  /// turns.
  std::uint32_t arenas = 4;
  pool_identity identity =
      pool_identity::birth;  ///< identity of the size classes that identity_by_class does not cover
  /// Size classes with another identity, in rising order of slot_bytes. A class takes the first entry that is large
  /// enough.
  std::vector<pool_class_identity> identity_by_class{};
  pool_fallback fallback = pool_fallback::birth;  ///< identity of classes whose random ids would be too short
  /// Objects up to this size have a version in every cache line; larger ones have a checksum. 0: all have a checksum.
  std::uint32_t versions_upto = 0;
  double compact_above =
      0.5;  ///< share of free slots, in [0, 1], above which the agent compacts a class by itself; 0: never
  /// Size classes with another threshold, in rising order of slot_bytes. A class takes the first entry that is large
  /// enough, and compact_above if there is none. Agents of version 3.0 of the protocol refuse it as unsupported.
  std::vector<pool_class_threshold> compact_above_by_class{};
  duration keep = std::chrono::seconds(15);  ///< how long the pool stays after the last process has closed it

  // ---- of this process ----
  /// Promises that the transport reads each cache line as a whole, as network cards do. Reads of objects with versions
  /// then need not look at the header again.
  bool trust_lines = false;
  /// Time without a message, at least 1 ms, after which the agent reuses memory without waiting for this process.
  duration lease = std::chrono::seconds(15);
  duration access_within = std::chrono::seconds(10);    ///< deadline of each call to an agent
  duration memory_within = std::chrono::seconds(2);     ///< deadline of an allocation that waits for memory to return
  duration connect_within = std::chrono::seconds(5);    ///< opening: given up after so long without an answer
  duration reconnect_within = std::chrono::seconds(5);  ///< how long a broken connection is retried, then agent_lost
  /// Is called when an agent falls silent, returns, is lost, or takes over a part of a pool with replicas. Events of one part
  /// come in order, one at a time, on a thread of the pool that does nothing else. The function may use the pool and may
  /// block; it must not close the pool. An exception that it throws is logged. At most 256 events wait; further ones are
  /// dropped and counted in agent_event::missed.
  std::function<void(const agent_event&)> on_agent_event{};

  // ---- of `local:` ----
  std::uint64_t local_memory = 256ull << 20;  ///< bytes of memory of the agent in this process
  std::uint64_t local_region = 16ull << 20;   ///< bytes of its regions, a power of two
  /// An agent in this process that several pools share. Null: the pool starts one of its own for `local:`.
  fabric::service* in_process = nullptr;
};

}  // namespace fm
