// The session with an agent, its space and regions; see home_agent.h. Owns the invariant that a region stays as long as
// a place of it is given out. Fills, write-backs, mend.cc and members.cc call it.
#include "home_agent.h"

#include "base/text.h"
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

namespace fm::detail {

namespace {

std::uint64_t fresh_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

template <class T>
bool take_all(const std::vector<std::byte>& from, T& out) {
  if (from.size() != sizeof out) return false;
  std::memcpy(&out, from.data(), sizeof out);
  return true;
}

/// The agent may have done it, or do it yet.
bool is_unknown(errc e) { return e == errc::timed_out || e == errc::disconnected || e == errc::cancelled; }

void drop_key(fabric::memory_key& key) {
  if (key.fd >= 0) ::close(key.fd);
  key = {};
}

}  // namespace

home_agent::home_agent(const std::string& url, const paged_options& options, std::uint32_t number,
                       std::uint64_t stripe_bytes, std::uint64_t stripes, home_events& events,
                       fabric::service* in_process)
    : url_(url),
      number_(number),
      stripe_bytes_(stripe_bytes),
      stripes_(stripes),
      within_(options.access_within),
      suspect_within_(options.replicas > 1 ? options.suspect_within : duration{}),
      events_(events),
      name_(options.name.empty() ? program_invocation_short_name : options.name),
      id_{fresh_id(), fresh_id()},
      incarnation_(fresh_id()) {
  fabric::session_options so;
  so.connect_within = options.connect_within;
  so.reconnect_for = options.reconnect_within;
  so.operation_within = options.access_within;
  try {
    session_ = fabric::connect(url, so, *this, in_process);
  } catch (const error&) {
    // The session only knows that its owner gave up; what the agent said is here.
    if (refused_ != errc::ok) throw error(refused_, url + ": " + refusal_);
    throw;
  }
}

home_agent::~home_agent() { close(within_); }

void home_agent::close(duration within) noexcept {
  if (!session_ || closing_.exchange(true)) return;
  if (session_->state() == fabric::session_state::up && !is_silent()) {
    std::vector<std::byte> answer;
    fabric::memory_key key;
    // A courtesy: the lease would do it, too.
    try {
      call(*session_, protocol::paged_message::close_space, nullptr, 0, answer, key, within);
    } catch (const std::exception&) {
    }
    drop_key(key);
  }
  session_->close();
  const std::lock_guard lock(mutex_);
  drop_key(question_.request.reply_key);
}

bool home_agent::up() const noexcept {
  const std::uint32_t g = usable_.load(std::memory_order_acquire);
  return g != 0 && session_->generation() == g && session_->state() == fabric::session_state::up;
}

bool home_agent::find(std::uint64_t at, fabric::remote& where) const noexcept {
  const std::uint64_t name = names_[at / region_bytes_].load(std::memory_order_acquire);
  if (name == 0) return false;
  where = {.region = static_cast<std::uint32_t>(name) - 1,
           .generation = static_cast<std::uint32_t>(name >> 32),
           .offset = at % region_bytes_};
  return true;
}

std::byte* home_agent::direct(std::uint64_t at) const noexcept {
  fabric::remote where;
  if (!up() || !find(at, where)) return nullptr;
  std::byte* const base = session_->direct(where.region);
  return base == nullptr ? nullptr : base + where.offset;
}

errc home_agent::call(fabric::session& s, protocol::paged_message type, const void* body, std::size_t bytes,
                      std::vector<std::byte>& answer, fabric::memory_key& key, duration within) {
  protocol::message_head head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(bytes)};
  std::vector<std::byte> message(sizeof head + bytes);
  std::memcpy(message.data(), &head, sizeof head);
  if (bytes != 0) std::memcpy(message.data() + sizeof head, body, bytes);
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {message.data(), message.size()};
  r.deadline = clock::now() + within;
  s.post(r);
  s.wait(r);
  return take_reply(r, type, answer, key);
}

errc home_agent::take_reply(fabric::request& r, protocol::paged_message type, std::vector<std::byte>& answer,
                            fabric::memory_key& key) {
  key = std::exchange(r.reply_key, {});
  if (r.status != errc::ok) {
    drop_key(key);
    return r.status;
  }
  protocol::answer_head a;
  const bool good = r.reply.size() >= sizeof a;
  if (good) std::memcpy(&a, r.reply.data(), sizeof a);
  if (!good || a.type != static_cast<std::uint16_t>(type) || a.body_bytes != r.reply.size() - sizeof a) {
    drop_key(key);
    return errc::bad_frame;
  }
  answer.assign(r.reply.begin() + sizeof a, r.reply.end());
  if (const auto code = static_cast<errc>(a.code); code != errc::ok) {
    drop_key(key);
    return code;
  }
  return errc::ok;
}

