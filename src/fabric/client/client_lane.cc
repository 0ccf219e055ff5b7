// Giving up a lane's receiving role, and counting what waits for the lane's answers; see client_lane.h. Called by
// lane_session and by the lanes that derive from client_lane.
#include "client_lane.h"

#include <sys/epoll.h>

#include <algorithm>

namespace fm::fabric {

void client_lane::release_role() noexcept {
  role_.store(0, std::memory_order_seq_cst);
  if (sleepers_.fetch_add(0, std::memory_order_seq_cst) != 0) return wake_sleepers();
  leave_to_session();
}

void client_lane::leave_to_session() noexcept {
  if (in_flight() == 0 || role_taken()) return;
  const auto guard = lock();
  if (needs_session()) arm(EPOLLIN);
}

void client_lane::lose_poller() noexcept {
  const auto guard = lock();
  ++pollers_asleep_;
  // Nobody may have looked since something came. The role's holder leaves the lane to the session's thread himself.
  if (in_use_ != 0 && !role_taken()) arm(EPOLLIN);
}

void client_lane::regain_poller() noexcept {
  const auto guard = lock();
  --pollers_asleep_;
}

time_point client_lane::put_off(const request& r, time_point deadline, time_point now) noexcept {
  if (arrivals_ != dated_) {
    dated_ = arrivals_;
    arrived_at_ = now;
  }
  return r.patience == duration::zero() ? deadline : std::max(deadline, std::min(arrived_at_ + r.patience, r.latest));
}

void client_lane::wake_sleepers() noexcept {
  if (sleepers_.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake(epoch_, INT32_MAX);
}

void client_lane::count_in(const request& r) noexcept {
  if (r.on_done && r.attended_by != attendance::poller) ++async_;
  in_flight_.store(++in_use_, std::memory_order_seq_cst);
}

void client_lane::count_out(const request& r) noexcept {
  if (r.on_done && r.attended_by != attendance::poller) --async_;
  in_flight_.store(--in_use_, std::memory_order_seq_cst);
}

}  // namespace fm::fabric
