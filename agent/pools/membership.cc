// The steps of a pair of agents; see membership.h.
#include "membership.h"

#include <algorithm>

namespace fm::agent {

const char* to_string(pair_role r) noexcept {
  switch (r) {
    case pair_role::alone: return "alone";
    case pair_role::paired: return "primary";
    case pair_role::leaving: return "leaving";
    case pair_role::learning: return "learning";
    case pair_role::backup: return "backup";
    case pair_role::over: break;
  }
  return "over";
}

pair_membership::pair_membership(pair_role role, std::uint64_t term, duration tenure) noexcept
    : tenure_(tenure), role_(role), term_(term), serves_until_(role == pair_role::alone ? forever : 0) {}

void pair_membership::set(pair_role r, duration::rep until) noexcept {
  serves_until_.store(until, std::memory_order_release);
  role_.store(r, std::memory_order_release);
}

// ---- of a primary ----

void pair_membership::join(std::uint64_t term, time_point sent) noexcept {
  const std::lock_guard lock(mutex_);
  if (role() != pair_role::alone) return;
  term_.store(term, std::memory_order_release);
  set(pair_role::paired, (sent + tenure_ - tenure_ / limits::tenure_drift_share).time_since_epoch().count());
}

void pair_membership::promised(time_point sent) noexcept {
  const std::lock_guard lock(mutex_);
  if (role() != pair_role::paired) return;
  const duration::rep until = (sent + tenure_ - tenure_ / limits::tenure_drift_share).time_since_epoch().count();
  serves_until_.store(std::max(serves_until_.load(std::memory_order_relaxed), until), std::memory_order_release);
}

bool pair_membership::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (role() != pair_role::paired) return false;
  set(pair_role::leaving, 0);
  return true;
}

void pair_membership::go_on_alone(std::uint64_t term) noexcept {
  const std::lock_guard lock(mutex_);
  if ((!is_primary() && role() != pair_role::leaving) || term <= this->term()) return;
  term_.store(term, std::memory_order_release);
  set(pair_role::alone, forever);
}

void pair_membership::end() noexcept {
  const std::lock_guard lock(mutex_);
  set(pair_role::over, 0);
}

// ---- of a backup ----

bool pair_membership::hear(time_point now) noexcept {
  const std::lock_guard lock(mutex_);
  if (takes_over_ || !follows()) return false;
  promised_until_ = std::max(promised_until_, now + tenure_);
  return true;
}

bool pair_membership::become_backup(std::uint64_t term, time_point now) noexcept {
  const std::lock_guard lock(mutex_);
  if (takes_over_ || !follows() || term < this->term()) return false;
  term_.store(term, std::memory_order_release);
  promised_until_ = std::max(promised_until_, now + tenure_);
  set(pair_role::backup, 0);
  return true;
}

bool pair_membership::primary_has_left(std::uint64_t term) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_primary()) return term < this->term();
  if (role() != pair_role::backup || term != this->term()) return false;
  takes_over_ = left_ = true;
  return true;
}

bool pair_membership::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  if (role() == pair_role::over) return true;
  if (takes_over_ || !follows()) return false;
  set(pair_role::over, 0);
  return true;
}

bool pair_membership::is_left() const noexcept {
  const std::lock_guard lock(mutex_);
  return left_;
}

time_point pair_membership::silent_until() const noexcept {
  const std::lock_guard lock(mutex_);
  return promised_until_ + tenure_ / limits::takeover_after;
}

bool pair_membership::begin_taking_over(time_point now) noexcept {
  const std::lock_guard lock(mutex_);
  if (!follows()) return false;
  takes_over_ = takes_over_ || now >= promised_until_ + tenure_ / limits::takeover_after;
  return takes_over_;
}

void pair_membership::take_over(std::uint64_t term) noexcept {
  const std::lock_guard lock(mutex_);
  if (!follows() || !takes_over_ || term <= this->term()) return;
  takes_over_ = false;
  term_.store(term, std::memory_order_release);
  set(pair_role::alone, forever);
}

}  // namespace fm::agent