errc home_agent::open_space(fabric::session& s) {
  protocol::open_space_body body{};
  body.major = protocol::paged_protocol_major;
  body.minor = protocol::paged_protocol_minor;
  std::copy(std::begin(id_), std::end(id_), std::begin(body.space_id));
  body.incarnation = incarnation_;
  body.resume = opened_;
  name_.copy(body.name, sizeof body.name - 1);
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(s, protocol::paged_message::open_space, &body, sizeof body, answer, key, within_);
  drop_key(key);
  if (e == errc::timed_out || e == errc::disconnected || e == errc::cancelled) return e;  // to be tried again
  const auto give_up = [&](errc why, std::string text) {
    refused_ = why;
    refusal_ = std::move(text);
    return opened_ ? errc::agent_lost : errc::refused;
  };
  if (e != errc::ok)
    return give_up(e, e == errc::bad_frame ? "the answer to open_space is malformed" : readable_text(answer));
  protocol::open_space_answer a;
  if (!take_all(answer, a) || !is_power_of_two(a.region_bytes) || a.region_bytes < page_bytes ||
      a.region_bytes > (std::uint64_t{1} << 40) || a.drains > 1 || a.zero != 0 || (!opened_ && a.promised_bytes != 0) ||
      (opened_ && a.region_bytes != region_bytes_))
    return give_up(errc::bad_frame, "the answer to open_space is out of range");
  if (!opened_ && a.region_bytes < stripe_bytes_)
    return give_up(errc::invalid_argument,
                   fmt::format("has regions of {} bytes, which must hold a block and 64 KiB", a.region_bytes));
  if (!opened_) {
    region_bytes_ = a.region_bytes;
    const std::uint64_t each = region_bytes_ / stripe_bytes_, regions = (stripes_ + each - 1) / each;
    names_ = std::vector<std::atomic<std::uint64_t>>(regions);
    untold_.resize(regions);
    places_.open(regions, each);
    zone_ = a.zone;
    opened_ = true;
  }
  promised_bytes_.store(a.promised_bytes);
  promise_is_unknown_.store(false);
  restore_places();
  room_bytes_.store(a.room_bytes);
  wants_to_be_left.store(a.drains == 1);
  return errc::ok;
}

errc home_agent::promise(std::uint64_t stripes, duration within, std::string& text) {
  const std::lock_guard lock(promise_mutex_);
  return resize(stripes, within, text);
}

