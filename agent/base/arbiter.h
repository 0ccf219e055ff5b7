// Who goes on when the two agents of a pool with replicas do not hear each other: a register outside of both, which says
// who is in the pair. It is changed by comparing and setting, so of two agents that want to go on one does.
//
// The program's is etcd (agent/program/etcd.h). Without an arbiter nobody goes on by itself: an administrator says who
// does (`farmem-agent --survive`).
//
// Nothing here depends on time: a register that cannot be reached decides nothing, and a pair whose agents hear each other
// does not need it.
#pragma once

#include "base/base.h"

#include <cstdint>
#include <string>

namespace fm::agent {

/// What the register says of one pool. All zero: nothing yet.
struct pair_record {
  std::uint64_t term = 0;
  std::uint64_t primary = 0;  ///< an agent, by its random number
  std::uint64_t backup = 0;   ///< 0: none
  friend bool operator==(const pair_record&, const pair_record&) = default;
};

class pool_arbiter {
 public:
  pool_arbiter() = default;
  pool_arbiter(const pool_arbiter&) = delete;
  pool_arbiter& operator=(const pool_arbiter&) = delete;
  virtual ~pool_arbiter() = default;

  /// Sets the record of that name to `next` if it is `before`. Returns ok if it is `next` now, whoever has set it;
  /// conflict if it is anything else, which is in `now` then; unreachable if that is not known: it may have been set,
  /// and may still be. Takes at most a second. Thread-safe.
  virtual errc change(const std::string& name, const pair_record& before, const pair_record& next,
                      pair_record& now) noexcept = 0;
  /// Forgets a record if it is `last`: its pool has ended.
  virtual void forget(const std::string& name, const pair_record& last) noexcept = 0;
};

}  // namespace fm::agent
