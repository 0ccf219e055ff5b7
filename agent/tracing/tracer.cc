// The state that workers and messages of one tracer share: the bounded queue, the outbox, the count of busy workers,
// and the end of tracing; see tracer.h.
// Invariant owned here: a marked slot is queued, or its tablet is listed for a rescan.
// Called by cycles for messages and by the tracing threads for steps.
#include <bit>

#include "agent/base/limits.h"
#include "trace_worker.h"

namespace fm::agent {

tracer::tracer(heap& h, std::uint64_t n, const trace_limits& limits, const trace_ticket& t, trace_bell& bell,
               trace_bell& peers_bell)
    : heap_cycle(n),
      ticket(t),
      h_(h),
      bell_(bell),
      peers_bell_(peers_bell),
      shared_max_(limits.queue_slots),
      references_max_(limits.references_max),
      peer_within_(limits.peer_within),
      room_(limits.queue_slots),
      shared_(limits.queue_slots * 8, detail::page_bytes),
      seen_references_(limits::seen_references_bytes, detail::page_bytes) {
  rescans_.reserve(h.tablets);
  outbox_.reserve(references_max_);
  for (std::uint32_t i = 0; i < limits.workers; ++i)
    workers_.push_back(std::make_unique<worker>(std::min(limits::private_slots_max, limits.queue_slots)));
}

tracer::~tracer() = default;

std::uint64_t tracer::memory_bytes() const {
  std::lock_guard lock(mutex_);
  std::uint64_t for_peers = peers_.routes_memory;
  for (const trace_peer_box& p : peers_.boxes) for_peers += (p.outbox.size() + p.under_way.size()) * 8;
  return std::uint64_t{h_.tablets} * 2 * marks_bytes + (shared_count_ + std::max(outbox_.size(), references_max_)) * 8 +
         limits::seen_references_bytes + for_peers + workers_.size() * (sizeof(worker) + limits::private_slots_max * 8);
}

std::optional<bool> tracer::marks_add_up() const {
  std::lock_guard lock(mutex_);
  if (inside_ != 0) return {};
  std::uint64_t set = 0;
  for (const auto& [first, blocks] : h_.tablet_blocks)
    for (std::uint64_t at = 0; at < blocks.bytes(); at += heap::tablet_block) {
      const heap::bits_t* const bits = heap::marks(blocks.base() + at);
      for (std::uint64_t i = 0; i < marks_bytes / 8; ++i)
        set += static_cast<std::uint64_t>(std::popcount(bits[i].load(std::memory_order_relaxed)));
    }
  return set == marked_.load(std::memory_order_relaxed);
}

void tracer::abandon() noexcept {
  std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_relaxed);
}

void tracer::end() noexcept {
  std::unique_lock lock(mutex_);
  ended_.store(true, std::memory_order_relaxed);
  left_.wait(lock, [&] { return inside_ == 0; });
}

// ---- messages ----

bool tracer::add_dirty(std::span<const slot_bits> pages) {
  std::lock_guard lock(mutex_);
  if (ended_.load(std::memory_order_relaxed) || started_.load(std::memory_order_relaxed)) return false;
  for (const slot_bits& p : pages) {
    const std::uint64_t word = h_.tablet_words()[detail::tablet_of(p.first_slot)].load(std::memory_order_acquire);
    if ((word & heap::in_cycle) == 0) continue;
    heap::bits_t* const to = heap::dirty_bits(heap::block_in(word)) + p.first_slot % detail::tablet_slots / 64;
    for (std::size_t i = 0; i < std::size(p.bits); ++i)
      if (p.bits[i] != 0) to[i].fetch_or(p.bits[i], std::memory_order_relaxed);
    has_dirty_ = true;
  }
  return true;
}

