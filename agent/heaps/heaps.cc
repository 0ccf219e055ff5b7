// Opening, resuming and freeing heaps, their leases, and notices that did not get through; see heaps.h.
// Invariant owned here: a heap changes hands under its mutex, when no operation of its earlier session is in flight.
//
// A heap's mutex may be held for long, by an audit. So the map's mutex is never held while a heap's is waited for, and
// between them these may come:
//   open finds a heap, which is freed:   take_over sees `closed` and open looks again; it takes the closed one out itself
//   two opens of one new heap:           one puts it into the map, the other finds it; its mutex orders them, and the later
//                                        one resumes
//   open puts a new heap into the map, and its lease ends before it has its owner: it is `closed`, as above
//   free_heap has closed a heap, and another of that id is opened before it looks at the map: it leaves that one alone
// open is called by sessions; expire_leases and send_lost_notices by the maintenance thread.
#include "heaps.h"

#include "base/log.h"
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "heap_session.h"

namespace fm::agent {

errc heaps::open(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::open_heap;
  open_heap_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.resume > 1) return errc::bad_frame;
  if (m.major != protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks store protocol {}.{}, the owner {}.{}", protocol_major, protocol_minor,
                              m.major, m.minor));
  const std::uint64_t most =
      agent_.options.quota_default_bytes ? agent_.options.quota_default_bytes : regions_.memory_bytes();
  const std::uint64_t quota = m.quota_bytes ? m.quota_bytes : most;
  if (quota > most)
    return refuse(out, type, errc::quota_exceeded,
                  fmt::format("{} bytes wanted, the agent gives a heap at most {}", quota, most));
  if (quota < regions_.region_bytes())
    return refuse(out, type, errc::quota_exceeded,
                  fmt::format("a quota of {} bytes is less than one region of {}", quota, regions_.region_bytes()));
  const std::uint32_t lease =
      std::min(m.lease_ms ? m.lease_ms : agent_.options.lease_default_ms, agent_.options.lease_max_ms);

  const std::pair id{m.heap_id[0], m.heap_id[1]};
  // Twice at most, as a rule: a heap that was freed since it was found is not there.
  for (;;) {
    std::shared_ptr<heap> kept;
    bool fresh = false;
    {
      const std::lock_guard heaps_lock(mutex_);
      const auto found = by_id_.find(id);
      if (found != by_id_.end() && found->second->closed.load()) by_id_.erase(found);
      if (const auto at = by_id_.find(id); at != by_id_.end()) {
        kept = at->second;
      } else {
        if (m.resume == 1) return refuse(out, type, errc::not_found, "no such heap here; its lease may have run out");
        if (is_drained()) return refuse(out, type, errc::refused, "the agent is being drained");
        if (by_id_.size() >= agent_.options.heaps_max)
          return refuse(out, type, errc::agent_full, fmt::format("the agent has {} heaps, its limit", by_id_.size()));
        kept = std::make_shared<heap>(regions_, m, quota, lease);
        kept->lease_until = agent_.now() + std::chrono::milliseconds(lease);  // until it has its owner
        by_id_.emplace(id, kept);
        fresh = true;
      }
    }
    if (const std::optional<errc> e = take_over(s, m, kept, fresh, out)) return *e;
  }
}

std::optional<errc> heaps::take_over(session& s, const open_heap_body& m, const std::shared_ptr<heap>& kept, bool fresh,
                                     fabric::answer& out) {
  constexpr auto type = message_type::open_heap;
  heap& h = *kept;
  auto opened = std::make_unique<heap_session>(*this, s, kept);
  const std::lock_guard lock(h.mutex);
  if (h.closed.load()) return std::nullopt;
  if (fresh)
    log::at(agent_.heap_level(), "store {}: heap {} opened by {}, quota {} bytes", agent_.options.name, h.name,
            s.peer.name(), h.quota_bytes);
  if (h.key.incarnation != m.incarnation)
    return refuse(out, type, errc::stale, "the heap belongs to another incarnation of its owner");
  // An owner that never got the answer to its first open asks again as if for the first time.
  if (m.resume == 0 && (h.applied_seq != 0 || !h.regions.empty()))
    return refuse(out, type, errc::refused, "the heap exists already; resume it");
  if (!revoke_owner(h, "the heap was resumed on another connection"))
    return refuse(out, type, errc::timed_out, "operations of the previous connection are still running");
  hand_over(h, s, m.minor);
  s.open(std::move(opened));  // at once: the end of a session that has opened nothing leaves no heap
  const open_heap_answer a = opened_answer(h);
  begin_answer(out, type, &a, sizeof a);
  agent_.wake();  // the notices follow the answer
  return errc::ok;
}

