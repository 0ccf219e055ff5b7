// The pools of one agent, by tenant and name: opening them for clients, the leases of clients, pools without clients,
// background compaction, and their part of the statistics. A session that has opened a pool is a pool_session.
//
// Invariants owned here
//   - A pool is in the map from its making until it is closed; sessions may keep a closed one, which answers nothing.
//   - Nobody waits for the thread of a pool with replicas but the agent's end: such a pool is kept, closed, until that thread
//     has done what it had to. It asks other agents and the arbiter, which takes seconds if they are gone.
//   - A client speaks on one session: an earlier one is revoked and closed.
// Lock order: the map's mutex before a pool's locks (pool.h). Thread-safe; agent/service owns the one object.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "agent/base/environment.h"
#include "agent/base/random.h"
#include "pool.h"

namespace fm::agent {

class pools {
 public:
  pools(environment& e, region_pool& regions) : agent_(e), regions_(regions) {}
  pools(const pools&) = delete;
  pools& operator=(const pools&) = delete;

  /// For a session that has opened nothing; session::opening is held.
  errc open(session& s, std::span<const std::byte> b, fabric::answer& out);
  /// Leases of clients, notices again, pools without clients, and in each pool a step of freeing what has expired and one
  /// of compaction; true when there is more to do at once. Lowers `wake_at` to when it wants to be called again.
  bool maintain(time_point& wake_at);
  /// For the session of another agent, whose pool this one is to back up; as open.
  errc open_backup(session& s, std::span<const std::byte> b, fabric::answer& out);
  /// An administrator says that this agent goes on with a part of a pool. Returns what pool_keeper::survive does.
  [[nodiscard]] std::string survive(std::uint32_t instance, std::uint64_t term);
  /// The agent is drained, or is not any more (environment::drained).
  void drain();
  /// Pools without replicas, and parts of pools.
  [[nodiscard]] std::size_t count() const;
  /// Closes all pools; no session is left.
  void close();
  /// JSON: the pools, separated by commas.
  [[nodiscard]] std::string statistics() const;

 private:
  using pool_key = std::tuple<std::uint64_t, std::uint64_t, std::string, std::uint32_t>;  ///< tenant, name, slot
  using pool_map = std::map<pool_key, std::shared_ptr<pool>>;
  /// One that takes its place is made.
  std::shared_ptr<pool> make(const pool_open_body& m, std::uint64_t quota, std::uint32_t instance, std::uint32_t slot,
                             std::unique_ptr<pool_replication> replicas);
  errc join(session& s, const std::shared_ptr<pool>& p, const pool_open_body& m, fabric::answer& out);
  /// The bounded piece of maintain() for a pool; false: it has ended.
  bool maintain(const std::shared_ptr<pool>& p, time_point at, time_point& wake_at, bool& more);
  /// Pools that take up room: those that are ending, too, because each has a thread.
  [[nodiscard]] std::size_t taken() const { return by_name_.size() + ending_.size(); }

  environment& agent_;
  region_pool& regions_;
  mutable std::mutex mutex_;
  pool_map by_name_;
  std::vector<std::shared_ptr<pool>> ending_;  ///< mutex_; closed, and in no map
  random_source random_;                       ///< mutex_
  std::uint64_t self_ = 0;                     ///< mutex_; the number of this agent; 0: not needed yet
};

}  // namespace fm::agent