bool tracer::post(const trace_body& m, std::span<const slot_t> slots, sequence& how, reply& out) {
  std::vector<slot_t> fresh;
  fresh.reserve(slots.size());
  {
    std::lock_guard lock(mutex_);
    if (ended_.load(std::memory_order_relaxed)) return false;
    if (m.number != last_number_ && m.number != last_number_ + 1) {
      how = m.number < last_number_ ? sequence::stale : sequence::gap;
      return true;
    }
    how = sequence::ok;
    lose_silent_peers();
    if (m.number == last_number_ + 1) {
      const auto n = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(outbox_.size(), m.references_max));
      answered_.assign(outbox_.end() - n, outbox_.end());
      outbox_.resize(outbox_.size() - static_cast<std::uint64_t>(n));
      last_number_ = m.number;
    } else if (answered_.size() > m.references_max) {
      // A repeat that may be answered with less than the first time: the rest waits for its turn again.
      outbox_.insert(outbox_.end(), answered_.begin() + m.references_max, answered_.end());
      answered_.resize(m.references_max);
    }
    out.remote_references = answered_;
    started_.store(true, std::memory_order_relaxed);
    ++inside_;
    ++busy_;  // until what is marked here is queued, whoever else may ask meanwhile
  }
  mark_all(slots, fresh);

  std::lock_guard lock(mutex_);
  queue_all(fresh);
  --busy_;
  if (--inside_ == 0) left_.notify_all();
  const bool idle = is_done() && outbox_.empty();
  told_ = idle;
  told_references_ = false;
  std::uint64_t queued = shared_count_;
  for (const auto& w : workers_) queued += w->held.load(std::memory_order_relaxed);
  out.answer = {marked_.load(std::memory_order_relaxed), scanned_bytes_.load(std::memory_order_relaxed), queued,
                idle ? 1u : 0u, static_cast<std::uint32_t>(out.remote_references.size())};
  if (has_peers_) out.counts = counts_;
  if (busy_ != 0 || has_shared_work()) bell_.ring();
  return true;
}

