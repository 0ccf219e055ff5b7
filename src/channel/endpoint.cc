#include "endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ring.h"

namespace fm::detail {

using namespace channel_wire;

namespace {

constexpr std::uint64_t parts_over_credit = 4;  // that give a graph up

}  // namespace

// ---- what is agreed ----

channel_terms channel_terms::of(const channel_options& o) {
  const auto bad = [](const char* option, std::uint64_t value, const char* rule) {
    throw error(errc::invalid_argument, fmt::format("channel_options::{} is {}: {}", option, value, rule));
  };
  if (o.part < part_bytes_min || o.part > part_bytes_max || o.part % 8 != 0)
    bad("part", o.part, "it must be 1 KiB to 512 KiB, a multiple of 8");
  if (o.window < 4 * std::uint64_t{o.part} || o.window > window_bytes_max)
    bad("window", o.window, "it must be four parts at least and 1 GiB at most");
  if (o.window_parts < 4 || o.window_parts > window_parts_max)
    bad("window_parts", o.window_parts, "it must be 4 to 64");
  return {o.window, o.window_parts, o.part};
}

std::uint64_t channel_terms::ring_bytes() const noexcept { return ring_pair::bytes_for(window, window_parts, part); }

head channel_terms::hello() const noexcept {
  head h = make(kind::hello);
  h.a = window;
  h.b = std::uint64_t{part} << 32 | window_parts;
  return h;
}

errc channel_terms::agree(const head& theirs, channel_terms& mine) noexcept {
  const auto their_part = static_cast<std::uint32_t>(theirs.b >> 32);
  const auto their_parts = static_cast<std::uint32_t>(theirs.b);
  if (their_part < part_bytes_min || their_part > part_bytes_max || their_part % 8 != 0) return errc::bad_frame;
  if (theirs.a < 4 * std::uint64_t{their_part} || theirs.a > window_bytes_max) return errc::bad_frame;
  if (their_parts < 4 || their_parts > window_parts_max) return errc::bad_frame;
  mine.window = std::min(mine.window, theirs.a);
  mine.window_parts = std::min(mine.window_parts, their_parts);
  mine.part = std::min(mine.part, their_part);
  return errc::ok;
}

// ---- what arrives ----

errc endpoint::arrived(std::span<const std::byte> message) noexcept {
  head h{};
  std::span<const std::byte> payload;
  if (const errc e = decode(message, h, payload); e != errc::ok) return e;
  try {
    std::unique_lock lock(mutex_);
    if (broken_ != errc::ok) return broken_ == errc::bad_frame ? broken_ : errc::ok;
    stats_.wire_bytes_received += message.size();
    errc e = errc::bad_frame;
    take_answers_locked();  // what was told before this message
    if (broken_ != errc::ok) return broken_;
    switch (static_cast<kind>(h.kind)) {
      case kind::part: e = conduit_ ? errc::bad_frame : part_arrived(h, message); break;
      case kind::credit: e = credit_arrived(h); break;
      case kind::verdict: e = verdict_arrived(h, payload); break;
      case kind::ask: {
        const auto known = descriptions_.find(h.a);
        const std::string text = known == descriptions_.end() ? std::string() : known->second;
        lock.unlock();
        head answer = make(kind::describe);
        answer.a = h.a;
        return tell(answer, text) == errc::ok ? errc::ok : errc::disconnected;
      }
      case kind::describe:
        e = h.a == asked_ && !description_ ? errc::ok : errc::bad_frame;
        if (e == errc::ok) description_.emplace(reinterpret_cast<const char*>(payload.data()), payload.size());
        break;
      case kind::bye:
        break_locked(errc::disconnected, "the other end has closed the channel");
        e = errc::ok;
        break;
      case kind::want:
        if (!conduit_) break;
        wanted_in_ = std::max(wanted_in_, h.a);
        wanted_parts_ = std::max(wanted_parts_, h.b);
        answer_locked();
        e = errc::ok;
        break;
      case kind::aside:
        if (!conduit_ || aside_) break;
        aside_.emplace(h.a, std::vector<std::byte>(payload.begin(), payload.end()));
        e = errc::ok;
        break;
      case kind::hello: break;
    }
    changed_.notify_all();
    if (conduit_) conduit_->kick();
    return e;
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

errc endpoint::part_arrived(const head& h, std::span<const std::byte> message) {
  const bool ends_early = (h.flags & flag_abort) != 0;
  const std::uint64_t slack = ends_early ? parts_over_credit : 0;
  if (h.a - next_sequence_ >= terms_.window_parts + parts_over_credit) return errc::bad_frame;  // also what is repeated
  if (inbox_.size() >= terms_.window_parts + slack) return errc::bad_frame;
  if (!ends_early && inbox_bytes_ != 0 && inbox_bytes_ + message.size() > terms_.window) return errc::bad_frame;
  if (h.bytes > terms_.part && !ends_early) return errc::bad_frame;
  arrival a;
  a.message.assign(message.begin(), message.end());
  a.head = h;
  if (!inbox_.emplace(h.a, std::move(a)).second) return errc::bad_frame;
  inbox_bytes_ += message.size();
  ++stats_.parts_received;
  return errc::ok;
}

errc endpoint::credit_arrived(const head& h) noexcept {
  if (h.a > sent_bytes_ || h.b > sent_parts_) return errc::bad_frame;
  their_bytes_ = std::max(their_bytes_, h.a);
  their_parts_ = std::max(their_parts_, h.b);
  return errc::ok;
}

errc endpoint::verdict_arrived(const head& h, std::span<const std::byte> text) {
  const bool is_next =
      conduit_ ? h.number > judged_ && static_cast<errc>(h.status) != errc::ok : h.number == judged_ + 1;
  if (!is_next || h.number > graph_) return errc::bad_frame;
  if (h.number == graph_ && graph_open_ && (graph_flags_ & flag_first) != 0)
    return errc::bad_frame;  // none of it was sent
  judged_ = h.number;
  if (static_cast<errc>(h.status) != errc::ok) {
    ++refused_;
    if (refusals_.size() >= refusals_max) refusals_.pop_front();
    refusals_.push_back({h.number, static_cast<errc>(h.status), text_of(text)});
  }
  return credit_arrived(h);
}

void endpoint::break_locked(errc why, std::string_view text) noexcept {
  if (broken_ == errc::ok) {
    broken_ = why;
    broken_at_ = clock::now();
    try {
      broken_text_ = text;
    } catch (const std::bad_alloc&) {  // then there is only the code
    }
  }
  changed_.notify_all();
  if (conduit_) conduit_->kick();
}

void endpoint::broken(errc why, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  break_locked(why, text);
}

void endpoint::found_bad(std::string_view text) noexcept {
  broken(errc::bad_frame, text);
  // Where messages come, the next one ends the connection. By a conduit nothing is read any more, and the other end would not notice.
  if (conduit_) (void)tell(make(kind::bye));
}

/// What the receiver tells by totals; impossible ones are the end. From shared memory they are never older than its messages.
part_answers endpoint::take_answers_locked() noexcept {
  if (!conduit_) return {};
  const part_answers a = conduit_->writer().answers();
  const bool none_sent = graph_open_ && (graph_flags_ & flag_first) != 0;
  if (conduit_->writer().broken() || a.bytes > sent_bytes_ || a.parts > sent_parts_ ||
      (a.refused < refused_ && conduit_->in_shared_memory()) || a.judged > graph_ - (none_sent ? 1 : 0)) {
    break_rules_locked("the other end answers what cannot be");
    return a;
  }
  const bool news = a.bytes > their_bytes_ || a.parts > their_parts_ || a.judged > judged_;
  their_bytes_ = std::max(their_bytes_, a.bytes);
  their_parts_ = std::max(their_parts_, a.parts);
  if (a.refused <= refused_) judged_ = std::max(judged_, a.judged);  // else a refusal among them is on its way
  // What was read from a connection does not wake who waits for it there.
  if (news && answer_waiters_ != 0 && !conduit_->in_shared_memory()) conduit_->writer().kick();
  return a;
}

void endpoint::break_rules_locked(std::string_view text) noexcept {
  const bool first = broken_ == errc::ok;
  break_locked(errc::bad_frame, text);
  if (first && line_) line_->drop();
}

template <class Ready>
bool endpoint::wait_answer(std::unique_lock<std::mutex>& lock, time_point deadline, bool late, const Ready& ready) {
  if (!conduit_) return changed_.wait_until(lock, deadline, [&] { return ready() || broken_ != errc::ok; });
  conduit_writer& out = conduit_->writer();
  late = late && !conduit_->in_shared_memory();
  for (;;) {
    const std::uint32_t seen = out.watch();
    const part_answers before = take_answers_locked();
    if (ready()) return true;
    time_point until = deadline;
    const time_point ended = out.ended_at();
    if (broken_ != errc::ok) {
      // A goodbye comes by the session, and may overtake the answers.
      until = std::min(deadline, broken_at_ + word_within);
      if (!late || broken_ != errc::disconnected || ended != time_point::max() || clock::now() >= until) return true;
    } else if (ended != time_point::max()) {
      until = std::min(deadline, ended + word_within);
      if (clock::now() >= ended + word_within) {
        break_locked(errc::disconnected, "the connection broke");
        return true;
      }
    }
    if (clock::now() >= deadline) return false;
    ++answer_waiters_;
    lock.unlock();
    out.wait(seen, before, until);
    lock.lock();
    --answer_waiters_;
  }
}

void endpoint::want_verdict(std::uint64_t graph) noexcept {
  head h = make(kind::want);
  {
    const std::lock_guard lock(mutex_);
    if (!conduit_ || conduit_->in_shared_memory() || judged_ >= graph || wanted_ >= graph || broken_ != errc::ok)
      return;
    wanted_ = h.a = graph;
  }
  if (const errc e = tell(h); e != errc::ok) broken(e, "a verdict could not be asked for");
}

void endpoint::throw_broken_locked() const {
  if (broken_ != errc::ok) throw error(broken_, fmt::format("channel with {}: {}", name_, broken_text_));
}

errc endpoint::tell(head h, std::string_view text) noexcept {
  try {
    text = text.substr(0, text_bytes_max);
    h.bytes = static_cast<std::uint32_t>(text.size());
    std::vector<std::byte> message(sizeof h + text.size());
    std::memcpy(message.data(), &h, sizeof h);
    if (!text.empty()) std::memcpy(message.data() + sizeof h, text.data(), text.size());
    return line_->tell(message);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

// ---- sending ----

std::uint64_t endpoint::begin_graph(const graph_schema& schema, std::uint16_t flags) {
  const std::lock_guard lock(mutex_);
  throw_refusal_locked(graph_);
  throw_broken_locked();
  if (!descriptions_.contains(schema.hash)) descriptions_.emplace(schema.hash, schema.description);
  graph_flags_ = flags | flag_first;
  graph_hash_ = schema.hash;
  graph_open_ = true;
  ++graph_;
  if ((flags & flag_wanted) != 0) wanted_ = graph_;
  return graph_;
}

bool endpoint::may_send_locked(std::size_t bytes) const noexcept {
  if (sent_bytes_ == their_bytes_) return true;
  return sent_bytes_ - their_bytes_ + bytes <= terms_.window && sent_parts_ - their_parts_ < terms_.window_parts;
}

// Refusals are messages, of which only so many may wait.
bool endpoint::conduit_has_room_locked(std::size_t bytes) const noexcept {
  return !conduit_ || (graph_ - judged_ <= terms_.window_parts && their_parts_ >= aside_parts_ &&
                       conduit_->writer().has_room(bytes, ring_reserve));
}

std::span<char> endpoint::part_room(time_point deadline) {
  const std::size_t bytes = sizeof(head) + terms_.part;
  {
    std::unique_lock lock(mutex_);
    const auto ready = [&] {
      return broken_ != errc::ok || judged_ >= graph_ || (may_send_locked(bytes) && conduit_has_room_locked(bytes));
    };
    if (!ready()) take_answers_locked();
    if (!ready()) {
      ++stats_.waits_for_credit;
      if (!wait_answer(lock, deadline, false, ready))
        throw error(errc::timed_out,
                    fmt::format("channel with {}: the receiver has not read {} bytes in {} parts of what was sent, and "
                                "there is no credit for more",
                                name_, sent_bytes_ - their_bytes_, sent_parts_ - their_parts_));
    }
    throw_broken_locked();
    if (judged_ >= graph_) throw_refusal_locked(graph_);  // a verdict before the end is a refusal
  }
  room_ = conduit_ ? conduit_->writer().room(bytes, ring_reserve) : line_->room(bytes, deadline);
  if (room_.empty())
    throw error(errc::bad_frame, fmt::format("channel with {}: the other end answers what cannot be", name_));
  std::size_t skip = sizeof(head);
  if ((graph_flags_ & flag_first) != 0) {
    std::memcpy(room_.data() + skip, &graph_hash_, 8);
    skip += 8;
  }
  return {reinterpret_cast<char*>(room_.data()) + skip, bytes - skip};
}

void endpoint::send_part(std::size_t bytes, bool last, std::uint64_t objects, time_point deadline) {
  head h = make(kind::part, graph_);
  h.flags = graph_flags_;
  if ((h.flags & flag_first) != 0) bytes += 8;
  if (last) h.flags |= flag_last;
  h.bytes = static_cast<std::uint32_t>(bytes);
  h.b = last ? objects : 0;
  const bool may_be_cut = conduit_ && !conduit_->in_shared_memory();
  {
    // Counted before it goes: its credit may be here before send returns.
    const std::lock_guard lock(mutex_);
    throw_broken_locked();
    h.a = sequence_++;
    sent_bytes_ += sizeof h + bytes;
    ++sent_parts_;
    ++stats_.parts_sent;
    stats_.wire_bytes_sent += sizeof h + bytes;
    graph_flags_ &= static_cast<std::uint16_t>(~flag_first);
    if (last && !may_be_cut) graph_open_ = false;
  }
  std::memcpy(room_.data(), &h, sizeof h);
  if (conduit_) {
    const auto in_vain = [this] {
      const std::lock_guard lock(mutex_);
      return broken_ != errc::ok || judged_ >= graph_;
    };
    if (!conduit_->writer().send(sizeof h + bytes, deadline, in_vain)) give_up_part(last);
    if (!last || !may_be_cut) return;
    const std::lock_guard lock(mutex_);
    graph_open_ = false;
    return;
  }
  if (const errc e = line_->send(sizeof h + bytes, deadline); e != errc::ok) {
    broken(e, "a part could not be sent");
    const std::lock_guard lock(mutex_);
    throw_broken_locked();
  }
}

// The rest of a graph's last part goes aside, and the graph may still arrive. Of any other, abort_graph comes next.
void endpoint::give_up_part(bool last) {
  if (last) {
    {
      const std::lock_guard lock(mutex_);
      graph_open_ = false;
    }
    if (const errc e = send_aside({}); e != errc::ok) broken(e, "the rest of a part could not be sent");
  }
  std::unique_lock lock(mutex_);
  if (conduit_->writer().ended_at() != time_point::max()) {
    changed_.wait_for(lock, word_within, [&] { return broken_ != errc::ok; });
    break_locked(errc::disconnected, "the connection broke");
  }
  throw_broken_locked();
  if (judged_ >= graph_) throw_refusal_locked(graph_);
  throw error(errc::timed_out,
              fmt::format("channel with {}: the receiver does not read, and a part could not be sent whole", name_));
}

errc endpoint::send_aside(std::span<const std::byte> follows) noexcept {
  try {
    head h = make(kind::aside), want = make(kind::want);
    const std::span<const std::byte> rest = conduit_->writer().rest(follows.size(), h.a);
    h.bytes = static_cast<std::uint32_t>(rest.size() + follows.size());
    {
      const std::lock_guard lock(mutex_);
      aside_parts_ = sent_parts_;
      want.b = sent_parts_;
    }
    std::vector<std::byte> message(sizeof h);
    std::memcpy(message.data(), &h, sizeof h);
    message.insert(message.end(), rest.begin(), rest.end());
    message.insert(message.end(), follows.begin(), follows.end());
    if (const errc e = line_->tell(message); e != errc::ok) return e;
    return tell(want);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

void endpoint::abort_graph(errc why, const std::string& text) noexcept {
  head h = make(kind::part, graph_);
  {
    const std::lock_guard lock(mutex_);
    if (!graph_open_) return;
    graph_open_ = false;
    if ((graph_flags_ & flag_first) != 0) {  // nobody has heard of it
      wanted_ = std::min(wanted_, --graph_);
      return;
    }
    if (broken_ != errc::ok) return;
    h.a = sequence_++;
  }
  const std::string_view shown = std::string_view(text).substr(0, 2048);
  h.flags = graph_flags_ | flag_abort;
  h.status = static_cast<std::uint16_t>(why);
  h.bytes = static_cast<std::uint32_t>(shown.size());
  const time_point deadline = clock::now() + std::chrono::seconds(1);
  try {
    const std::size_t bytes = sizeof h + shown.size();
    const bool part_way = conduit_ && !conduit_->writer().has_room(bytes, 0) && !conduit_->in_shared_memory();
    std::vector<std::byte> after(part_way ? bytes : 0);
    const std::span<std::byte> room = part_way   ? std::span<std::byte>(after)
                                      : conduit_ ? conduit_->writer().room(bytes, 0)
                                                 : line_->room(bytes, deadline);
    if (room.empty()) return broken(errc::bad_frame, "the other end answers what cannot be");
    {
      const std::lock_guard lock(mutex_);
      sent_bytes_ += bytes;
      ++sent_parts_;
      ++stats_.parts_sent;
      stats_.wire_bytes_sent += bytes;
    }
    std::memcpy(room.data(), &h, sizeof h);
    if (!shown.empty()) std::memcpy(room.data() + sizeof h, shown.data(), shown.size());
    errc e = errc::ok;
    if (part_way)
      e = send_aside(after);
    else if (!conduit_)
      e = line_->send(bytes, deadline);
    else if (!conduit_->writer().send(bytes, clock::now(),
                                      [] { return true; }))  // without waiting: the rest goes aside
      e = send_aside({});
    if (e != errc::ok) broken(e, "the end of a graph could not be sent");
  } catch (const std::exception& e) {
    broken(errc::disconnected, e.what());
  }
}

void endpoint::throw_refusal_locked(std::uint64_t up_to) {
  if (refusals_.empty() || refusals_.front().graph > up_to) return;
  const refusal r = refusals_.front();
  refusals_.pop_front();
  throw error(r.code, fmt::format("channel with {}: the receiver refused graph {}: {}", name_, r.graph, r.text));
}

void endpoint::wait_verdict(std::uint64_t graph, time_point deadline) {
  want_verdict(graph);
  std::unique_lock lock(mutex_);
  if (!wait_answer(lock, deadline, true, [&] { return judged_ >= graph; }))
    throw error(errc::timed_out,
                fmt::format("channel with {}: the receiver has not taken graph {} yet", name_, judged_ + 1));
  throw_refusal_locked(graph);
  if (judged_ < graph) throw_broken_locked();
}

// ---- the end ----

void endpoint::close(duration linger) noexcept {
  const time_point deadline = clock::now() + linger;
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = graph_;
  }
  want_verdict(last);
  {
    std::unique_lock lock(mutex_);
    wait_answer(lock, deadline, true, [&] { return judged_ >= graph_; });
  }
  if (!line_) return;
  line_->drain(deadline);
  bool gone = false;
  {
    const std::lock_guard lock(mutex_);
    if (conduit_) conduit_->writer().finish();
    gone = broken_ != errc::ok;
  }
  if (!gone) tell(make(kind::bye));
  broken(errc::cancelled, "the channel is closed");
  line_->close();
}

channel_stats endpoint::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void endpoint::count_graph(bool sent, std::uint64_t objects) noexcept {
  const std::lock_guard lock(mutex_);
  ++(sent ? stats_.graphs_sent : stats_.graphs_received);
  (sent ? stats_.objects_sent : stats_.objects_received) += objects;
}

}  // namespace fm::detail
