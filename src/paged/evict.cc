// Eviction (dcm, section 3): blocks are cooled into inactive, swept out of it, and written back when they are dirty.
// Any thread may do a step, and several at a time; blocks are theirs one by one, by their words.
//
//   cool     a batch of active's oldest: inactive by their words, unmapped by one system call, then into the queue
//   sweep    a batch of inactive's oldest that nobody has touched: clean ones become busy, are removed, and are `remote`;
//            of dirty ones the bytes are copied out and their write posted
//   harvest  writes that have ended: blocks that nobody has touched meanwhile are clean now, and removed
#include "paged_limits.h"
#include <algorithm>

#include "core.h"

namespace fm::detail {

namespace {

/// Sorts blocks and joins neighbours, so that one system call serves many.
std::size_t runs_of(std::span<block_entry> blocks, std::span<byte_run> runs) noexcept {
  std::sort(blocks.begin(), blocks.end(), [](const block_entry& a, const block_entry& b) { return a.bits < b.bits; });
  std::size_t n = 0;
  for (const block_entry& e : blocks) {
    const std::uint64_t from = e.first() * page_bytes, bytes = e.pages() * page_bytes;
    if (n != 0 && runs[n - 1].from + runs[n - 1].bytes == from)
      runs[n - 1].bytes += bytes;
    else
      runs[n++] = {from, bytes};
  }
  return n;
}

}  // namespace

bool paged_core::take_room(std::uint64_t pages) noexcept {
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  while (used + pages <= limit_.load(std::memory_order_relaxed))
    if (used_.compare_exchange_weak(used, used + pages, std::memory_order_relaxed)) return true;
  wake_evictor();
  return false;
}

void paged_core::give_room(std::uint64_t pages) noexcept {
  used_.fetch_sub(pages, std::memory_order_relaxed);
  moved_.fetch_add(1);
  os::futex_wake(moved_, INT32_MAX);
}

std::uint64_t paged_core::free_pages() const noexcept {
  const std::uint64_t used = used_.load(std::memory_order_relaxed), limit = limit_.load(std::memory_order_relaxed);
  return limit > used ? limit - used : 0;
}

std::uint64_t paged_core::reserve_pages() const noexcept {
  const std::uint64_t limit = limit_.load(std::memory_order_relaxed), largest = std::uint64_t{1} << order_max_;
  return std::max(2 * largest, std::min<std::uint64_t>(limit / 16, 4096));
}

void paged_core::make_room(std::uint64_t pages, time_point until, asking how) noexcept {
  while (free_pages() < pages && clock::now() < until) {
    const std::uint32_t seen = moved_.load();
    if (evict_step(false, how)) continue;
    home_.poll();
    if (free_pages() < pages && !harvest())
      os::futex_wait(moved_, seen, std::min(until, clock::now() + std::chrono::milliseconds(2)));
  }
}

bool paged_core::evict_step(bool everything, asking how) noexcept {
  bool moved = harvest();
  const std::uint64_t target =
      policy_.inactive_target(limit_.load(std::memory_order_relaxed), std::uint64_t{1} << order_max_);
  if (everything || inactive_.pages() < target) moved = cool() || moved;
  return sweep(how) || moved;
}

// Proactive is held to its share: its oldest go to active's young end.
void paged_core::balance() noexcept {
  if (!policy_.proactive_is_over(proactive_.pages(), limit_.load(std::memory_order_relaxed)) && active_.pages() != 0)
    return;
  std::array<block_entry, paged_limits::blocks_each_step> some;
  const std::size_t n = proactive_.pop(some, table_);
  for (std::size_t i = 0; i < n; ++i) {
    page_group& g = table_.group(some[i].first());
    g.lock();
    if (some[i].holds(table_.get(some[i].first()))) enter(some[i].first(), page_queue::active);
    g.unlock();
  }
}

bool paged_core::cool() noexcept {
  balance();
  std::array<block_entry, paged_limits::blocks_each_step> some;
  std::size_t n = active_.pop(some, table_), kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const block_entry e = some[i];
    page_group& g = table_.group(e.first());
    g.lock();
    page_word head = table_.get(e.first());
    if (e.holds(head)) {
      table_.update(e.first(), e.order(), [](page_word& w) {
        w.state(block_state::inactive);
        w.mapped(false);
      });
      head = table_.get(e.first());
      head.queue(page_queue::inactive);
      head.tag(head.tag() + 1);
      table_.set(e.first(), head);
      some[kept++] = block_entry::of(e.first(), head);
    }
    g.unlock();
  }
  if (kept == 0) return n != 0;
  // Only now: whoever finds a block in the queue, and its word unchanged, knows that it is not mapped.
  std::array<block_entry, paged_limits::blocks_each_step> sorted = some;
  std::array<byte_run, paged_limits::blocks_each_step> runs;
  memory_.unmap({runs.data(), runs_of({sorted.data(), kept}, runs)});
  inactive_.push(std::span<const block_entry>(some.data(), kept), table_);
  return true;
}

