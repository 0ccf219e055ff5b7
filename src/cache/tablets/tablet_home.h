// Which agent a tablet's objects are read from, as a thread saw it that is about to read there.
//
// Invariant owned here: whoever reads at home, or stores an address of a home copy, has looked in the same section, found
// the home open, and looks again after it has left the section in between (is_still). So a grace period after a tablet
// was closed nobody is left who would put an address of the old agent into its words, but for fetches that its words name
// (src/cache/replicas/handover.h).
//
// A tablet whose agent is lost is not closed: its session tells.
#pragma once

#include "table/table.h"

namespace fm::detail {

class tablet_home {
 public:
  // The count first: who sees the one of an open tablet sees the agent that it was opened with.
  explicit tablet_home(slot_t slot) noexcept
      : info_(tablet_info_of(slot)),
        handovers_(info_.handovers.load(std::memory_order_acquire)),
        agent_(info_.agent.load(std::memory_order_acquire)) {}

  [[nodiscard]] std::uint32_t agent() const noexcept { return agent_; }
  /// False: it is being handed over, and who wants an object of it waits.
  [[nodiscard]] bool is_open() const noexcept { return (handovers_ & 1) == 0; }
  /// It has not been handed over since, and is not being handed over.
  [[nodiscard]] bool is_still() const noexcept {
    return info_.handovers.load(std::memory_order_acquire) == handovers_ &&
           info_.agent.load(std::memory_order_acquire) == agent_;
  }

 private:
  const tablet_info& info_;
  std::uint32_t handovers_;
  std::uint32_t agent_;
};

/// Tablets that go to one agent.
struct tablet_move {
  static constexpr std::uint32_t nobody = ~0u;
  std::uint32_t first, count;
  std::uint32_t to = nobody;
  bool granted = false;
};

}  // namespace fm::detail
