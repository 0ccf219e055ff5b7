// The events of the transport's session: connected (the handshake, and taking up where the last connection ended),
// disconnected, lost, and the agent's notices.
// Invariant owned here: after a reconnect, exactly the batches that the agent has not applied are sent again.
// Everything here runs on the session's thread, one call at a time.
#include "base/base.h"
#include "base/log.h"
#include <algorithm>

#include "agent_session_impl.h"

namespace fm::remote::internal {

errc agent_session_impl::refused_to_open(bool resume, errc code, const std::string& why) {
  // Whatever the reason, asking again gives the same answer. On resume it means that the heap is not there any more.
  if (!resume) {
    refused_ = code;
    refusal_ = why;
    return errc::refused;
  }
  log::warn("{}: heap {} cannot be resumed: {}: {}", url_, options_.heap_name, to_string(code), why);
  return errc::agent_lost;
}

errc agent_session_impl::ask_to_open(fabric::session& s, bool resume, message_type type, void* message,
                                     std::size_t bytes, std::vector<std::byte>& body) {
  fabric::request r;
  make_message(r, fabric::lane::control, message, bytes);
  s.post(r);
  s.wait(r);
  if (r.status != errc::ok) return r.status;
  const answer_view a = parse_answer(r.reply, type);
  if (a.code == errc::timed_out) return a.code;  // the agent is not through with the previous connection
  if (a.code != errc::ok)
    return refused_to_open(resume, a.code, a.code == errc::bad_frame ? "the answer is malformed" : a.text());
  body.assign(a.body.begin(), a.body.end());
  return errc::ok;
}

errc agent_session_impl::open_heap(fabric::session& s, bool resume) {
  if (!resume && options_.attaches) return attach_heap(s);
  open_heap_body body{};
  body.major = protocol_major;
  body.minor = protocol_minor;
  std::copy(std::begin(heap_id_), std::end(heap_id_), std::begin(body.heap_id));
  body.incarnation = options_.incarnation;
  body.quota_bytes = options_.quota_bytes;
  body.lease_ms = options_.lease_ms;
  body.resume = resume;
  options_.heap_name.copy(body.name, sizeof body.name - 1);
  auto message = frame(message_type::open_heap, body);
  std::vector<std::byte> answer;
  if (const errc e = ask_to_open(s, resume, message_type::open_heap, &message, sizeof message, answer); e != errc::ok)
    return e;
  open_heap_answer a;
  std::span<const std::byte> rest = answer;
  if (!take(rest, a) || !rest.empty() || (!resume && a.applied_seq != 0))
    return refused_to_open(resume, errc::bad_frame, "the answer to open_heap is out of range");
  return opened(resume, a);
}

errc agent_session_impl::opened(bool resume, const open_heap_answer& a) {
  if (!detail::is_power_of_two(a.region_bytes) || a.region_bytes < 64_KiB ||
      a.region_bytes > detail::home_address::offset_limit)
    return refused_to_open(resume, errc::bad_frame, "the agent's regions have a size that is out of range");
  const lock_type lock(mutex_);
  if (!resume) {
    region_bytes_ = a.region_bytes;
    minor_ = a.minor;
    zone_ = a.zone;
    quota_bytes_ = a.quota_bytes;
    left_.store(quota_bytes_, std::memory_order_relaxed);
    book_.configure(static_cast<std::uint32_t>(region_bytes_), options_.batch_bytes);
    next_seq_ = a.applied_seq + 1;
    told_ = a.applied_seq;
    opened_ = true;
  } else if (a.region_bytes != region_bytes_ || a.applied_seq < applied_ || a.applied_seq >= next_seq_) {
    // Another agent, or one that has forgotten what it acknowledged.
    log::warn(
        "{}: heap {} cannot be resumed: batch {} was acknowledged and {} is the last sent, the agent has applied {}",
        url_, options_.heap_name, applied_, next_seq_ - 1, a.applied_seq);
    return errc::agent_lost;
  }
  applied_ = a.applied_seq;
  // Four tries before the lease ends; the floor keeps a tiny lease from becoming a busy loop.
  renew_after_ = std::max<duration>(std::chrono::milliseconds(a.lease_ms) / 4, std::chrono::milliseconds(5));
  heard();
  return errc::ok;
}

errc agent_session_impl::connected(fabric::session& s, std::uint32_t g) {
  session_.store(&s, std::memory_order_release);
  const bool resume = opened_;
  if (const errc e = open_heap(s, resume); e != errc::ok) return e;
  if (resume) {
    if (const errc e = reattach(s); e != errc::ok) return e;
    count_.reconnects.fetch_add(1, std::memory_order_relaxed);
  }
  {
    const lock_type lock(mutex_);
    types_sent_ = types_known_.load(std::memory_order_relaxed);
    rewind();
    resumed_.store(g, std::memory_order_release);
    was_usable_ = false;
    wake_keeper();
  }
  deliver();  // what had been applied before the connection broke
  if (resume && options_.on_news) options_.on_news(options_.context, agent_news::back);
  return errc::ok;
}

namespace {
struct question {
  framed<region_name> message;
  fabric::request request;
};
}  // namespace

// Asks for all known regions again, some at a time, and attaches them with the fresh keys.
errc agent_session_impl::reattach(fabric::session& s) {
  std::vector<region_name> names;
  {
    const lock_type lock(mutex_);
    for (const auto& [n, r] : book_.all())
      if (r.state != region_state::retiring) names.push_back({.region = r.region, .generation = r.generation});
  }
  constexpr std::size_t at_once = 32;
  for (std::size_t from = 0; from < names.size(); from += at_once) {
    const std::size_t n = std::min(at_once, names.size() - from);
    const auto questions = std::make_unique<question[]>(n);
    for (std::size_t i = 0; i < n; ++i) {
      questions[i].message = frame(message_type::region_info, names[from + i]);
      make_message(questions[i].request, fabric::lane::control, &questions[i].message, sizeof questions[i].message);
      s.post(questions[i].request);
    }
    errc failed = errc::ok;
    for (std::size_t i = 0; i < n; ++i) {
      fabric::request& r = questions[i].request;
      const region_name name = names[from + i];
      s.wait(r);
      if (r.status != errc::ok) {
        failed = r.status;
        continue;
      }
      const answer_view a = parse_answer(r.reply, message_type::region_info);
      region_answer info{};
      errc e = a.code == errc::ok ? take_region_answer(name.region, a.body, info) : a.code;
      if (e == errc::ok && info.generation != name.generation) e = errc::stale;
      if (e != errc::ok)
        discard_key(r.reply_key);
      else
        e = s.attach(name.region, name.generation, info.bytes, r.reply_key);
      // Whatever else an agent says, it has the region, and says more next time.
      if (e != errc::ok && e != errc::not_found && e != errc::stale) {
        failed = e;
        continue;
      }
      const lock_type lock(mutex_);
      if (e != errc::ok)
        book_.gone(name.region, name.generation);
      else
        book_.attached_again(info, s.direct(name.region));
    }
    if (failed != errc::ok) return failed;
    s.progressed();  // a heap of many regions takes longer than the deadline of one attempt
  }
  return errc::ok;
}

void agent_session_impl::disconnected(fabric::session&, std::uint32_t g, errc) noexcept {
  {
    const lock_type lock(mutex_);
    broken_.store(std::max(broken_.load(std::memory_order_relaxed), g), std::memory_order_release);
    was_usable_ = false;
    wake_keeper();
  }
  if (options_.on_news) options_.on_news(options_.context, agent_news::silent);
}

// Nobody takes what is in its memory for an answer from here on: reads look whether the session is lost when they have
// copied, and batches that are built there go nowhere.
void agent_session_impl::lost(fabric::session& s, errc why) noexcept {
  end(ended::lost, why);
  s.forget_memory();
}

bool agent_session_impl::take_drain(const message_head& head, std::span<const std::byte> body) noexcept {
  drain_notice n;
  if (head.type != static_cast<std::uint16_t>(message_type::drain) || head.zero != 0 || head.body_bytes != sizeof n ||
      !take(body, n) || !body.empty() || n.drains > 1 || n.zero != 0)
    return false;
  if (set_asks_to_be_left(n.drains == 1) && options_.on_news)
    options_.on_news(options_.context, n.drains == 1 ? agent_news::leaving : agent_news::staying);
  return true;
}

void agent_session_impl::notice(fabric::session& s, std::span<const std::byte> payload) noexcept {
  message_head head;
  region_name name;
  std::span<const std::byte> rest = payload;
  if (take(rest, head) && head.type == static_cast<std::uint16_t>(message_type::traced) && head.zero == 0) {
    cycle_name which;
    if (head.body_bytes == sizeof which && take(rest, which) && rest.empty()) {
      if (options_.on_traced) options_.on_traced(options_.context, which.cycle);
      return;
    }
  }
  if (rest = payload; take(rest, head) && take_drain(head, rest)) return;
  if (!take(payload, head) || head.type != static_cast<std::uint16_t>(message_type::retire_region) ||
      head.body_bytes != sizeof name || !take(payload, name) || !payload.empty() ||
      name.region >= detail::home_address::region_limit || name.generation == 0 ||
      name.generation >= detail::home_address::generation_limit) {
    const lock_type lock(mutex_);
    break_soon(s.generation());  // not our protocol
    return;
  }
  {
    const lock_type lock(mutex_);
    const auto asked = retiring_.find(name.region);
    if (asked != retiring_.end() && asked->second == name.generation) return;
    // More than the heap can have, or a region that it never heard of in two generations.
    const std::uint64_t most =
        std::clamp<std::uint64_t>(quota_bytes_ / region_bytes_, 1, detail::home_address::region_limit);
    const bool is_unheard = asked != retiring_.end() && asked->second != 0 && book_.find(name.region) == nullptr;
    if (is_unheard || owed_ >= detail::limits::retiring_quotas * most) {
      break_soon(s.generation());
      return;
    }
    // It is told again on the next connection.
    try {
      if (to_acknowledge_.capacity() <= owed_) to_acknowledge_.reserve(2 * owed_ + 8);
      retiring_.try_emplace(name.region, 0);
    } catch (const std::bad_alloc&) {
      break_soon(s.generation());
      return;
    }
    if (!book_.retire(name.region, name.generation)) {
      if (retiring_.at(name.region) == 0) retiring_.erase(name.region);
      return;
    }
    retiring_.at(name.region) = name.generation;
    ++owed_;
  }
  if (!options_.on_retire || options_.on_retire(options_.context, name.region, name.generation)) return;
  const lock_type lock(mutex_);
  retiring_.erase(name.region);
  --owed_;
  break_soon(s.generation());
}

void agent_session_impl::retired(std::uint32_t region, std::uint32_t generation) noexcept {
  bool attached = false;
  {
    const lock_type lock(mutex_);
    if (const auto* r = book_.find(region); r && r->generation == generation) {
      FM_CHECK(r->state == region_state::retiring, "only a region that the agent wants back is given back");
      attached = true;
    }
  }
  // Before the agent hears of it, and while the number cannot have come back to us in its next generation.
  if (attached) session().detach(region);
  const lock_type lock(mutex_);
  book_.forget(region, generation);
  to_acknowledge_.push_back({.region = region, .generation = generation});
  wake_keeper();
}

}  // namespace fm::remote::internal