// Of a block whose home copies are lost: it will be dirty (mend.cc), if there is an agent to go on with.
bool paged_core::is_last_copy(const block_entry& e) noexcept {
  if (!home_.is_lost(home_.stripe_of(e.first()))) return false;
  bool any = false;
  for (std::uint64_t p = e.first(); p < e.first() + e.pages(); ++p) any = any || table_.get(p).home();
  if (any && home_.serving() == 0) note_failure(errc::agent_lost, home_.reader_of(e.first()).agent);
  return any;
}

bool paged_core::sweep(asking how) noexcept {
  std::array<block_entry, paged_limits::blocks_each_step> some, gone, later;
  const std::size_t n = inactive_.pop(some, table_);
  std::size_t removing = 0, waiting = 0, started = 0, stale = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const block_entry e = some[i];
    page_group& g = table_.group(e.first());
    g.lock();
    page_word head = table_.get(e.first());
    if (!e.holds(head)) {
      ++stale;
    } else if (head.writing_back()) {
      later[waiting++] = e;  // an earlier write of it, which became vain, has not ended
    } else if (head.dirty()) {
      const std::uint64_t stripe = home_.stripe_of(e.first());
      const home::outcome o = home_.is_copied(stripe) ? home::outcome() : home_.begin_write(stripe);
      if (!o.begun) {
        g.unlock();
        note_failure(o.code, o.agent);
        later[waiting++] = e;
        continue;
      }
      table_.update(e.first(), e.order(), [](page_word& w) { w.state(block_state::writing); });
      head = table_.get(e.first());
      head.writing_back(true);
      table_.set(e.first(), head);
      const home::member_list to = home_.members(stripe);
      g.unlock();
      const begun b = start_write(e, to, how);
      started += b != begun::no;
      if (b == begun::done && acknowledge(e)) gone[removing++] = e;
      continue;
    } else if (is_last_copy(e)) {
      later[waiting++] = e;
    } else {
      table_.update(e.first(), e.order(), [](page_word& w) { w.state(block_state::busy); });
      gone[removing++] = e;
      count(counts_.dropped);
    }
    g.unlock();
  }
  if (waiting != 0) inactive_.push(std::span<const block_entry>(later.data(), waiting), table_);
  remove({gone.data(), removing});
  return removing + started + stale != 0;
}

// Removes busy blocks, whose bytes are at home or zero.
void paged_core::remove(std::span<block_entry> gone) noexcept {
  if (gone.empty()) return;
  std::array<byte_run, paged_limits::blocks_each_step> runs;
  memory_.remove({runs.data(), runs_of(gone, runs)});
  std::uint64_t pages = 0;
  for (const block_entry& e : gone) {
    page_group& g = table_.group(e.first());
    g.lock();
    const page_word head = table_.get(e.first());
    // dcm, section 4.2, REDUCE: a block of which no more than half was used falls apart.
    std::uint64_t used = 0;
    for (std::uint64_t p = e.first(); p < e.first() + e.pages(); ++p) used += table_.get(p).touched();
    const bool reduce = (head.sampled() && 2 * used <= e.pages()) || head.ahead();
    table_.update(e.first(), e.order(), [&](page_word& w) {
      w.state(w.home() ? block_state::remote : block_state::untouched);
      w.dirty(false);
      w.mapped(false);
      w.touched(false);
      w.queue(page_queue::none);
      w.order(0);
      w.sampled(false);
      w.ahead(false);
      if (reduce) w.hint(0);
    });
    g.unlock();
    g.changed();
    if (reduce && e.order() != 0) count(counts_.reduced);
    if (head.sampled()) {
      record_.turned_out(e.order(), 2 * used > e.pages());
      count(counts_.sampled_pages[e.order()], e.pages() - 1);
      count(counts_.sampled_used[e.order()], used > 0 ? used - 1 : 0);
    }
    if (head.ahead()) streams_.in_vain(e.first());
    pages += e.pages();
  }
  evicted_.fetch_add(1, std::memory_order_relaxed);
  give_room(pages);
}

