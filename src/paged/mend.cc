// Stripes that change agents: after a loss, to have as many replicas as are wanted, to empty an agent, and to even agents out
// after any of these, and after one was added. One thread of the range does it, beside the program.
//
//   copy     begin_copy: no write to the stripe begins until end_copy, so its home copies stay as they are. Reads go on.
//            What is at home is read from a member and written to the new place. Only then is the new agent a member.
//   move     the same, and the new member takes another one's place. Who is reading from that one has a page of the
//            stripe busy. So its place goes back when each page that was busy then has been seen not to be: whoever makes
//            it busy later finds the new member.
//   drop     a member is taken out, as in a move, and none comes: fewer replicas are wanted.
//   lose     all members are lost: what is here becomes dirty and finds new agents, and the rest is lost for good. Not
//            while a page is busy: a fetch that fails puts the page back as it was (undo_fill).
//
// What would break it, and why it does not:
//   a write is acknowledged by the old members alone, after the copy was taken    none is under way, and none begins
//   a discard gives the places back while the copy reads them                     not while it is copied (give_unused)
//   a set is discarded, or chosen anew, between the look at it and begin_copy     what is seen after begin_copy counts
//   the new member is lost while others of the batch are copied                   then the old one stays (end_copy)
//   a set is read while it shrinks, and one member is seen twice                  writes go to what was seen under the lock
//   an agent is left while somebody chooses a place there                         nothing is promised before its places
//                                                                                are counted (leave)
//   a lost agent comes back with old bytes                                        its session has ended for good
//   a silent target holds up accesses to the stripe                               reads go to the members; its dirty
//                                                                                blocks wait until the copy has failed
#include "base/log.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#include "core.h"

namespace fm::detail {

namespace {

bool leaves(const home_agent& a) noexcept {
  return a.as.load() == home_agent::role::leaves ||
         (a.as.load() == home_agent::role::serves && a.wants_to_be_left.load());
}

}  // namespace

void paged_core::run_mender() noexcept {
  os::name_thread("fm-paged-mend");
  duration again = paged_limits::mend_again_after;
  while (!stopping_.load()) {
    const std::uint32_t seen = mending_.load();
    bool left = false;
    const auto done = [this] { return counts_.mended.load() + counts_.lost.load(); };
    const std::uint64_t before = done();
    {
      const std::lock_guard lock(mender_at_work_);
      left = watch_agents();
      left = tell_changes() || left;
      left = mend_all() || left;
      left = tell_changes() || left;
      left = !give_old_places() || left;
      home_.release_empty(options_.suspect_within, false);
    }
    again = done() != before ? duration(paged_limits::mend_again_after)
                             : std::min<duration>(2 * again, paged_limits::mend_again_at_last);
    const time_point next = left ? clock::now() + again : time_point::max();
    os::futex_wait(mending_, seen, home_.lacks_room() ? std::min(next, ask_again_) : next);
    if (!stopping_.load()) os::futex_wait(never_, 0, clock::now() + paged_limits::mend_pause_least);
  }
}

bool paged_core::mend_all() noexcept {
  bool leaving = false, is_taker = false;
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    const home_agent& a = home_.agent(i);
    leaving = leaving || leaves(a);
    is_taker = is_taker || home::takes(a);
  }
  leaving = leaving && is_taker;
  // One that is added meanwhile is for the next pass. Stripes with too few members have the new places first.
  evens_out_now_ = home_.degraded() == 0 && evens_out_.exchange(false);
  const bool lacks = (home_.degraded() != 0 && home_.serving() > 1) || home_.surplus() != 0;
  if (!leaving && !evens_out_now_ && !lacks && agents_swept_ == agents_seen_ && !sweep_again_) return false;
  const auto seen = agents_seen_;
  const bool changed = agents_swept_ != seen;
  const std::uint64_t mended = counts_.mended.load();
  std::bitset<paged_limits::agents_max> lost;  // before the sweep
  for (std::uint32_t i = 0; i < home_.agents(); ++i) lost[i] = home_.agent(i).lost();
  bool left = false;
  for (std::uint64_t s = 0; s < home_.stripes() && !stopping_.load(); ++s) {
    left = mend(s) || left;
    if (must_watch()) {  // a copy to a silent agent takes suspect_within or more, and a pass has many
      left = !end_copies() || left;
      left = watch_agents() || left;
    }
  }
  left = !end_copies() || left;
  for (std::uint32_t i = 0; i < home_.agents(); ++i)
    if (lost[i]) home_.agent(i).is_swept.store(true);
  sweep_again_ = left;
  agents_swept_ = seen;
  // What came from agents that are left or lost, or is missing on one that stays, is evened out in a pass of its own.
  if (evens_out_now_ ? left : !left && (changed || counts_.mended.load() != mended)) evens_out_.store(true);
  const bool evens_next = evens_out_.load() && home_.degraded() == 0;
  if (!left && !leaving && !evens_next)
    if (const std::unique_lock lock(agents_change_, std::try_to_lock); lock.owns_lock())
      home_.give_back_promises(options_.suspect_within);
  for (std::uint32_t i = 0; i < home_.agents(); ++i)
    if (leaves(home_.agent(i)) && !leave(home_.agent(i))) left = true;
  return left || evens_next;
}

