// What an endpoint does for the thread that receives; see endpoint.h.
#include "endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

using namespace channel_wire;

namespace {
constexpr auto verdict_within = std::chrono::seconds(10);
}  // namespace

/// Looks at the conduit. What lies there is checked as what comes by message is, but that it is in order.
bool endpoint::conduit_next_locked(std::unique_lock<std::mutex>& lock) {
  if (front_) return true;
  std::span<const std::byte> message;
  arrival a;
  lock.unlock();  // only the thread that receives comes here
  const conduit_reader::found found =
      conduit_->reader().next(sizeof(head) + std::max(terms_.part, text_bytes_max), message, a.rest);
  lock.lock();
  count_skipped_locked();
  if (found == conduit_reader::found::nothing) return false;
  const bool good = found == conduit_reader::found::message && decode(message, a.head, a.here, a.rest) == errc::ok &&
                    a.head.kind == static_cast<std::uint8_t>(kind::part) && a.head.a == next_sequence_ &&
                    (a.head.bytes <= terms_.part || (a.head.flags & flag_abort) != 0);
  if (!good) {
    break_rules_locked("the other end broke the rules");
    return false;
  }
  stats_.wire_bytes_received += a.bytes();
  ++stats_.parts_received;
  front_.emplace(std::move(a));
  return true;
}

const endpoint::arrival* endpoint::next_locked() const noexcept {
  if (conduit_) return front_ ? &*front_ : nullptr;
  return !inbox_.empty() && inbox_.begin()->first == next_sequence_ ? &inbox_.begin()->second : nullptr;
}

void endpoint::hand_aside_locked() noexcept {
  if (!aside_) return;
  if (!conduit_->reader().take_aside(aside_->first, std::move(aside_->second)))
    break_rules_locked("the other end sends aside what has come");
  aside_.reset();
}

void endpoint::count_skipped_locked() noexcept {
  if (skipped_bytes_ == 0 || !conduit_->reader().is_through()) return;
  consumed_bytes_ += std::exchange(skipped_bytes_, 0);
  ++consumed_parts_;
  answer_locked();
}

template <class Attempt>
bool endpoint::wait_conduit_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look,
                                   const Attempt& attempt) {
  conduit_reader& in = conduit_->reader();
  for (;; look = false) {
    const std::uint32_t seen = in.watch();
    hand_aside_locked();
    // Also what came before the channel broke; but whoever goes on writing then is not listened to for ever.
    const bool over = broken_ == errc::bad_frame || broken_ == errc::cancelled ||
                      (broken_ != errc::ok && !look && clock::now() >= deadline);
    if (!over && attempt()) return true;
    time_point until = deadline;
    if (conduit_->in_shared_memory() || over) {
      throw_broken_locked();
    } else {
      const time_point now = clock::now(), ended = in.ended_at();
      if (in.received() != heard_bytes_) heard_at_ = now;
      heard_bytes_ = in.received();
      if (ended != time_point::max()) {
        throw_broken_locked();
        if (now >= ended + word_within) break_locked(errc::disconnected, "the connection broke");
        until = std::min(deadline, ended + word_within);
      } else if (broken_ != errc::ok) {
        // The session said so, and on the connection of the parts more may be under way: until that ends, or nothing comes.
        const time_point silent = std::max(broken_at_, heard_at_) + word_within;
        if (now >= silent) throw_broken_locked();
        until = std::min(deadline, silent);
      }
    }
    if (clock::now() >= deadline) return false;
    lock.unlock();
    in.wait(seen, until);
    lock.lock();
  }
}

bool endpoint::wait_arrival_locked(std::unique_lock<std::mutex>& lock, time_point deadline, bool look) {
  if (conduit_) return front_ || wait_conduit_locked(lock, deadline, look, [&] { return conduit_next_locked(lock); });
  const auto here = [&] { return next_locked() != nullptr; };
  changed_.wait_until(lock, deadline, [&] { return here() || broken_ != errc::ok; });
  if (here()) return true;  // also what came before the channel broke
  throw_broken_locked();
  return false;
}

