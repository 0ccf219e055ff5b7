// The session with an agent, and what it promises; see home_agent.h, whose invariant is kept by home_regions.cc. Fills,
// write-backs, mend.cc and members.cc call it.
#include "home_agent.h"

#include "base/text.h"
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "home_agent_messages.h"

namespace fm::detail {

namespace {

std::uint64_t fresh_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
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
      suspect_within_(options.suspect_within),
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
  const errc e = resize(stripes, within, text);
  heard_of(e);
  return e;
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

errc home_agent::connected(fabric::session& s, std::uint32_t g) try {
  const bool again = opened_;
  if (const errc e = open_space(s); e != errc::ok) return e;
  // Whoever makes a region meanwhile fails on this session, which is not up yet, or has made it on the last one.
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; again && i < names_.size(); ++i) {
    const bool there = names_[i].load(std::memory_order_relaxed) != 0;
    if (!there && !untold_[i]) continue;
    const errc e = there ? ask_region(s, i, true, within_) : tell_released(s, i, within_);
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
  events_.agent_changed();
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
