// fm::testing::agent: an agent in the test's own process that stalls, loses requests, fills, dies and comes back on command.
// For tests of programs that use farmem: how they behave when an agent does is their own to test.
//
// It is the agent of farmem-agent behind tcp:// on the loopback address, so heaps, pools and paged ranges that use it go
// the way that they go in production. For evictions and collections on command, see fm::heap::evict_all, collect and
// collect_young.
#pragma once

#include <cstdint>
#include <farmem/base/units.h>
#include <memory>
#include <string>

namespace fm::testing {

/// What an agent for tests has.
struct agent_options {
  std::uint64_t memory = 256_MiB;  ///< bytes for regions of all heaps, pools and paged ranges; touched when used
  std::uint64_t region = 1_MiB;    ///< bytes of a region, a power of two from 64 KiB to 32 MiB
};

/// An agent in this process. Its destructor ends it, as die() does. All members are thread-safe.
class agent {
 public:
  /// Starts one that listens at an address of its own. Throws fm::error: invalid_argument, out_of_memory.
  explicit agent(const agent_options& options = {});
  ~agent();
  /// Not copyable.
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;

  /// Where it listens, such as "tcp://127.0.0.1:41234", for heap_options::agents and the like. The same after restart().
  [[nodiscard]] const std::string& url() const noexcept;

  /// From now on it is silent: connections stay, and what arrives waits for resume(), for ten minutes at most.
  void stall();
  /// Goes on after stall(), with what has waited first.
  void resume();
  /// Returns true when something that has arrived waits because of stall(), false if nothing has within a minute.
  [[nodiscard]] bool until_stalled();

  /// Breaks all connections at once. Owners connect again, and find all that is theirs.
  void disconnect();
  /// The next `count` requests are lost, each with its connection: of half of them the answers alone.
  void lose(std::uint32_t count);

  /// While `full` is true, heaps get no new regions: what they write is refused with agent_full when the regions that
  /// they have are used up.
  void set_full(bool full);

  /// Ends it: all connections break, nobody listens, and what it stored is gone. Returns when that is so. Has no effect
  /// on one that is dead.
  void die();
  /// Starts it again at the same address, after die(), with nothing stored: as a machine that was switched off. Throws
  /// fm::error: refused when something else has taken the address meanwhile.
  void restart();

  /// Messages and one-sided operations that have arrived since it was made.
  [[nodiscard]] std::uint64_t requests() const noexcept;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace fm::testing