paged_core::write_slot* paged_core::take_write_slot(std::span<const home::member> to) noexcept {
  const std::uint32_t share = share_of(write_slots_.size());
  bool may = true;
  for (const home::member& m : to) may = m.agent->writes.fetch_add(1, std::memory_order_relaxed) < share && may;
  if (may)
    for (write_slot& s : write_slots_) {
      std::uint32_t expected = write_slot::idle;
      if (s.state.compare_exchange_strong(expected, write_slot::preparing, std::memory_order_acquire)) return &s;
    }
  for (const home::member& m : to) m.agent->writes.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

bool paged_core::writes_in_flight() const noexcept {
  return std::any_of(write_slots_.begin(), write_slots_.end(),
                     [](const write_slot& s) { return s.state.load() != write_slot::idle; });
}

// The block is `writing`, and nobody else's until its write has ended, which all members must have. False when it could
// not begin. `to` are all members; they may become fewer meanwhile, and not more.
paged_core::begun paged_core::start_write(const block_entry& e, const home::member_list& to, asking how) noexcept {
  const std::uint64_t bytes = e.pages() * page_bytes;
  const auto fail = [&](errc why, home_agent* whose, bool refused = false) {
    fail_write(e, why, whose, refused);
    return begun::no;
  };
  fabric::remote where;
  for (const home::member& m : to) {
    const std::uint64_t at = home_.offset_in(m, e.first());
    if (how == asking::nothing && !m.agent->find(at, where)) return fail(errc::ok, nullptr);
    const std::optional<errc> made = how == asking::waits ? m.agent->make(at) : m.agent->make_soon(at);
    if (!made) return fail(errc::ok, nullptr);
    if (*made != errc::ok) return fail(*made, m.agent, *made == errc::agent_full || *made == errc::quota_exceeded);
  }
  home::member_list posted;
  for (const home::member& m : to) {
    if (std::byte* const d = m.agent->begin_copying(home_.offset_in(m, e.first()))) {
      memory_.read(offset(e.first()), d, bytes);
      m.agent->end_copying();
      count(counts_.written_bytes, bytes);
    } else {
      posted.add(m);
    }
  }
  if (posted.count == 0) return begun::done;
  std::array<fabric::remote, paged_limits::replicas_max> places;
  for (std::uint32_t i = 0; i < posted.count; ++i) {
    home_agent& agent = *posted.at[i].agent;
    if (!agent.up() || !agent.find(home_.offset_in(posted.at[i], e.first()), places[i]))
      return fail(agent.lost() ? errc::agent_lost : errc::disconnected, &agent);
  }
  write_slot* const s = take_write_slot({posted.begin(), posted.end()});
  if (s == nullptr) return fail(errc::ok, nullptr);
  memory_.read(offset(e.first()), s->staging, bytes);
  s->entry = e;
  s->count = posted.count;
  s->under_way.store(posted.count, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < posted.count; ++i) {
    s->agents[i] = posted.at[i].agent;
    fabric::request& r = s->requests[i];
    r.kind = fabric::op_kind::write;
    r.on = fabric::lane::bulk;
    r.fence = false;
    r.sg_count = 1;
    r.sg[0] = {s->staging, bytes};
    r.where = places[i];
    r.deadline = clock::now() + home_.answer_within(*posted.at[i].agent);
    r.on_done = written;
    r.context = s;
  }
  s->state.store(write_slot::posted, std::memory_order_release);
  for (std::uint32_t i = 0; i < posted.count; ++i)  // the last one may be done, and the slot another's, when it returns
    posted.at[i].agent->session().post(s->requests[i]);
  return begun::posted;
}

void paged_core::written(fabric::request& r) noexcept {
  auto* const s = static_cast<write_slot*>(r.context);
  if (s->under_way.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  paged_core* const core = s->core;
  s->state.store(write_slot::done, std::memory_order_release);
  core->moved_.fetch_add(1);
  os::futex_wake(core->moved_, INT32_MAX);
}

bool paged_core::harvest() noexcept {
  std::array<block_entry, paged_limits::blocks_each_step> gone;
  std::size_t removing = 0;
  bool any = false;
  for (write_slot& s : write_slots_) {
    if (removing == gone.size()) break;
    std::uint32_t expected = write_slot::done;
    if (!s.state.compare_exchange_strong(expected, write_slot::finishing, std::memory_order_acquire)) continue;
    any = true;
    const block_entry e = s.entry;
    errc code = errc::ok;
    home_agent* whose = nullptr;
    for (std::uint32_t i = 0; i < s.count; ++i) {
      fabric::request& r = s.requests[i];
      s.agents[i]->heard_of(r.status);
      if (r.status == errc::ok)
        count(counts_.written_bytes, e.pages() * page_bytes);
      else if (code == errc::ok)
        code = r.status, whose = s.agents[i];
      r.state.store(fabric::request::idle, std::memory_order_relaxed);
      s.agents[i]->writes.fetch_sub(1, std::memory_order_relaxed);
    }
    s.state.store(write_slot::idle, std::memory_order_release);
    if (code != errc::ok)
      fail_write(e, code, whose);
    else if (acknowledge(e))
      gone[removing++] = e;
  }
  remove({gone.data(), removing});
  return any;
}

bool paged_core::acknowledge(const block_entry& e) noexcept {
  last_error_.store(0, std::memory_order_relaxed);
  page_group& g = table_.group(e.first());
  g.lock();
  page_word head = table_.get(e.first());
  head.writing_back(false);
  table_.set(e.first(), head);
  const bool untouched = head.state() == block_state::writing && e.holds(head);
  std::uint32_t fresh = 0;
  if (untouched) {
    table_.update(e.first(), e.order(), [&](page_word& w) {
      fresh += !w.home();
      w.state(block_state::busy);
      w.dirty(false);
      w.home(true);
    });
  }
  home_.end_write(home_.stripe_of(e.first()), fresh, nullptr);
  g.unlock();
  g.changed();
  if (!untouched) count(counts_.cancelled);
  return untouched;
}

void paged_core::note_failure(errc code, const home_agent* agent) noexcept {
  if (code == errc::ok) return;
  last_error_agent_.store(agent, std::memory_order_relaxed);
  last_error_.store(static_cast<std::uint16_t>(code), std::memory_order_relaxed);
  count(counts_.write_failures);
}

// The block goes back to where it was, to be written later. A lost agent's stripe has other members then, or it is given
// up (mend.cc): that is no reason to give up.
void paged_core::fail_write(const block_entry& e, errc code, home_agent* agent, bool refused) noexcept {
  note_failure(code == errc::agent_lost && home_.serving() != 0 ? errc::ok : code, agent);
  page_group& g = table_.group(e.first());
  g.lock();
  page_word head = table_.get(e.first());
  head.writing_back(false);
  table_.set(e.first(), head);
  if (head.state() == block_state::writing && e.holds(head)) {
    table_.update(e.first(), e.order(), [](page_word& w) { w.state(block_state::inactive); });
    enter(e.first(), page_queue::inactive);
  }
  home_.end_write(home_.stripe_of(e.first()), 0, refused ? agent : nullptr);
  g.unlock();
  g.changed();
}

void paged_core::wake_evictor() noexcept {
  if (!evictor_sleeps_.load(std::memory_order_relaxed)) return;
  work_.fetch_add(1);
  os::futex_wake(work_, 1);
}

void paged_core::run_evictor() noexcept {
  os::name_thread("fm-paged-evict");
  const auto help = [this](const auto& work) {
    const std::lock_guard lock(evictor_at_work_);
    return work();
  };
  while (!stopping_.load()) {
    const std::uint32_t seen = work_.load(), moved = moved_.load();
    if (free_pages() >= reserve_pages()) {
      home_.settle_soon();
      evictor_sleeps_.store(true);
      if (free_pages() >= reserve_pages() && !stopping_.load()) {
        if (!help([&] { return harvest(); }))
          os::futex_wait(work_, seen, clock::now() + std::chrono::milliseconds(100));
      }
      evictor_sleeps_.store(false);
      continue;
    }
    if (!help([&] { return evict_step(false, asking::soon); }))
      os::futex_wait(moved_, moved, clock::now() + std::chrono::milliseconds(5));
  }
}

}  // namespace fm::detail
