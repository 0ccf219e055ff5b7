// How much memory this process may lock. Registering memory with an RDMA device locks it.
//
// Invariant: the limit and the use are read anew at each call, so the answer is that moment's. The doctor and the verbs
// transport call it, from any thread.
#pragma once

#include "base/base.h"

namespace fm::os {

struct memlock {
  bool unlimited = false;  ///< no limit is set, or the process may ignore it (CAP_IPC_LOCK)
  std::uint64_t limit_bytes = 0;
  std::uint64_t locked_bytes = 0;  ///< pinned for devices included
};
memlock memlock_now() noexcept;

/// What to say to somebody whose limit is too low.
constexpr const char* memlock_fix =
    "raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in the systemd unit, or a memlock line in "
    "/etc/security/limits.conf";

}  // namespace fm::os