bool paged_core::mend(std::uint64_t stripe) noexcept {
  home::member_list list = home_.members(stripe);
  if (list.count == 0) return false;
  const auto lost = static_cast<std::uint32_t>(
      std::count_if(list.begin(), list.end(), [](const home::member& m) { return m.agent->lost(); }));
  if (lost == list.count) return home_.serving() != 0 && !lose(stripe);
  if (lost != 0) {
    const std::lock_guard lock(table_.group(stripe << table_.group_order()));
    home_.remove_lost(stripe);
    list = home_.members(stripe);
  }
  const std::uint32_t wanted = home_.replicas();
  if (list.count > wanted) return !drop_member(stripe) || list.count - 1 > wanted;
  if (list.count < wanted && home_.may_grow(list)) return !begin_copy(stripe, nullptr) || list.count + 1 < wanted;
  const auto leaving = std::find_if(list.begin(), list.end(), [](const home::member& m) { return leaves(*m.agent); });
  if (leaving != list.end()) return !begin_copy(stripe, leaving);
  const even_move even = evens_out_now_ ? to_even_out(list) : even_move();
  return even.to != nullptr && !begin_copy(stripe, &even.from, even.to);
}

// From an agent that has more than its share to the one that lacks most of its own. With slack, so that nothing goes to
// and fro.
paged_core::even_move paged_core::to_even_out(const home::member_list& list) const noexcept {
  std::array<std::uint64_t, paged_limits::agents_max> leaving{};  // old places of stripes that are on their way
  for (const auto* const some : {&copies_, &moved_away_})
    for (const stripe_copy& c : *some)
      if (c.instead_of.agent != nullptr) ++leaving[c.instead_of.agent->number()];
  const auto stored_on = [&](const home_agent& a) {
    const std::uint64_t taken = a.places().taken();
    return taken - std::min(taken, leaving[a.number()]);
  };
  std::uint64_t stored = 0, shares = 0;
  for (std::uint32_t i = 0; i < home_.agents(); ++i) {
    const home_agent& a = home_.agent(i);
    if (a.lost() || a.as.load() != home_agent::role::serves) continue;
    stored += stored_on(a);
    shares += home_.share_of(a);
  }
  const auto should_have = [&](const home_agent& a) {
    return static_cast<std::uint64_t>(static_cast<double>(stored) * static_cast<double>(home_.share_of(a)) /
                                      static_cast<double>(std::max<std::uint64_t>(shares, 1)));
  };
  const time_point now = clock::now();
  even_move best;
  std::uint64_t most = 0;
  for (const home::member& m : list) {
    const std::uint64_t fair = should_have(*m.agent);
    if (stored_on(*m.agent) <= fair + fair / paged_limits::even_share + 1) continue;
    for (std::uint32_t i = 0; i < home_.agents(); ++i) {
      home_agent& a = home_.agent(i);
      if (!home_.may_join(a, list, m.agent) || !a.up() || a.is_silent() || !a.had_room(now)) continue;
      const std::uint64_t due = should_have(a), has = stored_on(a), lacks = due > has ? due - has : 0;
      if (lacks <= most || a.places().left() == 0) continue;
      most = lacks;
      best = {m, &a};
    }
  }
  return best;
}

