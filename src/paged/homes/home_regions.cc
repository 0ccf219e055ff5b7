// The regions that an agent has for a range: asked for, given back, told of later; see home_agent.h. Owns the invariant that
// a region stays as long as a place of it is given out. Fills, write-backs, mend.cc and members.cc call it.
#include <algorithm>

#include "home_agent.h"
#include "home_agent_messages.h"

namespace fm::detail {

errc home_agent::ask_region(fabric::session& s, std::uint32_t index, bool existing, duration within) {
  protocol::space_region_body body{index, existing ? 1u : 0u};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  if (const errc e = call(s, protocol::paged_message::space_region, &body, sizeof body, answer, key, within);
      e != errc::ok)
    return e;
  return take_region(s, index, existing, answer, key);
}

errc home_agent::take_region(fabric::session& s, std::uint32_t index, bool existing,
                             const std::vector<std::byte>& answer, fabric::memory_key& key) {
  protocol::space_region_answer a;
  if (!take_all(answer, a) || a.bytes != region_bytes_ || a.generation == 0 || a.region == ~0u) {
    drop_key(key);
    return errc::bad_frame;
  }
  const std::uint64_t name = std::uint64_t{a.generation} << 32 | (a.region + 1);
  const std::uint64_t known = names_[index].load(std::memory_order_relaxed);
  if (existing && name != known) {
    drop_key(key);
    return errc::stale;
  }
  if (const errc e = s.attach(a.region, a.generation, a.bytes, key); e != errc::ok) return e;
  if (known == 0) regions_open_.fetch_add(1, std::memory_order_relaxed);
  untold(index, false);  // it is wanted again
  names_[index].store(name, std::memory_order_release);
  if (!places_.is_used(index)) {  // what it was asked for has been discarded
    emptied();
    events_.agent_changed();
  }
  return errc::ok;
}

errc home_agent::make(std::uint64_t at) noexcept try {
  fabric::remote where;
  if (find(at, where)) return errc::ok;
  if (!up()) return lost() ? errc::agent_lost : errc::disconnected;
  // Never waited for while a connection is being taken up: that asks for regions under the lock, on a deadline of its
  // own.
  const std::lock_guard lock(mutex_);
  end_question();
  if (find(at, where)) return errc::ok;
  const auto index = static_cast<std::uint32_t>(at / region_bytes_);
  const errc e = ask_region(*session_, index, false, events_.answer_within(*this));
  heard_of(e);
  if (is_unknown(e)) untold(index, true);
  return e;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

void home_agent::ask(protocol::paged_message type, std::uint32_t index, bool existing) noexcept {
  question& q = question_;
  q.type = type;
  q.index = index;
  q.message = {{static_cast<std::uint16_t>(type), 0, sizeof q.message.body}, {index, existing ? 1u : 0u}};
  q.is_posted = true;
  is_asked_.store(true, std::memory_order_relaxed);
  fabric::request& r = q.request;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {&q.message, sizeof q.message};
  r.reply.clear();
  r.deadline = clock::now() + events_.answer_within(*this);
  r.on_done = [](fabric::request&) noexcept {};  // so that the session's thread takes the answer
  session_->post(r);
}

errc home_agent::take_answer_to(question& q) {
  q.is_posted = false;
  is_asked_.store(false, std::memory_order_relaxed);
  std::vector<std::byte> answer;
  fabric::memory_key key;
  errc e = take_reply(q.request, q.type, answer, key);
  // While all write-backs wait for regions, no other operation finds out that the agent is silent.
  heard_of(e);
  if (q.type == protocol::paged_message::release_region) {
    drop_key(key);
    if (e == errc::ok) untold(q.index, false);
    return e;
  }
  if (is_unknown(e)) untold(q.index, true);
  if (e != errc::ok) return e;
  // A region of an older connection is asked for again if it is still wanted. If not, the agent has to be told.
  const bool is_known = names_[q.index].load(std::memory_order_relaxed) != 0;
  if (is_known || q.request.generation != session_->generation() || !up()) {
    drop_key(key);
    if (!is_known) untold(q.index, true);
    return errc::ok;
  }
  return take_region(*session_, q.index, false, answer, key);
}

bool home_agent::may_ask(std::uint32_t index, errc& refused) {
  refused = errc::ok;
  if (!question_.is_posted) return true;
  if (!question_.request.done()) return false;
  const errc e = take_answer_to(question_);
  if (question_.index == index && question_.type == protocol::paged_message::space_region) refused = e;
  return true;
}

void home_agent::end_question() {
  if (!question_.is_posted) return;
  session_->wait(question_.request);
  take_answer_to(question_);
}

// The lock is held by others only while they wait for the agent.
std::optional<errc> home_agent::make_soon(std::uint64_t at) noexcept try {
  fabric::remote where;
  if (find(at, where)) return errc::ok;
  if (!up()) return lost() ? errc::agent_lost : errc::disconnected;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  const auto index = static_cast<std::uint32_t>(at / region_bytes_);
  errc refused = errc::ok;
  if (!may_ask(index, refused)) return std::nullopt;
  if (refused != errc::ok) return refused;
  if (find(at, where)) return errc::ok;
  ask(protocol::paged_message::space_region, index, false);
  if (!may_ask(index, refused)) return std::nullopt;  // an agent in this process has answered already
  if (refused != errc::ok) return refused;
  return find(at, where) ? std::optional(errc::ok) : std::nullopt;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc home_agent::tell_released(fabric::session& s, std::uint32_t index, duration within) {
  protocol::space_region_body body{index, 1};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(s, protocol::paged_message::release_region, &body, sizeof body, answer, key, within);
  drop_key(key);
  if (e == errc::ok) untold(index, false);
  return e;
}

void home_agent::untold(std::uint32_t index, bool is) noexcept {
  if (untold_[index] == is) return;
  untold_[index] = is;
  untold_count_.fetch_add(is ? 1 : -1, std::memory_order_relaxed);
}

// A region may be given back when connected() has told all that it knew of, and the session is not up yet: nobody tells
// that one, so somebody has to come here later.
void home_agent::settle() noexcept try {
  if (untold_count_.load(std::memory_order_relaxed) == 0 || !up()) return;
  const std::lock_guard lock(mutex_);
  end_question();
  for (std::uint32_t i = 0; i < untold_.size() && untold_count_.load(std::memory_order_relaxed) != 0; ++i)
    if (untold_[i] && (!up() || tell_released(*session_, i, within_) != errc::ok)) return;
} catch (const std::bad_alloc&) {
  // The next one does it.
}

void home_agent::settle_soon() noexcept try {
  if ((untold_count_.load(std::memory_order_relaxed) == 0 && !is_asked_.load(std::memory_order_relaxed)) || !up())
    return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  errc refused = errc::ok;
  std::uint32_t i = 0;
  while (lock.owns_lock() && may_ask(i, refused)) {
    while (i < untold_.size() && !untold_[i]) ++i;
    if (i == untold_.size() || !up()) return;
    ask(protocol::paged_message::release_region, i, true);
    ++i;  // one that failed is for the next call
  }
} catch (const std::bad_alloc&) {
  // The next one does it.
}

void home_agent::release_empty(duration within, bool waits) noexcept {
  if (!emptied_.exchange(false, std::memory_order_relaxed)) return;
  for (std::uint32_t i = 0; i < names_.size(); ++i)
    if (names_[i].load(std::memory_order_relaxed) != 0 && !places_.is_used(i)) release(i, within, waits);
}

void home_agent::release(std::uint32_t index, duration within, bool waits) noexcept try {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (waits)
    lock.lock();
  else if (!lock.try_lock())
    return emptied();
  // The answer to a question may be about what comes to an end here.
  if (question_.is_posted && !session_->wait_until(question_.request, clock::now() + within)) return emptied();
  end_question();
  const std::uint64_t name = names_[index].load(std::memory_order_relaxed);
  if (name == 0 || !places_.close(index)) return;
  names_[index].store(0, std::memory_order_release);
  regions_open_.fetch_sub(1, std::memory_order_relaxed);
  untold(index, true);
  session_->detach(static_cast<std::uint32_t>(name) - 1);
  places_.reopen(index);
  if (up() && !is_silent()) heard_of(tell_released(*session_, index, within));
} catch (const std::bad_alloc&) {
  // The agent is told later.
}

}  // namespace fm::detail
