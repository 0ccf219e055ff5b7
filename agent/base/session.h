// One connected session as the agent sees it: whom it comes from, what it has opened, and whether it still speaks for
// that.
//
// Invariants owned here
//   - A session opens one tenant, once, whatever it says on how many lanes: `opening` is held while it does.
//   - A session that was revoked gets no more memory: `revoked` is set before `in_flight` is looked at, and the other
//     way round where memory is handed out, so that one of them sees the other.
// The agent's store makes and destroys sessions; the parts keep pointers to those that own something, until the
// tenant's `disconnected`.
#pragma once

#include "fabric/server/server.h"

#include <atomic>
#include <memory>
#include <mutex>

#include "tenant.h"

namespace fm::agent {

struct session {
  session(fabric::peer& p, std::uint64_t n) : peer(p), number(n) {}
  fabric::peer& peer;
  const std::uint64_t number;               ///< unique within the store
  std::mutex opening;                       ///< held while something is opened
  std::atomic<bool> revoked{false};         ///< a later session has taken over, or the pool's client is fenced
  std::atomic<std::uint32_t> in_flight{0};  ///< one-sided operations between memory and memory_done

  /// What it has opened, or null.
  [[nodiscard]] tenant* opened() const noexcept { return opened_.load(std::memory_order_acquire); }
  /// Once; `opening` is held.
  void open(std::unique_ptr<tenant> t) noexcept {
    keep_ = std::move(t);
    opened_.store(keep_.get(), std::memory_order_release);
  }

 private:
  std::unique_ptr<tenant> keep_;  ///< set once, before `opened_`
  std::atomic<tenant*> opened_{nullptr};
};

}  // namespace fm::agent
