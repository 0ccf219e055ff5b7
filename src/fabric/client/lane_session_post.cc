// Posting, waiting and credit of a session over lanes; see lane_session.h. Called by whoever uses the session, on any
// thread.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/wire/one_sided.h"
#include "lane_session.h"

namespace fm::fabric {
namespace {

/// A number for the calling thread, so that it keeps to one fetch lane: what it posts there stays in order.
std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> next{0};
  thread_local const std::uint32_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

}  // namespace

lane lane_session::kind_of(std::uint32_t index) const noexcept {
  if (index == 0) return lane::control;
  return index <= fetch_lanes_ ? lane::fetch : lane::bulk;
}

client_lane& lane_session::lane_for(lane on) noexcept {
  if (lanes_.size() == 1 || on == lane::control) return *lanes_.front();
  if (on == lane::bulk) return *lanes_.back();
  return *lanes_[1 + thread_number() % fetch_lanes_];
}

client_lane* lane_session::lane_of(const request& r) noexcept {
  return r.transport_word == no_lane ? nullptr : lanes_[std::size_t(r.transport_word >> 32)].get();
}

std::size_t lane_session::deliver(client_lane* l, done_list& done) noexcept {
  std::size_t n = 0;
  std::uint64_t bytes = 0;
  while (request* r = done.pop()) {
    bytes += r->bytes();
    if (counts_messages_ && r->kind == op_kind::message) messages_.fetch_sub(1, std::memory_order_seq_cst);
    complete(*r, r->status);
    ++n;
  }
  if (n == 0) return 0;
  bytes_.fetch_sub(bytes, std::memory_order_seq_cst);
  if (l) l->wake_sleepers();
  if (credit_waiters_.load(std::memory_order_seq_cst) != 0) {
    credit_epoch_.fetch_add(1, std::memory_order_seq_cst);
    os::futex_wake(credit_epoch_, INT32_MAX);
  }
  return n;
}

std::size_t lane_session::attend(client_lane& l) noexcept {
  done_list done;
  bool was_open, something, ended;
  std::uint32_t generation;  // of what was received from: by the time of the verdict there may be a newer connection
  {
    const auto guard = l.lock();
    generation = l.generation();
    was_open = l.is_open();
    something = l.receive(done);
    if (!done.empty()) l.count_arrival();
    ended = was_open && !l.is_open();
  }
  const std::size_t n = deliver(&l, done);
  if (ended) break_connection(generation, errc::disconnected);
  return n + (something ? 1 : 0);
}

std::size_t lane_session::poll() noexcept {
  std::size_t total = 0;
  for (auto& l : lanes_) {
    if (l->in_flight() == 0 || !l->try_role()) continue;
    const std::uint32_t before = l->in_flight();
    attend(*l);
    const std::uint32_t after = l->in_flight();
    total += before > after ? before - after : 0;
    l->release_role();
  }
  return total;
}

void lane_session::stop_polling() noexcept {
  for (auto& l : lanes_) l->lose_poller();
}

void lane_session::resume_polling() noexcept {
  for (auto& l : lanes_) l->regain_poller();
}

/// Returns when finished() or at the deadline: as the lane's receiver if nobody else is, else beside the one who is.
/// Who gives the role up leaves the lane to those beside it; who leaves as the last of them, to the session's thread.
template <class Finished>
void lane_session::wait_on(client_lane& l, const Finished& finished, time_point deadline) noexcept {
  os::spin spin(spins_, options_.spin_for);
  bool beside = false;
  while (!finished()) {
    beside = !(l.is_open() && l.try_role());
    if (!beside) {
      for (bool look = !l.look_is_a_call(); !finished() && l.is_open();) {
        if (look && attend(l) != 0) continue;
        look = spin.again();
        if (look) continue;
        const bool late = clock::now() >= deadline;
        if (!late) l.sleep_on_connection(deadline);
        attend(l);  // whatever has become of the request: what came may be another's
        if (late) break;
      }
      l.release_role();
    } else {
      // Bounded, because a lane that has just closed completes its requests from another thread.
      const auto ready = [&] { return finished() || !l.role_taken(); };
      l.sleep_aside(ready, std::min(deadline, clock::now() + std::chrono::milliseconds(20)));
    }
    if (clock::now() >= deadline) break;
  }
  if (beside) l.leave_to_session();
}

void lane_session::wait(request& r) noexcept {
  FM_ASSERT(!completion_frame::inside(this), "a completion callback must not wait on its own session");
  if (r.done()) return;
  client_lane* l = lane_of(r);
  time_point now = clock::now();
  const time_point deadline = deadline_of(r, now);
  if (l) {
    const bool patient = r.patience != duration::zero();
    for (time_point end = deadline;;) {
      // What comes in between is dated now and then, so that the last arrival is known well enough at the end.
      wait_on(
          *l, [&] { return r.done(); }, patient ? std::min(end, now + r.patience / 8) : end);
      if (!patient || r.done()) break;
      now = clock::now();
      const auto guard = l->lock();
      if ((end = l->put_off(r, deadline, now)) <= now) break;
    }
    if (!r.done()) give_up(*l, [&](done_list& done) { l->cancel(r, errc::timed_out, done); });
  }
  // It has its outcome; whichever thread took it off the lane is about to complete it.
  for (duration nap = std::chrono::microseconds(20); !r.done();
       nap = std::min<duration>(nap * 2, std::chrono::milliseconds(5)))
    os::futex_wait(r.state, request::posted, clock::now() + nap);
}

bool lane_session::wait_until(request& r, time_point until) noexcept {
  FM_ASSERT(!completion_frame::inside(this), "a completion callback must not wait on its own session");
  if (r.done()) return true;
  client_lane* l = lane_of(r);
  const time_point deadline = deadline_of(r, clock::now());
  if (l == nullptr || deadline <= until) {
    wait(r);
    return true;
  }
  wait_on(
      *l, [&] { return r.done(); }, until);
  return r.done();
}

void lane_session::cancel(request& r) noexcept {
  client_lane* l = r.done() ? nullptr : lane_of(r);
  if (l) give_up(*l, [&](done_list& done) { l->cancel(r, errc::cancelled, done); });
}

void lane_session::wait_for_credit(time_point deadline) noexcept {
  credit_waiters_.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = credit_epoch_.load(std::memory_order_seq_cst);
  if (poll() == 0) {
    for (auto& l : lanes_) {
      const auto guard = l->lock();
      if (l->in_flight() != 0) l->arm(EPOLLIN);
    }
    os::futex_wait(credit_epoch_, seen, std::min(deadline, clock::now() + std::chrono::milliseconds(5)));
  }
  credit_waiters_.fetch_sub(1, std::memory_order_seq_cst);
}

/// Reserves bytes of the session's credit; one request may always be in flight, however large.
bool lane_session::try_take_bytes(std::uint64_t bytes) noexcept {
  std::uint64_t held = bytes_.load(std::memory_order_seq_cst);
  while (held == 0 || held + bytes <= options_.bytes_in_flight || completion_frame::inside(this))
    if (bytes_.compare_exchange_weak(held, held + bytes, std::memory_order_seq_cst)) return true;
  return false;
}

bool lane_session::take_bytes(std::uint64_t bytes, time_point deadline) noexcept {
  while (!try_take_bytes(bytes)) {
    if (clock::now() >= deadline) return false;
    wait_for_credit(deadline);
  }
  return true;
}

void lane_session::finish_posting(client_lane* l, std::unique_lock<std::mutex>& guard, bool unattended) noexcept {
  if (!l || !guard.owns_lock()) return;
  l->pump();
  if (unattended && !l->role_taken()) l->arm(EPOLLIN);
  guard.unlock();
}

std::size_t lane_session::post_some(std::span<request* const> requests, bool waits) noexcept {
  done_list refused;
  std::size_t posted = 0;
  client_lane* l = nullptr;
  std::unique_lock<std::mutex> guard;
  bool unattended = false, on_wire = false;
  time_point now{};
  for (; posted < requests.size(); ++posted) {
    request* const r = requests[posted];
    FM_ASSERT(r->state.load(std::memory_order_relaxed) != request::posted, "a request is posted once at a time");
    r->transport_word = no_lane;
    r->generation = generation();  // before it is admitted: what is admitted to one connection is not sent on the next
    r->state.store(request::posted, std::memory_order_relaxed);
    errc status = admit(r->on);
    if (status == errc::ok) status = check_request(*r, options_.message_bytes_max);
    if (status != errc::ok || perform_here(*r, status)) {
      refused.push(*r, status);
      continue;
    }
    if (now == time_point{}) now = clock::now();
    const time_point deadline = deadline_of(*r, now);
    client_lane& mine = lane_for(r->on);
    if (&mine != l) {
      finish_posting(l, guard, unattended);
      l = &mine;
      unattended = false;
      guard = l->lock();
    }
    // Credit. Waiting happens with what was posted so far on its way, and without the lock.
    const std::uint64_t bytes = r->bytes();
    const bool has_credit = l->has_credit() || completion_frame::inside(this);
    bool reserved = (waits || has_credit) && try_take_bytes(bytes);
    if (!waits && !reserved) {
      r->state.store(request::idle, std::memory_order_relaxed);
      break;
    }
    while (!reserved || (!l->has_credit() && !completion_frame::inside(this))) {
      finish_posting(l, guard, unattended);
      if (!reserved) reserved = take_bytes(bytes, deadline);
      if (!reserved || clock::now() >= deadline) status = errc::timed_out;
      r->generation = generation();
      if (status == errc::ok) status = admit(r->on);
      if (status != errc::ok) break;
      guard = l->lock();
      if (l->has_credit()) break;
      guard.unlock();
      wait_for_credit(deadline);
      guard = l->lock();
    }
    const bool is_message = counts_messages_ && r->kind == op_kind::message;
    if (is_message) messages_.fetch_add(1, std::memory_order_seq_cst);
    if (status == errc::ok) status = l->submit(*r, deadline);
    if (status != errc::ok) {
      if (reserved) bytes_.fetch_sub(bytes, std::memory_order_seq_cst);
      if (is_message) messages_.fetch_sub(1, std::memory_order_seq_cst);
      refused.push(*r, status);
      if (!guard.owns_lock()) l = nullptr;
      continue;
    }
    on_wire = true;
    unattended |= r->on_done != nullptr && r->attended_by == attendance::session;
  }
  finish_posting(l, guard, unattended);
  while (request* r = refused.pop()) complete(*r, r->status);
  if (on_wire && idle_.load(std::memory_order_seq_cst) && idle_.exchange(false, std::memory_order_seq_cst)) wake();
  return posted;
}

}  // namespace fm::fabric