bool paged_core::lose(std::uint64_t stripe) noexcept {
  const std::uint64_t first = stripe << table_.group_order();
  const std::uint64_t end = std::min(first + (std::uint64_t{1} << table_.group_order()), table_.pages());
  page_group& g = table_.group(first);
  const std::lock_guard lock(g);
  for (std::uint64_t p = first; p < end; ++p)
    if (table_.get(p).state() == block_state::busy) return false;
  if (!home_.is_lost(stripe)) return true;  // somebody was quicker
  if (!home_.begin_copy(stripe)) return false;
  for (std::uint64_t p = first; p < end;) {
    const page_word w = table_.get(p);
    const std::uint64_t next = w.present() ? p + (std::uint64_t{1} << w.order()) : p + 1;
    bool was_home = false;
    for (std::uint64_t q = p; q < next; ++q) was_home = was_home || table_.get(q).home();
    for (std::uint64_t q = p; was_home && q < next; ++q) {
      page_word v = table_.get(q);
      v.home(false);
      v.dirty(true);  // here: to be written again; absent: lost
      if (v.absent()) {
        v.state(block_state::untouched);
        count(counts_.lost);
      }
      table_.set(q, v);
    }
    p = next;
  }
  home_.forget(stripe);
  home_.end_copy(stripe, nullptr, nullptr);
  wake_evictor();
  return true;
}

// Writes end within their deadline, but others' stripes are not kept waiting for one.
bool paged_core::wait_to_copy(std::uint64_t stripe) noexcept {
  page_group& g = table_.group(stripe << table_.group_order());
  const time_point until = clock::now() + (copies_.empty() ? paged_limits::look_at_close : duration{});
  for (;;) {
    g.lock();
    const bool may = home_.begin_copy(stripe);
    const std::uint32_t seen = g.seen();
    g.unlock();
    if (may || clock::now() >= until || stopping_.load()) return may;
    home_.poll();
    if (!harvest()) g.wait(seen);
  }
}

bool paged_core::begin_copy(std::uint64_t stripe, const home::member* instead_of, home_agent* only) noexcept {
  if (!wait_to_copy(stripe)) return false;
  // From here on nobody else changes the set: what was seen without the lock may have been discarded, or chosen anew.
  const home::member_list list = home_.members(stripe);
  stripe_copy c{.stripe = stripe};
  bool is_wanted = list.count != 0 && list.count < home_.replicas();
  if (instead_of != nullptr) {
    c.instead_of = *instead_of;
    is_wanted = std::any_of(list.begin(), list.end(), [&](const home::member& m) {
      return m.agent == instead_of->agent && m.place == instead_of->place;
    });
  }
  const home_agent* const old = c.instead_of.agent;
  std::optional<home::member> to;
  if (only != nullptr) {
    if (is_wanted && home_.may_join(*only, list, old)) to = home_.take_place_on(*only, stripe);
    is_wanted = to.has_value();
  } else if (is_wanted) {
    to = home_.take_place(stripe, list, old);
  }
  const bool others = to || !is_wanted || end_copies();  // they are not kept waiting
  if (is_wanted && !to && home_.grow(list, old, options_.suspect_within)) to = home_.take_place(stripe, list, old);
  if (!to) {
    end_copy(c, false);
    return !is_wanted && others;
  }
  c.to = *to;
  const std::uint64_t first = stripe << table_.group_order(),
                      end = std::min(first + (std::uint64_t{1} << table_.group_order()), table_.pages());
  for (std::uint64_t p = first; p < end; ++p) {
    if (!table_.get(p).home()) continue;
    if (c.pages == 0) c.first = p;
    c.pages = p + 1 - c.first;
  }
  copies_.push_back(c);  // has room
  return (copies_.size() < copies_.capacity() || end_copies()) && others;
}

