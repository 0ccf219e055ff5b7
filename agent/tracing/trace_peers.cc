// The tracer's dealings with other agents: who they are, references on their way there, references that come from
// them; see tracer.h.
// Invariant owned here: a reference for a peer is in its outbox or under way until the peer has acknowledged it; a
// lost peer's references go to the owner.
// Called by peers and peer_links; take and delivered by one thread.
#include "base/log.h"

#include "agent/base/limits.h"
#include "trace_worker.h"

namespace fm::agent {

bool tracer::set_peers(trace_peer_set peers) {
  const auto count = static_cast<std::uint32_t>(peers.boxes.size());
  const std::uint64_t each =
      std::max(references_max_ / std::max<std::uint64_t>(count, 1), limits::peer_references_least);
  const std::uint64_t in_message = std::min<std::uint64_t>(each, remote_references_max);
  // So that nothing that follows asks for memory; and before anything has changed.
  for (trace_peer_box& p : peers.boxes) {
    p.outbox.reserve(each);
    p.under_way.reserve(in_message);
  }
  std::lock_guard lock(mutex_);
  if (ended_.load(std::memory_order_relaxed) || started_.load(std::memory_order_relaxed)) return false;
  outbox_.reserve(references_max_ + count * (each + in_message));
  std::swap(peers_, peers);
  has_peers_ = true;
  peer_references_max_ = each;
  peer_count_.store(count, std::memory_order_release);
  return true;
}

bool tracer::queue_remote_reference(slot_t slot) {
  const std::uint8_t to = peers_.boxes.empty() ? 0 : *peers_.route(detail::tablet_of(slot));
  if (to == 0 || peers_.boxes[to - 1].lost) {
    if (outbox_.size() >= references_max_) return false;
    outbox_.push_back(slot);
    return true;
  }
  trace_peer_box& p = peers_.boxes[to - 1];
  if (p.outbox.size() >= peer_references_max_) return false;
  if (p.empty()) p.moved = clock::now();
  p.outbox.push_back(slot);
  ++unacknowledged_;
  ++counts_.references_sent;
  return true;
}

bool tracer::take(std::uint32_t peer, dispatch& out) {
  out.slots.reserve(remote_references_max);
  std::lock_guard lock(mutex_);
  // Until tracing has begun, the owner may tell of others.
  if (ended_.load(std::memory_order_relaxed) || !started_.load(std::memory_order_relaxed)) return false;
  if (peer >= peers_.boxes.size()) return false;
  trace_peer_box& p = peers_.boxes[peer];
  if (p.lost || !p.under_way.empty() || p.outbox.empty()) return false;
  const auto n = static_cast<std::ptrdiff_t>(std::min<std::size_t>(p.outbox.size(), remote_references_max));
  const bool was_full = p.outbox.size() >= peer_references_max_;
  p.under_way.assign(p.outbox.end() - n, p.outbox.end());
  p.outbox.resize(p.outbox.size() - static_cast<std::size_t>(n));
  p.moved = clock::now();
  out.url = p.url;
  out.number = ++p.number;
  out.slots = p.under_way;
  out.body = {.heap_id = {p.heap_id[0], p.heap_id[1]},
              .ticket = {p.ticket[0], p.ticket[1]},
              .cycle = cycle,
              .count = static_cast<std::uint32_t>(n),
              .zero = 0};
  if (was_full) bell_.ring();
  return true;
}

step_result tracer::delivered(std::uint32_t peer, std::uint32_t number, errc how) {
  std::lock_guard lock(mutex_);
  trace_peer_box& p = peers_.boxes[peer];
  if (ended_.load(std::memory_order_relaxed) || p.lost || p.number != number) return {};
  if (how == errc::ok) {
    unacknowledged_ -= p.under_way.size();
    p.under_way.clear();
    p.moved = clock::now();
  } else {
    lose(p, to_string(how).data());
  }
  return {.more = !p.outbox.empty(), .tell = should_tell()};
}

// What was queued for it before may be more than the owner's outbox takes otherwise: less than as much again.
void tracer::lose(trace_peer_box& p, const char* why) {
  const std::uint64_t left = p.outbox.size() + p.under_way.size();
  outbox_.insert(outbox_.end(), p.under_way.begin(), p.under_way.end());
  outbox_.insert(outbox_.end(), p.outbox.begin(), p.outbox.end());
  p.outbox = std::vector<slot_t>();
  p.under_way = std::vector<slot_t>();
  p.lost = true;
  unacknowledged_ -= left;
  counts_.references_returned += left;
  ++counts_.peers_lost;
  bell_.ring();  // who waited for room may find some elsewhere
  log::debug("heap {}: cycle {}: references to objects of {} go through the owner: {}", h_.name, cycle, p.url, why);
}

// Here, too, and not only where messages are sent: whatever keeps that thread, the owner's messages see to it that the
// cycle goes on.
void tracer::lose_silent_peers() {
  if (unacknowledged_ == 0) return;
  const time_point now = clock::now();
  for (trace_peer_box& p : peers_.boxes)
    if (!p.lost && !p.empty() && now - p.moved > peer_within_) lose(p, "it acknowledges nothing");
}

bool tracer::receive(std::span<const slot_t> slots) {
  std::vector<slot_t> fresh;
  fresh.reserve(slots.size());
  {
    std::lock_guard lock(mutex_);
    if (ended_.load(std::memory_order_relaxed)) return false;
    started_.store(true, std::memory_order_relaxed);
    if (detail::mutated(detail::mutation::acknowledge_references_early)) {
      unqueued_.insert(unqueued_.end(), slots.begin(), slots.end());
      return true;
    }
    ++inside_;
    ++busy_;  // until what is marked here is queued
  }
  mark_all(slots, fresh);

  std::lock_guard lock(mutex_);
  queue_all(fresh);
  counts_.references_received += slots.size();
  --busy_;
  if (--inside_ == 0) left_.notify_all();
  if (!fresh.empty()) bell_.ring();
  return true;
}

}  // namespace fm::agent