errc home_agent::probe(duration within) {
  const std::unique_lock lock(promise_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return errc::cancelled;
  std::string text;
  return resize(promised(), within, text);
}

errc home_agent::resize(std::uint64_t stripes, duration within, std::string& text) try {
  const protocol::resize_space_body body{round_up(stripes * stripe_bytes_, region_bytes_)};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(*session_, protocol::paged_message::resize_space, &body, sizeof body, answer, key, within);
  drop_key(key);
  protocol::resize_space_answer a{.promised_bytes = std::min(promised_bytes_.load(), body.bytes),
                                  .room_bytes = room_bytes_.load()};
  const bool is_known = !is_unknown(e);
  if (e != errc::ok) text = readable_text(answer);
  if (e != errc::ok && is_known) return e;
  if (e == errc::ok && (!take_all(answer, a) || a.promised_bytes != body.bytes)) return errc::bad_frame;
  promise_is_unknown_.store(!is_known);
  promised_bytes_.store(a.promised_bytes);
  room_bytes_.store(a.room_bytes);
  restore_places();
  return e;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc home_agent::ask_region(fabric::session& s, std::uint32_t index, bool existing) {
  protocol::space_region_body body{index, existing ? 1u : 0u};
  std::vector<std::byte> answer;
  fabric::memory_key key;
  if (const errc e = call(s, protocol::paged_message::space_region, &body, sizeof body, answer, key, within_);
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
  if (!places_.is_used(index)) emptied();  // what it was asked for has been discarded
  return errc::ok;
}

errc home_agent::connected(fabric::session& s, std::uint32_t g) try {
  const bool again = opened_;
  if (const errc e = open_space(s); e != errc::ok) return e;
  // Whoever makes a region meanwhile fails on this session, which is not up yet, or has made it on the last one.
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; again && i < names_.size(); ++i) {
    const bool there = names_[i].load(std::memory_order_relaxed) != 0;
    if (!there && !untold_[i]) continue;
    const errc e = there ? ask_region(s, i, true) : tell_released(s, i, within_);
    if (e == errc::not_found || e == errc::stale || e == errc::bad_frame) return errc::agent_lost;
    if (e != errc::ok) return e;
    s.progressed();
  }
  if (again) reconnects_.fetch_add(1, std::memory_order_relaxed);
  usable_.store(g, std::memory_order_release);
  answered();
  if (again) events_.agent_changed();
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

void home_agent::disconnected(fabric::session&, std::uint32_t, errc) noexcept {
  usable_.store(0, std::memory_order_release);
}

duration home_agent::reconnect_for(duration usual) const noexcept {
  return suspect_within_ > duration{} && events_.is_replaceable(*this) ? std::min(suspect_within_, usual) : usual;
}

void home_agent::lost(fabric::session& s, errc) noexcept {
  is_lost_.store(true);
  if (copying_.load() == 0) s.forget_memory();
  events_.agent_changed();
}

void home_agent::notice(fabric::session&, std::span<const std::byte> payload) noexcept {
  protocol::message_head head;
  protocol::drain_notice body;
  if (payload.size() != sizeof head + sizeof body) return;
  std::memcpy(&head, payload.data(), sizeof head);
  std::memcpy(&body, payload.data() + sizeof head, sizeof body);
  if (head.type != static_cast<std::uint16_t>(protocol::paged_message::drain_space) || body.drains > 1) return;
  wants_to_be_left.store(body.drains == 1);
  events_.agent_changed();
}

void home_agent::heard_of(errc e) noexcept {
  if (e == errc::ok) {
    if (is_slow()) is_slow_.store(false, std::memory_order_relaxed);
    if (is_silent()) answered();
  } else if (e == errc::timed_out) {
    is_slow_.store(true, std::memory_order_relaxed);
    if (!is_silent_.exchange(true, std::memory_order_relaxed)) events_.agent_changed();
  }
}

// The look at the connection comes after the count, and lost() looks at the count after it has said so: one of the two
// sees the other.
std::byte* home_agent::begin_copying(std::uint64_t at) noexcept {
  if (is_lost_.load()) return nullptr;
  copying_.fetch_add(1);
  if (std::byte* const d = is_lost_.load() ? nullptr : direct(at)) return d;
  end_copying();
  return nullptr;
}

void home_agent::end_copying() noexcept {
  if (copying_.fetch_sub(1) == 1 && is_lost_.load()) session_->forget_memory();
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
  const errc e = ask_region(*session_, index, false);
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
  r.deadline = clock::now() + within_;
  r.on_done = [](fabric::request&) noexcept {};  // so that the session's thread takes the answer
  session_->post(r);
}

errc home_agent::take_answer_to(question& q) {
  q.is_posted = false;
  is_asked_.store(false, std::memory_order_relaxed);
  std::vector<std::byte> answer;
  fabric::memory_key key;
  errc e = take_reply(q.request, q.type, answer, key);
  if (q.type == protocol::paged_message::release_region) {
    drop_key(key);
    if (e == errc::ok) untold(q.index, false);
    return e;
  }
  if (is_unknown(e)) untold(q.index, true);
  if (e != errc::ok) return e;
  // A region of an older connection is asked for again, and so is one that came otherwise.
  if (q.request.generation != session_->generation() || !up() || names_[q.index].load(std::memory_order_relaxed) != 0) {
    drop_key(key);
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

protocol::audit_space_answer home_agent::audit() {
  {
    const std::lock_guard lock(mutex_);
    end_question();
  }
  settle();
  std::vector<std::byte> answer;
  fabric::memory_key key;
  const errc e = call(*session_, protocol::paged_message::audit_space, nullptr, 0, answer, key, within_);
  drop_key(key);
  protocol::audit_space_answer a{};
  if (e != errc::ok || !take_all(answer, a))
    throw error(e == errc::ok ? errc::bad_frame : e, fmt::format("{}: audit of space {}", url_, name_));
  return a;
}

}  // namespace fm::detail
