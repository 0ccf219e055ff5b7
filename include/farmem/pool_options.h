// What a pool is opened with.
#pragma once

#include <array>
#include <cstdint>
#include <farmem/error.h>
#include <farmem/units.h>
#include <string>
#include <vector>

namespace fm {

namespace fabric {
class service;
}

/// Whose pool it is: 128 bits that entitle to the tenant's pools, so whoever must not read them must not know it.
struct pool_tenant {
  std::array<std::uint64_t, 2> words{};
  /// A new one, of the operating system's random numbers.
  static pool_tenant random();
  /// 32 hexadecimal digits, to hand to other processes, and back. Throws fm::error (invalid_argument).
  [[nodiscard]] std::string text() const;
  static pool_tenant parse(const std::string& text);
  friend bool operator==(const pool_tenant&, const pool_tenant&) = default;
};

/// How objects of one size class get names that are unique in a block, and so which blocks can be merged.
enum class pool_identity : std::uint8_t {
  birth,     ///< the block and index that they were born with: unique for nothing; any two blocks can be merged
  offset,    ///< the same, but objects stay at their offset: blocks with one in common cannot be merged (CoRM-0, Mesh)
  random_8,  ///< CoRM's: a random number of so many bits; blocks with a number in common cannot be merged
  random_12,
  random_16,
};

/// What classes do whose blocks have so many slots that two half full ones could not be merged once in a hundred times
/// with the random ids that are wanted (CoRM, sections 3.1.2 and 4.4.1).
enum class pool_fallback : std::uint8_t {
  birth,   ///< use pool_identity::birth
  offset,  ///< use pool_identity::offset: CoRM's hybrid scheme
  none,  ///< use the ids all the same, and are not compacted when there are more slots than ids: CoRM without a scheme
};

/// Of the classes whose slots have at most so many bytes.
struct pool_class_identity {
  std::uint32_t slot_bytes = 0;
  pool_identity identity = pool_identity::birth;
};

struct pool_options {
  std::vector<std::string> agents = {"local:"};  ///< allocations go to them in turn
  std::string name = "pool";                     ///< at most 47 bytes; with the tenant, what processes share a pool by
  /// Of the pool's owner; zero words: a new random one, which pool::tenant() tells.
  pool_tenant tenant{};

  // ---- settings of the pool; whoever opens it first decides them ----
  std::uint64_t quota = 0;         ///< bytes on each agent; 0: what it gives
  std::uint64_t block = 64 << 10;  ///< power of two, 4 KiB to 1 MiB; larger for objects over an eighth of it
  /// 1 to 64: allocators that each serving thread of an agent has, with blocks of their own; the client's threads take turns.
  std::uint32_t arenas = 4;
  pool_identity identity = pool_identity::birth;
  /// Size classes that differ, in rising order of slot_bytes; what is larger than the last one has `identity`.
  std::vector<pool_class_identity> identity_by_class{};
  pool_fallback fallback = pool_fallback::birth;
  /// Objects up to so many bytes have a version in every cache line; larger ones a checksum. 0: all have checksums.
  std::uint32_t versions_upto = 0;
  double compact_above = 0.5;  ///< share of free slots in a class above which it is compacted unasked; 0: never
  duration keep = std::chrono::seconds(15);  ///< how long the pool stays when nobody has it open

  // ---- of this process ----
  /// The transport reads a cache line as a whole (network cards do), so versions need no second look at the header.
  bool trust_lines = false;
  duration lease = std::chrono::seconds(15);  ///< unheard of for so long, this process holds no frames back any more
  duration access_within = std::chrono::seconds(10);  ///< deadline of everything that asks an agent
  duration memory_within = std::chrono::seconds(2);   ///< an allocation waits so long for memory to come back
  duration connect_within = std::chrono::seconds(5);
  duration reconnect_within = std::chrono::seconds(5);  ///< after that a broken agent is lost

  // ---- of `local:` ----
  std::uint64_t local_memory = 256ull << 20;
  std::uint64_t local_region = 16ull << 20;
  /// An agent in this process (fm::agent::store::create) for `local:`, that several pools share; null: one of the pool's own.
  fabric::service* in_process = nullptr;
};

}  // namespace fm