void tracer::mark_all(std::span<const slot_t> slots, std::vector<slot_t>& fresh) {
  std::uint64_t marked = 0;
  for (const std::uint64_t sent : slots) {
    const slot_t slot = sent & ~scan_at_home;
    const std::uint64_t word = h_.tablet_words()[detail::tablet_of(slot)].load(std::memory_order_acquire);
    if ((word & heap::in_cycle) == 0) continue;
    const std::uint64_t at = slot % detail::tablet_slots, bit = std::uint64_t{1} << (at % 64);
    // Whoever marked it has handed it over to the owner, who hands it back: then it is queued though it is marked.
    const bool returned =
        sent != slot &&
        (heap::dirty_bits(heap::block_in(word))[at / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
    heap::bits_t& bits = heap::marks(heap::block_in(word))[at / 64];
    const bool unmarked =
        (bits.load(std::memory_order_relaxed) & bit) == 0 && (bits.fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
    if (unmarked) ++marked;
    if (unmarked || returned) fresh.push_back(slot);
  }
  marked_.fetch_add(marked, std::memory_order_relaxed);
}

void tracer::queue_all(const std::vector<slot_t>& fresh) {
  for (std::uint64_t i = share(fresh.data(), fresh.size()); i < fresh.size(); ++i) {
    const std::uint32_t tablet = detail::tablet_of(fresh[i]);
    if (needs_rescan(h_.tablet_block_of(tablet))) rescans_.push_back(tablet);
  }
}

// Once for each message of the owner that it is done, or that much waits: that other agents made it busy again in
// between is none of the owner's business, who looks by itself. But what waits for the owner then would wait for long.
bool tracer::should_tell() noexcept {
  const bool done = is_done();
  const bool much = outbox_.size() >= std::min(references_max_ / 2, limits::references_worth_telling);
  const bool first = !told_ && (done || much);
  const bool again = !told_references_ && done && !outbox_.empty();
  if (!first && !again) return false;
  told_ = true;
  told_references_ = !outbox_.empty();
  return true;
}

// ---- workers ----

bool tracer::begin_step(worker& w) {
  std::lock_guard lock(mutex_);
  if (detail::mutated(detail::mutation::acknowledge_references_early) && !unqueued_.empty()) {
    std::vector<slot_t> fresh;
    mark_all(std::exchange(unqueued_, {}), fresh);
    queue_all(fresh);
  }
  if (ended_.load(std::memory_order_relaxed) || !started_.load(std::memory_order_relaxed)) return false;
  if (!w.busy && !has_shared_work()) return false;
  if (w.remote_reference_count != 0) flush_remote_references(w);
  if (w.remote_reference_count == limits::trace_references_batch) return false;  // somebody must take some first
  ++inside_;
  return true;
}

step_result tracer::end_step(worker& w) {
  std::lock_guard lock(mutex_);
  marked_.fetch_add(std::exchange(w.marked, 0), std::memory_order_relaxed);
  scanned_bytes_.fetch_add(std::exchange(w.scanned_bytes, 0), std::memory_order_relaxed);
  w.held.store(w.top, std::memory_order_relaxed);
  if (w.remote_reference_count != 0) flush_remote_references(w);
  if (w.busy && !w.has_work() && w.remote_reference_count == 0) {
    w.busy = false;
    --busy_;
  }
  if (--inside_ == 0) left_.notify_all();
  if (ended_.load(std::memory_order_relaxed)) return {};
  step_result r;
  r.more = has_shared_work() || (w.has_work() && w.remote_reference_count < limits::trace_references_batch);
  r.tell = should_tell();
  return r;
}

step_result tracer::step(std::uint32_t number) {
  worker& w = *workers_[number];
  if (!begin_step(w)) return {};
  const std::uint64_t from = os::thread_cpu_ns();
  run(w);
  leave_regions(w);
  tracing_ns_.fetch_add(os::thread_cpu_ns() - from, std::memory_order_relaxed);
  return end_step(w);
}

bool tracer::take_work(worker& w) {
  std::lock_guard lock(mutex_);
  if (shared_count_ != 0) {
    const std::uint64_t n = std::min({shared_count_, std::max<std::uint64_t>(w.stack_max / 4, 1)});
    std::memcpy(w.stack.data(), shared_.base() + (shared_count_ - n) * 8, n * 8);
    w.top = n;
    resize_shared(shared_count_ - n);
  } else if (!rescans_.empty()) {
    w.rescan_tablet = rescans_.back();
    rescans_.pop_back();
    w.rescan_word = 0;
    w.rescan_bits = 0;
    w.rescanning = true;
    if (!detail::mutated(detail::mutation::stale_rescan))
      heap::record(h_.tablet_block_of(w.rescan_tablet)).rescan.exchange(0, std::memory_order_acq_rel);
  } else {
    return false;
  }
  if (!w.busy) {
    w.busy = true;
    ++busy_;
  }
  return true;
}

std::uint64_t tracer::share(const slot_t* slots, std::uint64_t count) noexcept {
  const std::uint64_t n = std::min(count, shared_max_ - shared_count_);
  if (n != 0) std::memcpy(shared_.base() + shared_count_ * 8, slots, n * 8);
  resize_shared(shared_count_ + n);
  return n;
}

void tracer::resize_shared(std::uint64_t count) noexcept {
  shared_count_ = count;
  room_.store(shared_max_ - count, std::memory_order_relaxed);
  wants_work_.store(count == 0 && workers_.size() > 1, std::memory_order_relaxed);
}

void tracer::flush_remote_references(worker& w) {
  const std::uint64_t sent = counts_.references_sent;
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < w.remote_reference_count; ++i)
    if (!queue_remote_reference(w.remote_references[i])) w.remote_references[left++] = w.remote_references[i];
  w.remote_reference_count = left;
  if (counts_.references_sent != sent) peers_bell_.ring();
}

void tracer::spill(worker& w) {
  {
    std::lock_guard lock(mutex_);
    // The oldest half: what was met first has the most behind it.
    const std::uint64_t n = share(w.stack.data(), (w.top + 1) / 2);
    w.top -= n;
    std::memmove(w.stack.data(), w.stack.data() + n, w.top * 8);
  }
  if (workers_.size() > 1) bell_.ring();
}

void tracer::push_overflow(worker& w, slot_t slot, std::byte* block) {
  if (room_.load(std::memory_order_relaxed) != 0) spill(w);
  if (w.top < w.stack_max) {
    w.stack[w.top++] = slot;
  } else if (needs_rescan(block)) {
    std::lock_guard lock(mutex_);
    rescans_.push_back(detail::tablet_of(slot));
  }
}

}  // namespace fm::agent