template <class Attempt>
void endpoint::wait_rest(arrival& a, time_point deadline, const Attempt& attempt) {
  std::unique_lock lock(mutex_);
  std::uint64_t n = 0;
  const bool in_time = wait_conduit_locked(lock, deadline, false, [&] {
    lock.unlock();
    n = attempt();
    lock.lock();
    return n != 0;
  });
  if (!in_time)
    throw error(errc::timed_out,
                fmt::format("channel with {}: the rest of graph {} has not come", name_, a.head.number));
  a.rest -= n;
}

void endpoint::more_of(arrival& a, time_point deadline) {
  wait_rest(a, deadline, [&] {
    a.here = conduit_->reader().more();
    return a.here.size();
  });
}

std::uint64_t endpoint::more_into(arrival& a, std::span<std::byte> to, time_point deadline) {
  std::uint64_t n = 0;
  a.here = {};
  do
    wait_rest(a, deadline, [&] {
      const std::uint64_t got = conduit_->reader().more_into(to.subspan(n));
      n += got;
      return got;
    });
  while (n % 8 != 0);
  return n;
}

endpoint::arrival endpoint::take_locked() {
  arrival a;
  if (conduit_) {
    a = std::move(*front_);
    front_.reset();
  } else {
    a = std::move(inbox_.begin()->second);
    inbox_.erase(inbox_.begin());
  }
  ++next_sequence_;
  return a;
}

std::optional<std::uint64_t> endpoint::peek(time_point deadline) {
  for (;;) {
    arrival skipped;
    {
      std::unique_lock lock(mutex_);
      if (!wait_arrival_locked(lock, deadline, true)) return std::nullopt;
      const arrival& next = *next_locked();
      if (next.head.number != skipping_ || skipping_ == 0) {
        std::uint64_t hash = 0;
        if ((next.head.flags & flag_first) != 0 && (next.head.flags & flag_abort) == 0)
          std::memcpy(&hash, next.payload().data(), 8);
        return hash;
      }
      skipped = take_locked();
      if ((skipped.head.flags & (flag_last | flag_abort)) != 0) skipping_ = 0;
    }
    consumed(skipped);
    if (clock::now() >= deadline) return std::nullopt;  // however much more of it there is
  }
}

endpoint::arrival endpoint::first_part(time_point deadline) {
  if (!peek(deadline)) throw error(errc::timed_out, fmt::format("channel with {}: no graph has come", name_));
  arrival a;
  {
    const std::lock_guard lock(mutex_);
    a = take_locked();
    if ((a.head.flags & flag_first) != 0 && (a.head.flags & flag_abort) == 0 && a.head.number == graph_in_ + 1) {
      graph_in_ = a.head.number;
      return a;
    }
  }
  consumed(a);
  found_bad(fmt::format("a part of graph {} where graph {} should begin", a.head.number, graph_in_ + 1));
  const std::lock_guard lock(mutex_);
  throw_broken_locked();
  return a;
}

endpoint::arrival endpoint::next_part(std::uint64_t graph, time_point deadline) {
  arrival a;
  {
    std::unique_lock lock(mutex_);
    if (!wait_arrival_locked(lock, deadline))
      throw error(errc::timed_out, fmt::format("channel with {}: the rest of graph {} has not come", name_, graph));
    a = take_locked();
  }
  if ((a.head.flags & flag_abort) != 0 && a.head.number == graph) {
    std::string text =
        fmt::format("channel with {}: the sender gave graph {} up: {}", name_, graph, text_of(a.payload()));
    consumed(a);
    throw sender_gave_up{static_cast<errc>(a.head.status), std::move(text)};
  }
  if (a.head.number == graph && (a.head.flags & flag_first) == 0) {
    if (a.head.bytes != 0 || (a.head.flags & flag_last) != 0 || clock::now() < deadline) return a;
    consumed(a);
    throw error(errc::timed_out,
                fmt::format("channel with {}: parts of graph {} come with nothing in them", name_, graph));
  }
  consumed(a);
  found_bad(fmt::format("a part of graph {} in the middle of graph {}", a.head.number, graph));
  const std::lock_guard lock(mutex_);
  throw_broken_locked();
  return a;
}

