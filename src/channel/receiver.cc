// Finding parts, waiting for them, crediting and judging them; see receiver.h.
#include "receiver.h"
#include "base/channel_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

using namespace channel_wire;

// ---- what the other end says ----

errc receiver::part_arrived_locked(const head& h, std::span<const std::byte> message) {
  const errc e = s_.path->reader().take_message(h, message);
  if (e == errc::ok) ++s_.stats.parts_received;
  return e;
}

errc receiver::want_arrived_locked(const head& h) noexcept {
  if (const errc e = credit_->want(h.a, h.b); e != errc::ok) return e;
  answer_locked();
  return errc::ok;
}

errc receiver::aside_arrived_locked(const head& h, std::span<const std::byte> bytes) {
  if (!s_.path->carries_answers() || aside_) return errc::bad_frame;
  aside_.emplace(h.a, std::vector<std::byte>(bytes.begin(), bytes.end()));
  return errc::ok;
}

errc receiver::description_arrived_locked(const head& h, std::span<const std::byte> text) {
  if (unanswered_ == 0) return errc::bad_frame;
  --unanswered_;
  if (h.a != asked_ || description_) return errc::ok;  // an earlier question, for which nobody waits any more
  description_.emplace(reinterpret_cast<const char*>(text.data()), text.size());
  return errc::ok;
}

// ---- what the path brings ----

/// Looks at the path. What lies there is checked as a message is, and must be in order.
bool receiver::find_next_locked(std::unique_lock<std::mutex>& lock) {
  if (front_) return true;
  std::span<const std::byte> message;
  arrival a;
  lock.unlock();  // only the thread that receives comes here
  const byte_path_reader::found found =
      s_.path->reader().next(sizeof(head) + std::max(s_.terms.part, text_bytes_max), message, a.rest);
  lock.lock();
  count_skipped_locked();
  if (found == byte_path_reader::found::nothing) return false;
  const bool good = found == byte_path_reader::found::message && decode(message, a.head, a.here, a.rest) == errc::ok &&
                    a.head.kind == static_cast<std::uint8_t>(kind::part) && a.head.a == next_sequence_ &&
                    (a.head.bytes <= s_.terms.part || (a.head.flags & flag_abort) != 0);
  if (!good) {
    s_.break_rules_locked("the other end broke the rules");
    return false;
  }
  if (s_.path->carries_answers()) {  // messages were counted as they arrived
    s_.stats.wire_bytes_received += a.bytes();
    ++s_.stats.parts_received;
  }
  s_.stats.copied_bytes_received += a.head.bytes;
  front_.emplace(a);
  return true;
}

void receiver::hand_aside_locked() noexcept {
  if (!aside_) return;
  if (!s_.path->reader().take_aside(aside_->first, std::move(aside_->second)))
    s_.break_rules_locked("the other end sends aside what has come");
  aside_.reset();
}

time_point receiver::connection_may_bring_locked(time_point deadline) {
  byte_path_reader& in = s_.path->reader();
  const time_point now = clock::now(), ended = in.ended_at();
  if (in.received() != heard_bytes_) heard_at_ = now;
  heard_bytes_ = in.received();
  if (ended != time_point::max()) {
    s_.throw_broken_locked();
    if (now >= ended + channel_limits::word_within) s_.break_locked(errc::disconnected, "the connection broke");
    return std::min(deadline, ended + channel_limits::word_within);
  }
  if (s_.broken == errc::ok) return deadline;
  // The session said so, and on the connection of the parts more may be under way: until that ends, or nothing comes.
  const time_point silent = std::max(s_.broken_at, heard_at_) + channel_limits::word_within;
  if (now >= silent) s_.throw_broken_locked();
  return std::min(deadline, silent);
}

template <class Attempt>
bool receiver::wait_path_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look,
                                const Attempt& attempt) {
  byte_path_reader& in = s_.path->reader();
  for (;; look = false) {
    const std::uint32_t seen = in.watch();
    hand_aside_locked();
    // Also what came before the channel broke; but whoever goes on writing then is not listened to for ever. Messages
    // are let in no more by then.
    const bool over = s_.path->carries_answers() && (s_.broken == errc::bad_frame || s_.broken == errc::cancelled ||
                                                     (s_.broken != errc::ok && !look && clock::now() >= deadline));
    if (!over && attempt()) return true;
    time_point until = deadline;
    if (over || !s_.path->has_own_connections())
      s_.throw_broken_locked();
    else
      until = connection_may_bring_locked(deadline);
    if (clock::now() >= deadline) return false;
    lock.unlock();
    in.wait(seen, until);
    lock.lock();
  }
}

