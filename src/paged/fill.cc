// Absent blocks: choosing the block to fetch, fetching it, and installing it; see core.h. A page becomes present here
// and nowhere else. Faults call it, and so does ahead.cc.
#include <algorithm>
#include <utility>

#include "core.h"

namespace fm::detail {

namespace {

/// What an untouched page is filled from. Never written; all of it is one page of the kernel's.
constexpr std::size_t zero_bytes = 2u << 20;
const std::byte* zeroes() noexcept {
  alignas(page_bytes) static std::byte all[zero_bytes];
  return all;
}

}  // namespace

std::uint64_t paged_core::random() noexcept {
  std::uint64_t x = random_.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

paged_core::block paged_core::choose(std::uint64_t page, page_word w) const noexcept {
  std::uint32_t order = options_.elastic ? std::min(w.hint(), order_max_) : order_max_;
  for (; order > 0; --order) {
    const std::uint64_t first = table_.head(page, order);
    bool all = true;
    for (std::uint64_t p = first; all && p < first + (std::uint64_t{1} << order); ++p)
      all = table_.get(p).absent() && !table_.get(p).poisoned() && !table_.get(p).lost();
    if (all) return {first, order};
  }
  return {page, 0};
}

void paged_core::claim(const block& b) noexcept {
  table_.update(b.first, b.order, [](page_word& w) { w.state(block_state::busy); });
}

std::uint32_t paged_core::share_of(std::size_t slots) const noexcept {
  const std::size_t agents = home_.serving();
  if (agents <= 1) return static_cast<std::uint32_t>(slots);
  // Each fetch has taken its room.
  slots = std::min<std::size_t>(slots, limit_.load(std::memory_order_relaxed) >> order_max_);
  const std::size_t left = slots - slots / paged_limits::fetch_reserve_share;
  return static_cast<std::uint32_t>(std::max<std::size_t>(left / (agents - 1), 1));
}

// A share is a slot and a block at least. So all agents but one together have no more than share_of leaves them if there
// are so many: s - s / fetch_reserve_share >= agents - 1.
std::size_t paged_core::least_blocks(std::size_t agents) noexcept {
  constexpr std::size_t share = paged_limits::fetch_reserve_share;
  return std::max<std::size_t>(paged_limits::blocks_least, ((agents - 1) * share + share - 2) / (share - 1));
}

bool paged_core::has_fetch_slot(const home_agent& agent) const noexcept {
  return agent.fetches.load() < share_of(fetch_slots_.size()) &&
         std::any_of(fetch_slots_.begin(), fetch_slots_.end(), [](const fetch_slot& s) { return !s.taken.load(); });
}

paged_core::fetch_slot* paged_core::try_fetch_slot(home_agent& agent) noexcept {
  std::uint32_t fetches = agent.fetches.load();
  do
    if (fetches >= share_of(fetch_slots_.size())) return nullptr;
  while (!agent.fetches.compare_exchange_weak(fetches, fetches + 1));
  for (fetch_slot& s : fetch_slots_) {
    bool expected = false;
    if (s.taken.compare_exchange_strong(expected, true, std::memory_order_acquire)) return &s;
  }
  agent.fetches.fetch_sub(1);
  return nullptr;
}

// Without room, so that those who wait for an agent that is silent leave it to others. Slots are taken by fetches, which
// have a deadline. At a close some stay with accesses that are parked for good.
void paged_core::wait_for_slot(const home_agent& agent, std::uint64_t page, time_point until) noexcept {
  for (;;) {
    const std::uint32_t seen = fetch_slots_freed_.load();
    if (has_fetch_slot(agent) || !agent.up() || stopping_.load(std::memory_order_relaxed) ||
        home_.reader_of(page).agent != &agent)  // another one has it, too
      return;
    const time_point now = clock::now();
    if (now >= until) return;
    os::futex_wait(fetch_slots_freed_, seen, std::min<time_point>(until, now + std::chrono::milliseconds(20)));
  }
}

void paged_core::give_fetch_slot(fill_op& op) noexcept {
  fetch_slot& s = *op.slot;
  s.request.state.store(fabric::request::idle, std::memory_order_relaxed);
  s.taken.store(false);
  op.agent->fetches.fetch_sub(1);
  fetch_slots_freed_.fetch_add(1);
  os::futex_wake(fetch_slots_freed_, INT32_MAX);  // the next one may be another agent's
  if (queued_.load() != 0) wake_parked();
}

void paged_core::begin_fill(const block& b, fill_op& op, bool overtakes) noexcept {
  op.what = b;
  op.remote_first = op.remote_end = b.first;
  for (std::uint64_t p = b.first; p < b.first + b.pages(); ++p) {  // busy, so nobody else changes them
    if (!table_.get(p).home()) continue;
    if (op.remote_end == b.first) op.remote_first = p;
    op.remote_end = p + 1;
  }
  if (op.remote_end == op.remote_first) return;
  const home::member from = home_.reader_of(b.first);
  op.agent = from.agent;  // there is one: a page has its home copy
  const std::uint64_t at = home_.offset_in(from, op.remote_first);
  if (const std::byte* d = op.agent->begin_copying(at)) {
    op.direct = d - offset(op.remote_first - b.first);
    return;
  }
  fabric::remote where;
  if (!op.agent->up() || !op.agent->find(at, where)) {
    op.early = op.agent->lost() ? errc::agent_lost : errc::disconnected;
    return;
  }
  if (overtakes || op.agent->line.empty()) op.slot = try_fetch_slot(*op.agent);
  if (op.slot == nullptr) {
    op.early = errc::timed_out;
    op.no_slot = true;
    return;
  }
  fabric::request& r = op.slot->request;
  r.kind = fabric::op_kind::read;
  r.on = fabric::lane::fetch;
  r.fence = false;
  r.sg_count = 1;
  r.sg[0] = {op.slot->staging + offset(op.remote_first - b.first), offset(op.remote_end - op.remote_first)};
  r.where = where;
  r.deadline = clock::now() + home_.answer_within(*op.agent);
  op.slot->parked.store(fetch_slot::is_waited_for, std::memory_order_relaxed);
  op.agent->session().post(r);
}

errc paged_core::end_fill(fill_op& op, const fill_how& how) noexcept {
  errc e = op.early;
  if (op.slot != nullptr) {
    op.agent->session().wait(op.slot->request);
    e = op.slot->request.status;
    op.agent->heard_of(e);
  }
  bool partly = false;
  if (e == errc::ok) {
    e = install(op, how);
    partly = e != errc::ok;
  }
  if (op.slot != nullptr) give_fetch_slot(op);
  if (std::exchange(op.direct, nullptr) != nullptr) op.agent->end_copying();
  const block& b = op.what;
  if (e != errc::ok) {
    undo_fill(b, partly);
    return e;
  }
  count(counts_.fetched_bytes, offset(op.remote_end - op.remote_first));
  count(counts_.filled[b.order]);
  if (!how.ahead) count(counts_.beside_pages[b.order], b.pages() - 1);
  page_group& g = table_.group(b.first);
  g.lock();
  const bool dirty = !tracks_ || how.write;
  for (std::uint64_t p = b.first; p < b.first + b.pages(); ++p) {
    page_word w = table_.get(p);
    w.state(block_state::resident);
    w.order(b.order);
    w.dirty(dirty);
    w.mapped(how.mapped && (!how.sample || p == how.page));
    w.touched(p == how.page);
    w.queue(page_queue::none);
    table_.set(p, w);
  }
  page_word head = table_.get(b.first);
  head.sampled(how.sample);
  head.ahead(how.ahead && !how.mapped);
  table_.set(b.first, head);
  if (!how.ahead) stretch(b);
  const bool lucky = policy_.promotes(random());
  if (lucky) count(counts_.promoted);
  enter(b.first, lucky ? page_queue::proactive : page_queue::active);
  g.unlock();
  g.changed();
  if (free_pages() < reserve_pages()) wake_evictor();
  return errc::ok;
}

errc paged_core::install(const fill_op& op, const fill_how& how) noexcept {
  const block& b = op.what;
  const std::byte* const fetched = op.slot != nullptr ? op.slot->staging : op.direct;
  const bool protect = tracks_ && !how.write;
  // Runs of pages from one source, and with one treatment.
  for (std::uint64_t p = b.first, end = b.first + b.pages(); p < end;) {
    const bool remote = table_.get(p).home();
    const bool mapped = how.mapped && (!how.sample || p == how.page);
    std::uint64_t q = p + 1;
    while (q < end && table_.get(q).home() == remote && (how.mapped && (!how.sample || q == how.page)) == mapped) ++q;
    const std::byte* const source = remote ? fetched + offset(p - b.first) : zeroes();
    const errc e = mapped ? memory_.fill(offset(p), source, offset(q - p), protect)
                          : memory_.fill_unmapped(offset(p), source, offset(q - p));
    if (e != errc::ok) return e;
    p = q;
  }
  return errc::ok;
}

void paged_core::undo_fill(const block& b, bool remove) noexcept {
  if (remove) {
    const byte_run all{b.from(), b.bytes()};
    memory_.remove({&all, 1});
  }
  page_group& g = table_.group(b.first);
  g.lock();
  table_.update(b.first, b.order,
                [](page_word& w) { w.state(w.home() ? block_state::remote : block_state::untouched); });
  g.unlock();
  g.changed();
  give_room(b.pages());
}

// dcm, section 4.2, STRETCH: a block and its buddy that are both here would have come together. Resident blocks stay as
// they are; they will next time. The group is locked.
void paged_core::stretch(const block& b) noexcept {
  if (!options_.elastic || b.order >= order_max_) return;
  const page_word buddy = table_.get(b.first ^ b.pages());
  if (!buddy.present() || buddy.order() != b.order) return;
  const std::uint32_t wanted = b.order + 1;
  if (!record_.grows(wanted, random())) return;
  table_.update(table_.head(b.first, wanted), wanted, [&](page_word& w) {
    if (w.hint() < wanted) w.hint(wanted);
  });
  count(counts_.stretched);
}

void paged_core::enter(std::uint64_t first, page_queue q) noexcept {
  page_word head = table_.get(first);
  head.queue(q);
  head.tag(head.tag() + 1);
  table_.set(first, head);
  const block_entry e = block_entry::of(first, head);
  switch (q) {
    case page_queue::active: active_.push(e, table_); break;
    case page_queue::proactive: proactive_.push(e, table_); break;
    case page_queue::inactive: inactive_.push(std::span(&e, 1), table_); break;
    case page_queue::none: break;
  }
}

}  // namespace fm::detail