void endpoint::consumed(const arrival& a) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (conduit_) {
      if ((a.head.flags & flag_wanted) != 0) wanted_in_ = std::max(wanted_in_, a.head.number);
      conduit_->reader().release();
      skipped_bytes_ = a.bytes();
      return count_skipped_locked();
    }
    inbox_bytes_ -= a.message.size();
    consumed_bytes_ += a.bytes();
    ++consumed_parts_;
  }
  give_credit(false);
}

// Told when a quarter of the window has come together: a sender that waits has used up more than that, since a part is at most
// a quarter.
bool endpoint::credit_is_due_locked() const noexcept {
  return consumed_bytes_ - told_bytes_ >= terms_.window / 4 ||
         consumed_parts_ - told_parts_ >= std::max(1u, terms_.window_parts / 4);
}

void endpoint::give_credit(bool all) noexcept {
  head h = make(kind::credit);
  {
    const std::lock_guard lock(mutex_);
    if (broken_ != errc::ok || (!credit_is_due_locked() && !all)) return;
    h.a = told_bytes_ = consumed_bytes_;
    h.b = told_parts_ = consumed_parts_;
    stats_.wire_bytes_sent += sizeof h;
  }
  if (const errc e = tell(h); e != errc::ok) broken(e, "credit could not be given");
}

void endpoint::answer_locked() noexcept {
  if (!conduit_->in_shared_memory()) {
    const bool judged = told_judged_ < std::min(judged_in_, wanted_in_);
    const bool consumed = wanted_parts_ != 0 && consumed_parts_ >= wanted_parts_;
    if (broken_ != errc::ok || !(judged || consumed || credit_is_due_locked())) return;
    if (consumed) wanted_parts_ = 0;
    told_bytes_ = consumed_bytes_;
    told_parts_ = consumed_parts_;
    told_judged_ = judged_in_;
    stats_.wire_bytes_sent += sizeof(part_answers);
  }
  if (!conduit_->reader().answer({consumed_bytes_, consumed_parts_, judged_in_, refused_in_}))
    break_rules_locked("the other end does not listen to answers");
}

void endpoint::judge(std::uint64_t graph, errc code, std::string_view text, bool seen_last) noexcept {
  head h = make(kind::verdict, graph);
  h.status = static_cast<std::uint16_t>(code);
  text = text.substr(0, 2048);
  {
    const std::lock_guard lock(mutex_);
    if (!seen_last) skipping_ = graph;
    if (code != errc::ok) ++stats_.graphs_refused;
    if (broken_ != errc::ok) return;
    if (conduit_) {
      judged_in_ = graph;
      refused_in_ += code != errc::ok;
      answer_locked();
      if (code == errc::ok) return;
    }
    h.a = told_bytes_ = consumed_bytes_;
    h.b = told_parts_ = consumed_parts_;
    stats_.wire_bytes_sent += sizeof h + text.size();
  }
  // A peer takes so many notices at a time, and hears in batches that they were handled: there may be no room for a moment, and nobody
  // says when there is.
  errc e = tell(h, text);
  for (const time_point until = clock::now() + verdict_within; e == errc::disconnected && clock::now() < until;) {
    {
      std::unique_lock lock(mutex_);
      if (broken_ != errc::ok) return;
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    e = tell(h, text);
  }
  if (e != errc::ok) broken(e, "a verdict could not be given");
}

std::string endpoint::ask_description(std::uint64_t hash, time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    description_.reset();
    asked_ = hash;
  }
  head h = make(kind::ask);
  h.a = hash;
  if (tell(h) != errc::ok) return {};
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return description_ || broken_ != errc::ok; });
  return description_.value_or(std::string());
}

}  // namespace fm::detail