bool receiver::wait_arrival_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look) {
  return front_ || wait_path_locked(lock, deadline, look, [&] { return find_next_locked(lock); });
}

template <class Attempt>
void receiver::wait_rest(arrival& a, time_point deadline, const Attempt& attempt) {
  std::unique_lock lock(s_.mutex);
  std::uint64_t n = 0;
  const bool in_time = wait_path_locked(lock, deadline, false, [&] {
    lock.unlock();
    n = attempt();
    lock.lock();
    return n != 0;
  });
  if (!in_time)
    throw error(errc::timed_out,
                fmt::format("channel with {}: the rest of graph {} has not come", s_.name, a.head.number));
  a.rest -= n;
}

void receiver::more_of(arrival& a, time_point deadline) {
  wait_rest(a, deadline, [&] {
    a.here = s_.path->reader().more();
    return a.here.size();
  });
}

std::uint64_t receiver::more_into(arrival& a, std::span<std::byte> to, time_point deadline) {
  std::uint64_t n = 0;
  a.here = {};
  do
    wait_rest(a, deadline, [&] {
      const std::uint64_t got = s_.path->reader().more_into(to.subspan(n));
      n += got;
      return got;
    });
  while (n % 8 != 0);
  const std::uint64_t straight = s_.path->reader().take_straight();
  const std::lock_guard lock(s_.mutex);
  s_.stats.in_place_bytes_received += straight;
  s_.stats.copied_bytes_received -= straight;
  return n;
}

// ---- taking parts ----

receiver::arrival receiver::take_locked() noexcept {
  const arrival a = *front_;
  front_.reset();
  ++next_sequence_;
  return a;
}

std::optional<std::uint64_t> receiver::peek(time_point deadline) {
  for (;;) {
    arrival skipped;
    {
      std::unique_lock lock(s_.mutex);
      if (!wait_arrival_locked(lock, deadline, true)) return std::nullopt;
      if (front_->head.number != skipping_ || skipping_ == 0) {
        std::uint64_t hash = 0;
        if ((front_->head.flags & flag_first) != 0 && (front_->head.flags & flag_abort) == 0)
          std::memcpy(&hash, front_->here.data(), 8);
        return hash;
      }
      skipped = take_locked();
      if ((skipped.head.flags & (flag_last | flag_abort)) != 0) skipping_ = 0;
    }
    consumed(skipped);
    if (clock::now() >= deadline) return std::nullopt;  // however much more of it there is
  }
}

receiver::arrival receiver::first_part(time_point deadline) {
  if (!peek(deadline)) throw error(errc::timed_out, fmt::format("channel with {}: no graph has come", s_.name));
  arrival a;
  {
    const std::lock_guard lock(s_.mutex);
    a = take_locked();
    if ((a.head.flags & flag_first) != 0 && (a.head.flags & flag_abort) == 0 && a.head.number == graph_in_ + 1) {
      graph_in_ = a.head.number;
      return a;
    }
  }
  consumed(a);
  found_bad(fmt::format("a part of graph {} where graph {} should begin", a.head.number, graph_in_ + 1));
  const std::lock_guard lock(s_.mutex);
  s_.throw_broken_locked();
  return a;
}

receiver::arrival receiver::next_part(std::uint64_t graph, time_point deadline) {
  arrival a;
  {
    std::unique_lock lock(s_.mutex);
    if (!wait_arrival_locked(lock, deadline))
      throw error(errc::timed_out, fmt::format("channel with {}: the rest of graph {} has not come", s_.name, graph));
    a = take_locked();
  }
  if ((a.head.flags & flag_abort) != 0 && a.head.number == graph) {
    std::string text = fmt::format("channel with {}: the sender gave graph {} up: {}", s_.name, graph, text_of(a.here));
    consumed(a);
    throw sender_gave_up{static_cast<errc>(a.head.status), std::move(text)};
  }
  if (a.head.number == graph && (a.head.flags & flag_first) == 0) {
    if (a.head.bytes != 0 || (a.head.flags & flag_last) != 0 || clock::now() < deadline) return a;
    consumed(a);
    throw error(errc::timed_out,
                fmt::format("channel with {}: parts of graph {} come with nothing in them", s_.name, graph));
  }
  consumed(a);
  found_bad(fmt::format("a part of graph {} in the middle of graph {}", a.head.number, graph));
  const std::lock_guard lock(s_.mutex);
  s_.throw_broken_locked();
  return a;
}