// Requests of one kind are under way together.
bool paged_core::end_copies() noexcept {
  if (copies_.empty()) return true;
  const time_point begins = clock::now();
  const std::uint64_t faults = counts_.faults.load(std::memory_order_relaxed);
  std::array<errc, paged_limits::copies_most> results{};
  std::bitset<paged_limits::agents_max> failed;  // nothing more goes there for now
  for (const fabric::op_kind kind : {fabric::op_kind::read, fabric::op_kind::write}) {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const std::uint32_t to = copies_[i].to.agent->number();
      if (results[i] != errc::ok) continue;
      results[i] = failed[to] ? errc::timed_out : begin_transfer(kind, i);
      if (kind == fabric::op_kind::write && results[i] != errc::ok) failed[to] = true;
    }
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (results[i] == errc::ok) results[i] = end_transfer(i);
  }
  bool all = true;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const bool copied = results[i] == errc::ok;
    if (copied) count(counts_.mended, copies_[i].pages * page_bytes);
    end_copy(copies_[i], copied);
    all = all && copied;
  }
  for (stripe_copy& c : copies_)
    if (!give_old_place(c)) moved_away_.push_back(c);  // has room
  copies_.clear();
  wait_for_old_places();
  wake_evictor();
  // While the program waits for pages, it has the rest of the core.
  const time_point now = clock::now();
  if (counts_.faults.load(std::memory_order_relaxed) != faults)
    os::futex_wait(
        never_, 0,
        now + std::min<duration>((paged_limits::mend_share - 1) * (now - begins), paged_limits::mend_pause_most));
  return all;
}

// Of more than are wanted. No write is under way, and none begins before the set has become smaller.
bool paged_core::drop_member(std::uint64_t stripe) noexcept {
  if (!wait_to_copy(stripe)) return false;
  stripe_copy c{.stripe = stripe};
  page_group& g = table_.group(stripe << table_.group_order());
  g.lock();
  if (const home::member_list list = home_.members(stripe); list.count > home_.replicas()) {
    c.instead_of = home_.surplus_of(list);
    c.busy = busy_pages(stripe);
    home_.remove(stripe, *c.instead_of.agent);
  }
  home_.end_copy(stripe, nullptr, nullptr);
  g.unlock();
  g.changed();
  if (!give_old_place(c)) moved_away_.push_back(c);  // has room
  wait_for_old_places();
  wake_evictor();
  return true;
}

// Until there is room for those of the next copies.
void paged_core::wait_for_old_places() noexcept {
  while (moved_away_.size() + copies_.capacity() > moved_away_.capacity() && !stopping_.load())
    if (!give_old_places()) os::futex_wait(never_, 0, clock::now() + paged_limits::look_at_close);
}

// The group is locked.
paged_core::stripe_pages paged_core::busy_pages(std::uint64_t stripe) const noexcept {
  const std::uint64_t first = stripe << table_.group_order(),
                      pages = std::min(std::uint64_t{1} << table_.group_order(), table_.pages() - first);
  stripe_pages busy;
  for (std::uint64_t p = 0; p < pages; ++p) busy[p] = table_.get(first + p).state() == block_state::busy;
  return busy;
}

