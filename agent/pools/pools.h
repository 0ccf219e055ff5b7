// The pools of one agent, by tenant and name: opening them for clients, the leases of clients, pools without clients,
// background compaction, and their part of the statistics. A session that has opened a pool is a pool_session.
//
// Invariants owned here
//   - A pool is in the map from its making until it is closed; sessions may keep a closed one, which answers nothing.
//   - A client speaks on one session: an earlier one is revoked and closed.
// Lock order: the map's mutex before a pool's locks (pool.h). Thread-safe; agent/service owns the one object.
#pragma once

#include <map>
#include <tuple>

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
  /// Closes all pools; no session is left.
  void close();
  /// JSON: the pools, separated by commas.
  [[nodiscard]] std::string statistics() const;

 private:
  environment& agent_;
  region_pool& regions_;
  mutable std::mutex mutex_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::string>, std::shared_ptr<pool>> by_name_;  ///< tenant, name
  random_source random_;                                                                            ///< mutex_
};

}  // namespace fm::agent