void receiver::found_bad(std::string_view text) noexcept {
  s_.break_channel(errc::bad_frame, text);
  // Where messages come, the next one ends the connection. From any other path nothing is read any more, and the other
  // end would not notice.
  if (s_.path->carries_answers()) (void)s_.tell(make(kind::bye));
}

// ---- credit and verdicts ----

bool receiver::count_skipped_locked() noexcept {
  if (skipped_bytes_ == 0 || !s_.path->reader().is_through()) return false;
  credit_->part_consumed(std::exchange(skipped_bytes_, 0));
  return answer_locked();
}

bool receiver::answer_locked() noexcept {
  const receive_credit::notice due = credit_->tell(s_.broken != errc::ok);
  s_.stats.wire_bytes_sent += due.wire_bytes;
  if (due.by == receive_credit::way::answer && !s_.path->reader().answer(credit_->totals()))
    s_.break_rules_locked("the other end does not listen to answers");
  return due.by == receive_credit::way::message;
}

void receiver::consumed(const arrival& a) noexcept {
  bool by_message = false;
  {
    const std::lock_guard lock(s_.mutex);
    if ((a.head.flags & flag_wanted) != 0) credit_->want_verdict(a.head.number);
    s_.path->reader().release();
    skipped_bytes_ = a.bytes();
    by_message = count_skipped_locked();
  }
  if (by_message) tell_credit();
}

void receiver::tell_credit() noexcept {
  head h = make(kind::credit);
  {
    const std::lock_guard lock(s_.mutex);
    const part_answers& totals = credit_->tell_consumed();
    h.a = totals.bytes;
    h.b = totals.parts;
  }
  if (const errc e = s_.tell(h); e != errc::ok) s_.break_channel(e, "credit could not be given");
}

void receiver::judge(std::uint64_t graph, errc code, std::string_view text, bool seen_last) noexcept {
  head h = make(kind::verdict, graph);
  h.status = static_cast<std::uint16_t>(code);
  text = text.substr(0, channel_limits::reason_bytes_max);
  {
    const std::lock_guard lock(s_.mutex);
    if (!seen_last) skipping_ = graph;
    if (code != errc::ok) ++s_.stats.graphs_refused;
    if (s_.broken != errc::ok) return;
    if (s_.path->carries_answers()) {
      credit_->graph_judged(graph, code != errc::ok);
      answer_locked();
      if (code == errc::ok) return;
    }
    const part_answers& totals = credit_->tell_consumed();
    h.a = totals.bytes;
    h.b = totals.parts;
    s_.stats.wire_bytes_sent += sizeof h + text.size();
  }
  // A peer takes so many notices at a time, and hears in batches that they were handled: there may be no room for a
  // moment, and nobody says when there is.
  errc e = s_.tell(h, text);
  for (const time_point until = clock::now() + channel_limits::verdict_within;
       e == errc::disconnected && clock::now() < until;) {
    {
      std::unique_lock lock(s_.mutex);
      if (s_.broken != errc::ok) return;
      s_.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    e = s_.tell(h, text);
  }
  if (e != errc::ok) s_.break_channel(e, "a verdict could not be given");
}

std::string receiver::ask_description(std::uint64_t hash, time_point deadline) {
  {
    const std::lock_guard lock(s_.mutex);
    description_.reset();
    asked_ = hash;
    ++unanswered_;
  }
  head h = make(kind::ask);
  h.a = hash;
  if (s_.tell(h) != errc::ok) return {};
  std::unique_lock lock(s_.mutex);
  s_.changed.wait_until(lock, deadline, [&] { return description_ || s_.broken != errc::ok; });
  return description_.value_or(std::string());
}

}  // namespace fm::detail