bool heaps::revoke_owner(heap& h, const char* why) {
  if (h.owner == nullptr) return true;
  h.owner->revoked.store(true);
  h.owner->peer.close(errc::stale, why);
  return h.owner->in_flight.load() == 0;
}

void heaps::hand_over(heap& h, session& s, std::uint16_t owner_minor) {
  h.owner = &s;
  h.owner_minor = owner_minor;
  h.tell_again = h.was_told;
  h.lease_until = time_point::max();
  for (region* r : h.regions)  // notices sent to an earlier session may never have arrived
    if (r->state == region_state::retiring) r->notice_pending = h.notices_pending = true;
}

open_heap_answer heaps::opened_answer(const heap& h) const {
  return {regions_.region_bytes(),         h.quota_bytes, h.applied_seq, h.lease_ms, protocol_minor,
          zone_number(agent_.options.zone)};
}

std::vector<std::shared_ptr<heap>> heaps::all() const {
  std::vector<std::shared_ptr<heap>> all;
  std::lock_guard lock(mutex_);
  all.reserve(by_id_.size());
  for (const auto& [id, h] : by_id_) all.push_back(h);
  return all;
}

void heaps::free_heap(heap& h, const char* why, bool only_if_expired) {
  std::size_t regions = 0;
  {
    const std::lock_guard lock(h.mutex);
    if (h.closed.load() || (only_if_expired && (h.owner != nullptr || h.lease_until > agent_.now()))) return;
    regions = h.regions.size();
    h.close();
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find({h.key.heap_id[0], h.key.heap_id[1]});
    if (found != by_id_.end() && found->second.get() == &h) by_id_.erase(found);  // else another one was opened since
    if (only_if_expired) ++expired_;
  }
  agent_.wake();  // memory is to be given back
  log::at(agent_.heap_level(), "store {}: heap {} freed with {} regions: {}", agent_.options.name, h.name, regions,
          why);
}

time_point heaps::expire_leases() {
  time_point next = time_point::max();
  for (const auto& h : all()) {
    time_point until;
    {
      std::lock_guard lock(h->mutex);
      until = h->owner == nullptr ? h->lease_until : time_point::max();
    }
    if (until <= agent_.now())
      free_heap(*h, "its lease ran out", true);
    else
      next = std::min(next, until);
  }
  return next;
}

time_point heaps::send_lost_notices() {
  bool left = false;
  for (const auto& h : all()) {
    std::lock_guard lock(h->mutex);
    if (h->owner != nullptr && h->owner_minor >= minor_of_leaving &&
        (h->told_to_leave != is_drained() || h->tell_again))
      left = !h->send_drain_notice(is_drained()) || left;
    if (!h->notices_pending || h->owner == nullptr) continue;
    for (region* r : h->regions)
      if (r->notice_pending) {
        h->send_notice(*r);
        if (r->notice_pending) break;  // the peer's queue is full; the rest later
      }
    h->notices_pending =
        std::any_of(h->regions.begin(), h->regions.end(), [](const region* r) { return r->notice_pending; });
    left = left || h->notices_pending;
  }
  return left ? agent_.now() + limits::notice_retry : time_point::max();
}

std::size_t heaps::count() const {
  const std::lock_guard lock(mutex_);
  return by_id_.size();
}

std::shared_ptr<heap> heaps::find(const std::uint64_t (&id)[2]) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_id_.find({id[0], id[1]});
  return at == by_id_.end() ? nullptr : at->second;
}

void heaps::close() {
  for (auto& [id, h] : by_id_) {
    std::lock_guard lock(h->mutex);
    h->close();
  }
}

}  // namespace fm::agent
