// Leasing, rounds, and what comes back; see leases.h.
//
// Invariant: `leased_` is the sum of mutator::leased. A thread is in `lessees_` while it leases anything.
#include "cache/memory/leases.h"
#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "table/young_bits.h"

#include <algorithm>
#include <bit>
#include <new>

namespace fm::detail {

lease_book::lease_book(object_cache& cache, const cache_options& options)
    : cache_(cache), segments_(cache.memory(), options.policy) {}

lease_book::~lease_book() { lessees_.clear(); }

void lease_book::begin(mutator& m, thread_state& of) noexcept {
  const std::lock_guard lock(mutex_);
  m.thread = &of;
  restore(m);
  cache_.frames().expect_threads(++threads_, filling_);
}

void lease_book::end(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  cache_.frames().settle(m.made);
  cache_.frames().settle(m.fetched);
  announce(m);  // of what cannot be taken now
  m.thread = nullptr;
  take(m);
  cache_.frames().expect_threads(--threads_, filling_);
}

// ---- leasing ----

std::uint64_t lease_book::left() const noexcept {
  const std::uint64_t budget = cache_.capacity_bytes() / limits::lease_share;
  return budget - std::min(budget, leased_);
}

// The budget is divided so that whoever comes later gets something, too. What is left when it is used up is nothing:
// then the idle ones are taken from, if enough has happened since that was tried.
std::uint64_t lease_book::portion(std::uint64_t need) noexcept {
  const auto share = [&] {
    return std::min(left() / limits::portions, cache_.memory().segment_bytes()) & ~(frame::unit_bytes - 1);
  };
  if (share() < limits::good_portion) round_of_idle();
  const std::uint64_t bytes = share();
  return bytes < need + limits::tail_min ? 0 : bytes;
}

char* lease_book::room(bump& b, std::uint64_t bytes, std::uint32_t leave, bool in_turn) {
  const std::lock_guard lock(mutex_);
  piece& own = b.own;
  if (b.of) restore(*b.of);
  const bool fits = own.seg && own.room() >= bytes;
  if (!fits && in_turn && cache_.pressure().is_turn_of_another(b, leave)) return nullptr;
  if (!fits || own.seg->closing) {
    if (b.kind == fill_kind::fetched) cache_.frames().cool(own);
    if (b.of) account(*b.of, true);
    const std::uint64_t wish = b.of ? portion(bytes) : cache_.memory().segment_bytes();
    const auto got = segments_.exchange(own, b.kind, bytes, wish, leave);
    if (got == shared_segments::got::nothing && !fits) return nullptr;
    if (got == shared_segments::got::segment &&
        cache_.memory().available() < cache_.memory().capacity_segments() / limits::wake_share)
      cache_.eviction().wake();
  }
  char* const at = own.at;
  own.at += bytes;
  // A read may be on its way into a fetched frame, and writes its header: that piece stays until the thread leases again,
  // or is idle.
  if (own.room() == 0 && b.kind != fill_kind::fetched) {
    // The segment may enter its queue now, where it is walked, and the caller writes the prefix only afterwards.
    make_filler(at, bytes);
    segments_.give_back(own);
  }
  b.limit.store(own.end, limit_order);
  if (b.of) account(*b.of, false);
  return at;
}

std::byte* lease_book::staging(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  restore(m);
  if (!m.staging_held) {
    if (left() < limits::window_max) round_of_idle();
    if (left() < limits::window_max) return nullptr;
    try {
      if (free_buffers_.empty()) {
        free_buffers_.reserve(buffers_.size() + 1);
        buffers_.push_back(std::make_unique_for_overwrite<std::byte[]>(limits::window_max));
        free_buffers_.push_back(buffers_.back().get());
        for (auto& link : cache_.agents())
          link->session().lend(free_buffers_.back(), limits::window_max, limits::window_max);
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    m.staging_held = free_buffers_.back();
    free_buffers_.pop_back();
    account(m, true);
  }
  m.staging.store(m.staging_held, limit_order);
  return m.staging_held;
}

bool lease_book::more_fetches(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  const bool taken_back = m.fetches.load(limit_order) == 0 && m.chunk_count != 0;
  restore(m);
  if (taken_back) return true;
  if (m.chunk_count == mutator::chunks_max) return false;
  if (left() < sizeof(fetch_chunk)) round_of_idle();
  // A thread that has none gets some: it may wait for nothing else.
  if (left() < sizeof(fetch_chunk) && m.chunk_count != 0) return false;
  try {
    if (free_chunks_.empty()) {
      free_chunks_.reserve(chunks_.size() + 1);
      chunks_.push_back(std::make_unique<fetch_chunk>());
      free_chunks_.push_back(chunks_.back().get());
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  fetch_chunk* const c = free_chunks_.back();
  free_chunks_.pop_back();
  for (fetch& f : c->records) f.from.store(&m, std::memory_order_relaxed);
  m.chunks[m.chunk_count++] = c;
  m.fetches.store(m.chunk_count * fetch_chunk::size, limit_order);
  account(m, true);
  return true;
}

// ---- slots ----

bool lease_book::restore_slots(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  restore(m);
  return m.has_slot();
}

std::uint64_t lease_book::slots_wanted(mutator& m, std::uint64_t together) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t most = limits::slots_per_run;
  m.wanted_slots = std::min(
      most, std::max({2 * m.wanted_slots, std::bit_ceil(std::min(together, most)), limits::slots_of_first_run}));
  const std::uint64_t affordable = portion(sizeof(word_t)) / sizeof(word_t);
  return std::bit_floor(std::max<std::uint64_t>(1, std::min(m.wanted_slots, affordable)));
}

void lease_book::lease_slots(mutator& m, const slot_page& free, slot_t first, slot_t end,
                             std::uint64_t filling) noexcept {
  const std::lock_guard lock(mutex_);
  if (m.filling_slots != 0) cache_.pages().end_filling(m.filling, m.filling_slots);
  m.filling = first != end ? first : free.first;
  m.filling_slots = filling;
  m.rest = free;
  m.next_slot = first;
  m.end_slot.store(end, std::memory_order_relaxed);
  m.slot_limit.store(end, limit_order);
  std::uint64_t slots = end - first;
  begin_youth_of_run(first, end);
  for (std::size_t i = 0; i < free.bits.size(); ++i) {
    begin_youth(free.first + i * 64, free.bits[i]);
    slots += static_cast<std::uint64_t>(std::popcount(free.bits[i]));
  }
  m.run_slots = slots;
  account(m, true);
}

void lease_book::return_slots(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  cache_.slots().offer(m);
  end_run(m);
  m.slot_limit.store(0, limit_order);
  account(m, false);
}

void lease_book::end_run(mutator& m) noexcept {
  if (m.filling_slots != 0) cache_.pages().end_filling(m.filling, m.filling_slots);
  m.filling_slots = 0;
  m.run_slots = m.wanted_slots = 0;
}

// ---- taking back ----

void lease_book::account(mutator& m, bool is_newest) noexcept {
  const auto of_piece = [](const bump& b) { return b.own.seg ? b.own.room() : 0; };
  std::uint64_t now = of_piece(m.made) + of_piece(m.fetched);
  now += (std::max<std::uint64_t>(m.run_slots, 1) - 1) * sizeof(word_t);  // one alone is used at once
  now += (m.staging_held ? limits::window_max : 0) + m.chunk_count * sizeof(fetch_chunk);
  leased_ += now - m.leased;
  m.leased = now;
  // A piece without room is a lease, too: its segment waits for it.
  const bool fills = m.made.own.seg || m.fetched.own.seg;
  const bool leases = now != 0 || fills;
  if (m.is_linked() && (is_newest || !leases)) lessees_.erase(lessees_.iterator_to(m));
  if (!m.is_linked() && leases) lessees_.push_back(m);
  leases_ += is_newest;
  if (fills == m.fills) return;
  m.fills = fills;
  filling_ += fills ? 1 : -1;
  cache_.frames().expect_threads(threads_, filling_);
}

void lease_book::announce(mutator& m) noexcept {
  m.made.limit.store(nullptr, limit_order);
  m.fetched.limit.store(nullptr, limit_order);
  m.slot_limit.store(0, limit_order);
  m.staging.store(nullptr, limit_order);
  m.fetches.store(0, limit_order);
}

// After the fence.
bool lease_book::idle(const mutator& m) noexcept {
  // This first: its thread is in a section before it says that it does not write any more.
  if (m.writes_new.load(FM_TSAN ? std::memory_order_seq_cst : std::memory_order_acquire) != 0) return false;
  if (m.thread && m.thread->epoch.load(FM_TSAN ? std::memory_order_seq_cst : std::memory_order_acquire) != 0)
    return false;
  return m.made.limit.load(limit_order) == nullptr && m.fetched.limit.load(limit_order) == nullptr &&
         m.slot_limit.load(limit_order) == 0 && m.staging.load(limit_order) == nullptr &&
         m.fetches.load(limit_order) == 0;
}

void lease_book::restore(mutator& m) noexcept {
  for (bump* b : {&m.made, &m.fetched}) b->limit.store(b->own.end, limit_order);
  // Its thread may just be going on to the next run, in a section that has begun before the limit was null.
  slot_t taken = 0;
  m.slot_limit.compare_exchange_strong(taken, m.end_slot.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  m.staging.store(m.staging_held, limit_order);
  m.fetches.store(m.chunk_count * fetch_chunk::size, limit_order);
}

// Among those who leased longest ago, if enough has happened since that was tried.
void lease_book::round_of_idle() noexcept {
  if (leases_ >= round_at_) round(std::min((lessees_.size() + 1) / 2, limits::asked_together), false);
}

void lease_book::round(std::size_t at_most, bool only_lingering) noexcept {
  const std::size_t n = std::min(at_most, lessees_.size());
  std::size_t left = n, taken = 0;
  bool any = false;
  for (auto m = lessees_.begin(); left-- > 0; ++m) {
    m->asked = !only_lingering || segments_.lingers(m->made.own) || segments_.lingers(m->fetched.own);
    if (!m->asked) continue;
    announce(*m);
    any = true;
  }
  if (any) os::heavy_fence();
  left = n;
  for (auto m = lessees_.begin(); left-- > 0;) {
    mutator& candidate = *m++;
    if (!candidate.asked) continue;
    if (!idle(candidate)) {  // it does something: others come first the next time
      restore(candidate);
      lessees_.splice(lessees_.end(), lessees_, lessees_.iterator_to(candidate));
    } else if (only_lingering) {
      take_pieces(candidate);
      restore(candidate);
      ++taken;
    } else {
      taken += take(candidate);
    }
  }
  taken_back_ += taken;
  round_at_ = leases_ + limits::leases_between_rounds;
}

void lease_book::take_pieces(mutator& m) noexcept {
  segments_.give_back(m.made.own);
  segments_.give_back(m.fetched.own);
  account(m, false);
}

// Whether anything came back. What cannot be taken now stays, without limits.
bool lease_book::take(mutator& m) noexcept {
  const std::uint64_t before = m.leased;
  const bool any = m.made.own.seg || m.fetched.own.seg;
  take_pieces(m);
  if (cache_.slots().take_back(m)) end_run(m);
  // A thread that waits outside of its sections for a read has it come into its buffer.
  if (m.staging_held && m.waited.posted_at.load(std::memory_order_seq_cst) == 0)
    free_buffers_.push_back(std::exchange(m.staging_held, nullptr));
  for (std::uint32_t i = m.chunk_count; i-- > 0;) {
    const auto& records = m.chunks[i]->records;
    if (std::any_of(records.begin(), records.end(),
                    [](const fetch& f) { return f.busy.load(std::memory_order_acquire) != 0; }))
      continue;
    free_chunks_.push_back(m.chunks[i]);
    m.chunks[i] = m.chunks[--m.chunk_count];
  }
  account(m, false);
  return any || m.leased != before;
}

void lease_book::give_back_pieces(mutator& m) noexcept {
  const std::lock_guard lock(mutex_);
  for (bump* b : {&m.made, &m.fetched}) {
    cache_.frames().settle(*b);
    segments_.give_back(b->own);
    b->limit.store(nullptr, limit_order);
  }
  account(m, false);
}

void lease_book::give_back(bump& b) noexcept {
  const std::lock_guard lock(mutex_);
  segments_.give_back(b.own);
  b.limit.store(nullptr, limit_order);
}

void lease_book::take_back_all() noexcept {
  const std::lock_guard lock(mutex_);
  round(lessees_.size(), false);
  segments_.close();
}

void lease_book::take_all_pieces() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto m = lessees_.begin(); m != lessees_.end();) {
    mutator& lessee = *m++;
    for (bump* b : {&lessee.made, &lessee.fetched}) cache_.frames().settle(*b);
    take_pieces(lessee);
  }
  segments_.close();
}

void lease_book::close_segments() noexcept {
  const std::lock_guard lock(mutex_);
  segments_.close();
}

bool lease_book::take_back_lingering() noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t before = segments_.lingering();
  if (before == 0) return false;
  round(lessees_.size(), true);
  segments_.close();
  return segments_.lingering() < before;
}

lease_book::counts lease_book::count() noexcept {
  const std::lock_guard lock(mutex_);
  return {leased_, lessees_.size(), taken_back_};
}

}  // namespace fm::detail
