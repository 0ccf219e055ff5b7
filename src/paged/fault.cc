// An access that needs something; see core.h. Runs on the library's fault threads (parked.cc), or in a handler of SIGBUS
// on the thread that touched the page, so nothing here allocates, throws or touches the range.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core.h"

namespace fm::detail {

namespace {

/// Trying again may help.
bool passes(errc e) noexcept {
  return e == errc::disconnected || e == errc::timed_out || e == errc::cancelled || e == errc::out_of_memory;
}

}  // namespace

bool paged_core::serve(std::uint64_t page, bool write, trouble& why) noexcept {
  access a{.page = page, .write = write, .arrived = clock::now()};
  const bool served = go_on(a) == step::served;
  why = a.why;
  return served;
}

paged_core::step paged_core::go_on(access& a) noexcept {
  const auto served = [&] {
    count(counts_.faults);
    fault_ns_.add(static_cast<std::uint64_t>((clock::now() - a.arrived).count()));
    return step::served;
  };
  for (;;) {
    const step s = std::exchange(a.fetching, false) ? end_attempt(a, a.how, a.op) : attempt(a);
    if (s == step::again) continue;
    if (s == step::no_slot && a.may_park) return enter_queue(a);
    if (s == step::no_slot && !stopping_.load(std::memory_order_relaxed)) {
      wait_for_slot(*a.slot_of, a.page);  // with a thread of its own, so it need not stand in the queue
      continue;
    }
    leave_queue(a);
    if (s == step::served) return served();
    if (s == step::parked) return s;
    if (stopping_.load(std::memory_order_relaxed)) return served();  // nothing may touch the range any more
    const time_point now = clock::now();
    if (s == step::no_room) {
      // As long as anything is evicted, it may take its time: others were quicker.
      const std::uint64_t evicted = evicted_.load(std::memory_order_relaxed);
      if (a.room_until == time_point{} || evicted != a.evicted) a.room_until = now + options_.access_within;
      a.evicted = evicted;
    } else {
      a.room_until = {};
      if (a.until == time_point{}) a.until = now + options_.access_within;
    }
    if (s == step::hopeless || now >= (s == step::no_room ? a.room_until : a.until)) break;
    if (s == step::no_room) {
      if (!a.waited_for_room) count(counts_.room);
      a.waited_for_room = true;
      if (a.may_park && now >= a.patience) {
        evict_step(false, asking::nothing);
        return park(a);
      }
      make_room(std::uint64_t{1} << order_max_, a.may_park ? a.patience : now + std::chrono::milliseconds(20),
                a.may_park ? asking::nothing : asking::soon);
    } else if (a.may_park) {
      return park(a);
    } else {
      os::futex_wait(never_, 0, now + std::chrono::milliseconds(2));
    }
  }
  count(counts_.failed);
  return step::hopeless;
}

// The longer it has waited, the less often it is tried again.
paged_core::step paged_core::park(access& a) noexcept {
  const time_point now = clock::now();
  a.again_at = now + std::clamp<duration>((now - a.arrived) / 8, paged_limits::parked_again_after,
                                          paged_limits::parked_again_at_last);
  return step::parked;
}

// There is no deadline for this: slots are taken by fetches, which have one, and the queue is first come, first served.
paged_core::step paged_core::enter_queue(access& a) noexcept {
  a.room_until = {};
  if (a.queue == a.slot_of) return step::parked;  // a thread that waits itself was quicker; its position stays
  leave_queue(a);
  queued_.fetch_add(1);
  a.queue = a.slot_of;
  a.queue->line.enter(a.position);
  return step::parked;
}

void paged_core::leave_queue(access& a) noexcept {
  home_agent* const queue = std::exchange(a.queue, nullptr);
  if (queue == nullptr) return;
  queue->line.leave(a.position);
  if (queued_.fetch_sub(1) != 1) wake_parked();
}

paged_core::step paged_core::attempt(access& a) noexcept {
  const std::uint64_t page = a.page;
  const bool write = a.write;
  trouble& why = a.why;
  page_group& g = table_.group(page);
  g.lock();
  const page_word w = table_.get(page);
  if (w.present()) {
    const std::uint64_t first = table_.head(page, w.order());
    if (page_word head = table_.get(first); head.ahead()) {  // the first touch of a window that was read ahead
      head.ahead(false);
      table_.set(first, head);
      g.unlock();
      count(counts_.ahead_used);
      note_access(first, std::uint64_t{1} << w.order(), write);
      return step::again;
    }
  }
  switch (w.state()) {
    case block_state::resident: return serve_resident(page, w, write, why);
    case block_state::inactive:
    case block_state::writing: return serve_cooled(page, w, write, why);
    case block_state::busy: {
      const std::uint32_t seen = g.seen();
      g.unlock();
      if (!std::exchange(a.waited, true)) count(counts_.waits);
      if (a.may_park && clock::now() >= a.patience) return park(a);
      g.wait(seen, a.may_park ? a.patience : time_point::max());
      return step::again;
    }
    default: break;
  }
  if (w.poisoned() || w.lost()) {
    why = {errc::agent_lost, home_.blamed(page, w.lost()), false};
    g.unlock();
    return step::hopeless;
  }
  const block b = choose(page, w);
  if (!take_room(b.pages())) {
    g.unlock();
    why = {static_cast<errc>(last_error_.load()), last_error_agent_.load(), true};
    if (why.code == errc::ok) why.code = errc::timed_out;
    return step::no_room;
  }
  claim(b);
  g.unlock();
  fill_op op;
  begin_fill(b, op, !a.may_park || a.queue != nullptr);
  if (op.no_slot) {
    a.slot_of = op.agent;
    undo_fill(b, false);
    return step::no_slot;
  }
  count(w.state() == block_state::remote ? counts_.remote : counts_.fresh);
  note_access(b.first, b.pages(), write);  // before the thread that waits goes on: streams are told by the order
  // dcm, section 3.3: while the fetch is under way, room is made for the next one.
  if (op.slot != nullptr && free_pages() < reserve_pages())
    evict_step(false, a.may_park ? asking::nothing : asking::soon);
  const fill_how how{.page = page, .write = write, .sample = options_.elastic && record_.samples(b.order, random())};
  if (a.may_park && op.slot != nullptr && !op.agent->session().wait_until(op.slot->request, a.patience)) {
    a.fetching = true;
    a.op = op;
    a.how = how;
    return step::parked;
  }
  return end_attempt(a, how, op);
}

paged_core::step paged_core::end_attempt(access& a, const fill_how& how, fill_op& op) noexcept {
  const errc e = end_fill(op, how);
  if (e == errc::ok) return step::served;
  a.why = {e, op.agent, false};
  if (op.agent == nullptr || !op.agent->lost()) return passes(e) ? step::failed : step::hopeless;
  const std::lock_guard lock(table_.group(a.page));
  return home_.is_lost(home_.stripe_of(a.page)) ? step::hopeless : step::failed;  // another one has it
}

paged_core::step paged_core::serve_resident(std::uint64_t page, page_word w, bool write, trouble& why) noexcept {
  page_group& g = table_.group(page);
  const block b{table_.head(page, w.order()), w.order()};
  page_word head = table_.get(b.first);
  const bool begins_dirty = write && tracks_ && !w.dirty();
  const bool was_mapped = w.mapped();
  if (begins_dirty) table_.update(b.first, b.order, [](page_word& p) { p.dirty(true); });
  const bool protect = tracks_ && !w.dirty() && !write;
  // A page that is noted as mapped most often is, because it came while its fault was on the way here; so it is tried
  // alone. But it may have been unmapped by an eviction that a touch has overtaken: then the rest of its block was,
  // too. One that begins to be dirty comes back here if it was.
  errc e = errc::ok;
  bool rest = !head.sampled();
  if (begins_dirty && was_mapped)
    rest = false;
  else if (was_mapped || !rest)
    rest = memory_.map(offset(page), page_bytes, protect, e) && rest;
  if (e == errc::ok && rest) e = memory_.map(b.from(), b.bytes(), protect);
  if (e == errc::ok) {
    if (!head.sampled()) table_.update(b.first, b.order, [](page_word& p) { p.mapped(true); });
    page_word mine = table_.get(page);
    mine.mapped(true);
    mine.touched(true);
    table_.set(page, mine);
    if (write && tracks_) memory_.unprotect(b.from(), b.bytes());
  }
  g.unlock();
  if (e != errc::ok) {
    why = {e, nullptr, false};
    return step::failed;
  }
  count(begins_dirty && was_mapped ? counts_.write : counts_.near);
  return step::served;
}

// A touch in inactive, or while the block is written back: it is wanted again (dcm, section 3.2).
paged_core::step paged_core::serve_cooled(std::uint64_t page, page_word w, bool write, trouble& why) noexcept {
  page_group& g = table_.group(page);
  const block b{table_.head(page, w.order()), w.order()};
  page_word head = table_.get(b.first);
  const bool was_writing = w.state() == block_state::writing;
  // What is being written may be changed now, so it stays dirty, and that write-back is in vain.
  const bool dirty = w.dirty() || write || !tracks_;
  if (memory_.map(b.from(), b.bytes(), !dirty) != errc::ok) {
    g.unlock();
    why = {errc::out_of_memory, nullptr, false};
    return step::failed;
  }
  table_.update(b.first, b.order, [&](page_word& p) {
    p.state(block_state::resident);
    p.dirty(dirty);
    p.mapped(true);
  });
  page_word mine = table_.get(page);
  mine.touched(true);
  table_.set(page, mine);
  head = table_.get(b.first);
  head.sampled(false);
  table_.set(b.first, head);
  // It may still be mapped, as it was before, by an unmapping that is on its way.
  if (write && tracks_) memory_.unprotect(b.from(), b.bytes());
  enter(b.first, page_queue::proactive);
  g.unlock();
  count(was_writing ? counts_.writing : counts_.inactive);
  return step::served;
}

fault_action paged_core::settle(std::uint64_t page, const trouble& why) noexcept {
  if (!options_.on_failure) die(page, why);
  const fault_failure f{.address = base() + offset(page),
                        .agent = why.agent != nullptr ? why.agent->url() : "",
                        .code = why.code,
                        .for_room = why.for_room};
  const fault_action a = options_.on_failure(f);
  if (a == fault_action::abort) die(page, why);
  return a;
}

void paged_core::die(std::uint64_t page, const trouble& why) const noexcept {
  std::array<char, 512> text;
  const auto end =
      fmt::format_to_n(text.data(), text.size() - 1,
                       "farmem: paged range {}: the page at {} (offset {}) cannot be {}: {}{}{}. The access can "
                       "neither go on nor be given "
                       "other bytes: aborting. See paged_options::on_failure\n",
                       name_, static_cast<const void*>(base() + offset(page)), offset(page),
                       why.for_room ? "fetched, because no other page can be evicted" : "fetched", to_string(why.code),
                       why.agent != nullptr ? ", agent " : "", why.agent != nullptr ? why.agent->url() : "");
  [[maybe_unused]] const ssize_t n =
      ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(end.out - text.data()));
  std::abort();
}

bool paged_core::fault_in_place(const void* address, bool write) noexcept {
  const auto page = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base()) / page_bytes;
  for (trouble why; !serve(page, write, why);)
    if (settle(page, why) == fault_action::signal) return false;
  return true;
}

// The page stays absent, and every access to it fails by itself from now on.
void paged_core::poison(std::uint64_t page, const trouble& why) noexcept {
  page_group& g = table_.group(page);
  g.lock();
  if (page_word w = table_.get(page); w.absent() && !w.poisoned()) {
    if (!memory_.poison(offset(page), page_bytes)) die(page, why);
    w.poisoned(true);
    table_.set(page, w);
  }
  g.unlock();
}

}  // namespace fm::detail