// Between the mender's memory and a member's.
errc paged_core::begin_transfer(fabric::op_kind kind, std::size_t i) noexcept {
  stripe_copy& c = copies_[i];
  const bool writes = kind == fabric::op_kind::write;
  c.at = writes ? c.to : c.pages != 0 ? home_.reader_of(c.first) : home::member();
  c.is_posted = false;
  if (c.pages == 0) return errc::ok;
  if (c.at.agent == nullptr) return errc::agent_lost;
  std::byte* const here = mend_staging_.base() + i * home_.stripe_bytes();
  const std::uint64_t at = home_.offset_in(c.at, c.first), bytes = c.pages * page_bytes;
  const time_point begins = clock::now();
  for (std::optional<errc> made; writes && !made;) {
    made = c.at.agent->make_soon(at);
    if (made && *made != errc::ok) {
      if (*made == errc::agent_full || *made == errc::quota_exceeded) c.at.agent->has_no_room();
      return *made;
    }
    if (!made && (stopping_.load() || clock::now() >= begins + options_.suspect_within)) return errc::timed_out;
    if (made) break;
    look_meanwhile(*c.at.agent);
    os::futex_wait(never_, 0, clock::now() + paged_limits::region_again_after);
  }
  if (std::byte* const there = c.at.agent->begin_copying(at)) {
    std::memcpy(writes ? there : here, writes ? here : there, bytes);
    c.at.agent->end_copying();
    return errc::ok;
  }
  fabric::request& r = copy_requests_[i];
  if (!c.at.agent->up() || !c.at.agent->find(at, r.where))
    return c.at.agent->lost() ? errc::agent_lost : errc::disconnected;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.kind = kind;
  r.on = fabric::lane::bulk;
  r.sg_count = 1;
  r.sg[0] = {here, bytes};
  r.deadline = clock::now() + (c.at.agent->is_slow() ? paged_limits::slow_times : 1) * options_.suspect_within;
  c.is_posted = true;
  c.at.agent->session().post(r);
  return errc::ok;
}

// Ends at a close.
errc paged_core::end_transfer(std::size_t i) noexcept {
  const stripe_copy& c = copies_[i];
  if (!c.is_posted) return errc::ok;
  fabric::request& r = copy_requests_[i];
  fabric::session& s = c.at.agent->session();
  while (!s.wait_until(r, clock::now() + paged_limits::look_at_close)) {
    if (!stopping_.load()) {
      look_meanwhile(*c.at.agent);
      continue;
    }
    s.cancel(r);
    s.wait(r);
    break;
  }
  c.at.agent->heard_of(r.status);
  return r.status;
}

// A new member that was lost meanwhile is none: the old one still has all.
void paged_core::end_copy(stripe_copy& c, bool copied) noexcept {
  page_group& g = table_.group(c.stripe << table_.group_order());
  g.lock();
  copied = copied && !c.to.agent->lost();
  if (copied && c.instead_of.agent != nullptr) c.busy = busy_pages(c.stripe);
  home_.end_copy(c.stripe, copied ? &c.to : nullptr, c.instead_of.agent);
  g.unlock();
  g.changed();
  if (copied) return;
  if (c.to.agent != nullptr) home::give_place(c.to);
  c.instead_of = {};
}

bool paged_core::give_old_place(stripe_copy& c) noexcept {
  if (c.instead_of.agent == nullptr) return true;
  const std::uint64_t first = c.stripe << table_.group_order();
  {
    const std::lock_guard lock(table_.group(first));
    for (std::size_t p = 0; c.busy.any() && p < c.busy.size(); ++p)
      c.busy[p] = c.busy[p] && table_.get(first + p).state() == block_state::busy;
  }
  if (c.busy.any()) return false;
  home::give_place(c.instead_of);
  return true;
}

bool paged_core::give_old_places() noexcept {
  std::erase_if(moved_away_, [this](stripe_copy& c) { return give_old_place(c); });
  return moved_away_.empty();
}

// False while it has something, or nobody else could take what comes.
bool paged_core::leave(home_agent& a) noexcept {
  const std::lock_guard lock(agents_change_);
  if (!leaves(a) || a.lost()) return true;
  if (a.places().taken() != 0 || home_.serving() < 2) return false;
  a.places().promise(0);
  if (a.places().taken() != 0) {  // a place that somebody had chosen before
    a.restore_places();
    return false;
  }
  a.as.store(home_agent::role::gone);
  a.close(options_.suspect_within);
  log::info("paged range {}: {} has nothing of it any more", name_, a.url());
  home_.agent_changed();
  return true;
}

}  // namespace fm::detail
