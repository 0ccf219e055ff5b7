// Sending parts within the credit, giving graphs up, and hearing verdicts; see sender.h.
#include "sender.h"
#include "base/channel_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "channel/path/ring.h"

namespace fm::detail {

using namespace channel_wire;

// ---- what the other end says ----

bool sender::none_sent_locked() const noexcept { return graph_open_ && (graph_flags_ & flag_first) != 0; }

errc sender::credit_arrived_locked(const head& h) noexcept {
  if (!credit_.is_possible(h.a, h.b)) return errc::bad_frame;
  credit_.consumed(h.a, h.b);
  return errc::ok;
}

errc sender::verdict_arrived_locked(const head& h, std::span<const std::byte> text) {
  const bool is_next = s_.path->carries_answers() ? h.number > judged_ && static_cast<errc>(h.status) != errc::ok
                                                  : h.number == judged_ + 1;
  if (!is_next || h.number > graph_) return errc::bad_frame;
  if (h.number == graph_ && none_sent_locked()) return errc::bad_frame;
  judged_ = h.number;
  if (static_cast<errc>(h.status) != errc::ok) {
    ++refused_;
    if (refusals_.size() >= channel_limits::refusals_max) refusals_.pop_front();
    refusals_.push_back({h.number, static_cast<errc>(h.status), text_of(text)});
  }
  return credit_arrived_locked(h);
}

/// From shared memory totals are never older than messages.
part_answers sender::take_answers_locked() noexcept {
  byte_path_writer& out = s_.path->writer();
  const part_answers a = out.answers();
  if (out.broken() || !credit_.is_possible(a.bytes, a.parts) || (a.refused < refused_ && s_.path->in_shared_memory()) ||
      a.judged > graph_ - (none_sent_locked() ? 1 : 0)) {
    s_.break_rules_locked("the other end answers what cannot be");
    return a;
  }
  const bool more_judged = a.judged > judged_;
  const bool progress = credit_.consumed(a.bytes, a.parts) || more_judged;
  if (a.refused <= refused_) judged_ = std::max(judged_, a.judged);  // else a refusal among them is on its way
  // What was read from a connection does not wake who waits for it there.
  if (progress && answer_waiters_ != 0 && s_.path->has_own_connections()) out.kick();
  return a;
}

std::string sender::description_locked(std::uint64_t hash) const {
  const auto known = descriptions_.find(hash);
  return known == descriptions_.end() ? std::string() : known->second;
}

// ---- waiting for it ----

template <class Ready>
bool sender::wait_answer(std::unique_lock<std::mutex>& lock, time_point deadline, bool late, const Ready& ready) {
  byte_path_writer& out = s_.path->writer();
  late = late && s_.path->has_own_connections();
  for (;;) {
    const std::uint32_t seen = out.watch();
    const part_answers before = take_answers_locked();
    if (ready()) return true;
    time_point until = deadline;
    const time_point ended = out.ended_at();
    if (s_.broken != errc::ok) {
      // A goodbye comes by the session, and may overtake the answers.
      until = std::min(deadline, s_.broken_at + channel_limits::word_within);
      if (!late || s_.broken != errc::disconnected || ended != time_point::max() || clock::now() >= until) return true;
    } else if (ended != time_point::max()) {
      until = std::min(deadline, ended + channel_limits::word_within);
      if (clock::now() >= ended + channel_limits::word_within) {
        s_.break_locked(errc::disconnected, "the connection broke");
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

void sender::want_verdict(std::uint64_t graph) noexcept {
  head h = make(kind::want);
  {
    const std::lock_guard lock(s_.mutex);
    if (!s_.path->has_own_connections() || judged_ >= graph || wanted_ >= graph || s_.broken != errc::ok) return;
    wanted_ = h.a = graph;
  }
  if (const errc e = s_.tell(h); e != errc::ok) s_.break_channel(e, "a verdict could not be asked for");
}

void sender::throw_refusal_locked(std::uint64_t up_to) {
  if (refusals_.empty() || refusals_.front().graph > up_to) return;
  const refusal r = refusals_.front();
  refusals_.pop_front();
  throw error(r.code, fmt::format("channel with {}: the receiver refused graph {}: {}", s_.name, r.graph, r.text));
}

void sender::throw_end_locked() {
  if (judged_ >= graph_ || s_.broken != errc::ok) throw_refusal_locked(graph_);  // a verdict before the end is one
  s_.throw_broken_locked();
}

void sender::wait_verdict(std::uint64_t graph, time_point deadline) {
  want_verdict(graph);
  std::unique_lock lock(s_.mutex);
  if (!wait_answer(lock, deadline, true, [&] { return judged_ >= graph; }))
    throw error(errc::timed_out,
                fmt::format("channel with {}: the receiver has not taken graph {} yet", s_.name, judged_ + 1));
  throw_refusal_locked(graph);
  if (judged_ < graph) s_.throw_broken_locked();
}

void sender::linger(time_point deadline) noexcept {
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(s_.mutex);
    last = graph_;
  }
  want_verdict(last);
  std::unique_lock lock(s_.mutex);
  wait_answer(lock, deadline, true, [&] { return judged_ >= graph_; });
}

// ---- sending ----

std::uint64_t sender::begin_graph(const graph_schema& schema, std::uint16_t flags) {
  const std::lock_guard lock(s_.mutex);
  throw_refusal_locked(graph_);
  s_.throw_broken_locked();
  if (!descriptions_.contains(schema.hash)) descriptions_.emplace(schema.hash, schema.description);
  graph_flags_ = flags | flag_first;
  graph_hash_ = schema.hash;
  graph_open_ = true;
  ++graph_;
  if ((flags & flag_wanted) != 0) wanted_ = graph_;
  return graph_;
}

// Where refusals alone are messages, only so many may wait.
bool sender::path_has_room_locked(std::size_t bytes) const noexcept {
  return (!s_.path->carries_answers() || graph_ - judged_ <= s_.terms.window_parts) &&
         credit_.consumed_parts() >= aside_parts_ && s_.path->writer().has_room(bytes, ring_reserve);
}

std::span<char> sender::part_room(time_point deadline) {
  const std::size_t bytes = sizeof(head) + s_.terms.part;
  {
    std::unique_lock lock(s_.mutex);
    const auto ready = [&] {
      return s_.broken != errc::ok || judged_ >= graph_ || (credit_.covers(bytes) && path_has_room_locked(bytes));
    };
    if (!ready()) take_answers_locked();
    if (!ready()) {
      ++s_.stats.waits_for_credit;
      if (!wait_answer(lock, deadline, false, ready))
        throw error(errc::timed_out,
                    fmt::format("channel with {}: the receiver has not read {} bytes in {} parts of what was sent, and "
                                "there is no credit for more",
                                s_.name, credit_.under_way_bytes(), credit_.under_way_parts()));
    }
    throw_end_locked();
  }
  lent_ = 0;
  try {
    room_ = s_.path->writer().room(bytes, ring_reserve);
  } catch (const error&) {  // an earlier part was lost with the connection
    const std::lock_guard lock(s_.mutex);
    throw_end_locked();
    throw;
  }
  if (room_.empty())
    throw error(errc::bad_frame, fmt::format("channel with {}: the other end answers what cannot be", s_.name));
  std::size_t skip = sizeof(head);
  if ((graph_flags_ & flag_first) != 0) {
    std::memcpy(room_.data() + skip, &graph_hash_, 8);
    skip += 8;
  }
  return {reinterpret_cast<char*>(room_.data()) + skip, bytes - skip};
}

std::uint64_t sender::lends_from() const noexcept {
  if (!s_.path->writer().takes_lent()) return ~std::uint64_t{0};
  return std::min<std::uint64_t>(channel_limits::lent_from, s_.terms.part);
}

bool sender::lend(std::size_t used, std::span<const char> bytes) noexcept {
  const std::size_t skip = sizeof(head) + ((graph_flags_ & flag_first) != 0 ? 8 : 0);
  if (!s_.path->writer().lend(skip + used, std::as_bytes(bytes))) return false;
  lent_ += bytes.size();
  return true;
}

void sender::count_part_locked(std::size_t bytes) noexcept {
  credit_.part_sent(bytes);
  ++s_.stats.parts_sent;
  s_.stats.wire_bytes_sent += bytes;
}

void sender::send_part(std::size_t bytes, bool last, std::uint64_t objects, time_point deadline) {
  head h = make(kind::part, graph_);
  h.flags = graph_flags_;
  if ((h.flags & flag_first) != 0) bytes += 8;
  if (last) h.flags |= flag_last;
  h.bytes = static_cast<std::uint32_t>(bytes + lent_);
  h.b = last ? objects : 0;
  const bool may_be_cut = s_.path->has_own_connections();
  {
    // Counted before it goes: its credit may be here before send returns.
    const std::lock_guard lock(s_.mutex);
    throw_end_locked();
    h.a = sequence_++;
    count_part_locked(sizeof h + bytes + lent_);
    s_.stats.in_place_bytes_sent += lent_;
    s_.stats.copied_bytes_sent += bytes;
    graph_flags_ &= static_cast<std::uint16_t>(~flag_first);
    if (last && !may_be_cut) graph_open_ = false;
  }
  std::memcpy(room_.data(), &h, sizeof h);
  const auto in_vain = [this] {
    const std::lock_guard lock(s_.mutex);
    return s_.broken != errc::ok || judged_ >= graph_;
  };
  byte_path_writer& out = s_.path->writer();
  if (!out.send(sizeof h + bytes, deadline, in_vain)) {
    if (out.failure() == errc::ok) give_up_part(last);
    s_.break_channel(out.failure(), "a part could not be sent");
    const std::lock_guard lock(s_.mutex);
    throw_end_locked();
  }
  if (!last || !may_be_cut) return;
  const std::lock_guard lock(s_.mutex);
  graph_open_ = false;
}

// The rest of a graph's last part goes aside, and the graph may still arrive. Of any other, abort_graph comes next.
void sender::give_up_part(bool last) {
  if (last) {
    {
      const std::lock_guard lock(s_.mutex);
      graph_open_ = false;
    }
    if (const errc e = send_aside({}); e != errc::ok) s_.break_channel(e, "the rest of a part could not be sent");
  }
  std::unique_lock lock(s_.mutex);
  if (s_.path->writer().ended_at() != time_point::max()) {
    s_.changed.wait_for(lock, channel_limits::word_within, [&] { return s_.broken != errc::ok || judged_ >= graph_; });
    s_.break_locked(errc::disconnected, "the connection broke");
  }
  throw_end_locked();
  throw error(errc::timed_out,
              fmt::format("channel with {}: the receiver does not read, and a part could not be sent whole", s_.name));
}

errc sender::send_aside(std::span<const std::byte> follows) noexcept {
  try {
    head h = make(kind::aside), want = make(kind::want);
    const std::span<const std::byte> rest = s_.path->writer().rest(follows.size(), h.a);
    h.bytes = static_cast<std::uint32_t>(rest.size() + follows.size());
    {
      const std::lock_guard lock(s_.mutex);
      aside_parts_ = want.b = credit_.sent_parts();
    }
    std::vector<std::byte> message(sizeof h);
    std::memcpy(message.data(), &h, sizeof h);
    message.insert(message.end(), rest.begin(), rest.end());
    message.insert(message.end(), follows.begin(), follows.end());
    if (const errc e = s_.transport->tell(message); e != errc::ok) return e;
    return s_.tell(want);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

void sender::abort_graph(errc why, const std::string& text) noexcept {
  head h = make(kind::part, graph_);
  {
    const std::lock_guard lock(s_.mutex);
    if (!graph_open_) return;
    graph_open_ = false;
    if ((graph_flags_ & flag_first) != 0) {  // nobody has heard of it
      wanted_ = std::min(wanted_, --graph_);
      return;
    }
    if (s_.broken != errc::ok) return;
    h.a = sequence_++;
  }
  const std::string_view shown = std::string_view(text).substr(0, channel_limits::reason_bytes_max);
  h.flags = graph_flags_ | flag_abort;
  h.status = static_cast<std::uint16_t>(why);
  h.bytes = static_cast<std::uint32_t>(shown.size());
  const time_point deadline = clock::now() + channel_limits::abort_within;
  byte_path_writer& out = s_.path->writer();
  const bool may_be_cut = s_.path->has_own_connections();
  try {
    const std::size_t bytes = sizeof h + shown.size();
    const bool part_way = may_be_cut && !out.has_room(bytes, 0);
    std::vector<std::byte> after(part_way ? bytes : 0);
    const std::span<std::byte> room = part_way ? std::span<std::byte>(after) : out.room(bytes, 0);
    if (room.empty()) return s_.break_channel(errc::bad_frame, "the other end answers what cannot be");
    {
      const std::lock_guard lock(s_.mutex);
      count_part_locked(bytes);
    }
    std::memcpy(room.data(), &h, sizeof h);
    if (!shown.empty()) std::memcpy(room.data() + sizeof h, shown.data(), shown.size());
    errc e = errc::ok;
    if (part_way)
      e = send_aside(after);
    else if (!out.send(bytes, may_be_cut ? clock::now() : deadline, [] { return true; }))  // a rest goes aside
      e = out.failure() == errc::ok ? send_aside({}) : out.failure();
    if (e != errc::ok) s_.break_channel(e, "the end of a graph could not be sent");
  } catch (const std::exception& e) {
    s_.break_channel(errc::disconnected, e.what());
  }
}

}  // namespace fm::detail
