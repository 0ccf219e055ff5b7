// Questions that an owner's thread asks and waits for: fetches by slot, tablets, regions that hints name,
// introspection. A call is repeated across reconnects until it has an answer, its deadline passes, or the agent session
// has ended; everything asked here may be asked twice without harm.
#include "base/base.h"
#include "base/replica_limits.h"
#include "base/text.h"
#include <algorithm>

#include "agent_session_impl.h"

namespace fm::remote::internal {

void agent_session_impl::saw_break(std::uint32_t g) noexcept {
  std::uint32_t seen = broken_.load(std::memory_order_relaxed);
  while (seen < g && !broken_.compare_exchange_weak(seen, g, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

// A slow answer is no silence: whoever was heard since is busy with something else. Nor is a short deadline.
bool agent_session_impl::is_silent_since(time_point since) const noexcept {
  const auto heard_at = time_point(duration(heard_at_.load(std::memory_order_relaxed)));
  return heard_at < since && clock::now() - since >= options_.session.operation_within / 2;
}

void agent_session_impl::unanswered(time_point since) noexcept {
  if (!is_silent_since(since)) return;
  const lock_type lock(mutex_);
  break_soon(resumed_.load(std::memory_order_relaxed));  // nothing was heard by its handshake, either
}

errc agent_session_impl::wait_until_usable(time_point deadline) noexcept {
  lock_type lock(mutex_);
  const bool in_time = changed_.wait_until(
      lock, deadline, [this] { return usable() || ended_.load(std::memory_order_relaxed) != ended::no; });
  switch (ended_.load(std::memory_order_relaxed)) {
    case ended::lost: return errc::agent_lost;
    case ended::left: return errc::agent_lost;
    case ended::closed: return errc::heap_closed;
    case ended::no: break;
  }
  return in_time ? errc::ok : errc::timed_out;  // it may have broken again by now, which whoever posts will see
}

agent_session_impl::reply agent_session_impl::call(fabric::lane on, message_type type, void* message, std::size_t bytes,
                                                   time_point deadline) noexcept {
  reply out;
  for (;;) {
    const std::uint32_t g = usable_generation();
    if (g == 0) {
      if ((out.code = wait_until_usable(deadline)) != errc::ok) return out;
      continue;
    }
    fabric::request r;
    make_message(r, on, message, bytes);
    const time_point posted = clock::now();
    r.deadline = std::min(deadline, operation_deadline());
    if (on == fabric::lane::fetch) be_patient(r);
    session().post(r);
    session().wait(r);
    if (r.status == errc::ok) {
      heard();
      const answer_view a = parse_answer(r.reply, type);
      out.code = a.code;
      out.body_at = a.code == errc::bad_frame ? r.reply.size() : sizeof(answer_head);
      out.bytes = std::move(r.reply);
      out.key = r.reply_key;
      out.session_generation = r.generation;  // of the connection that it came on
      if (a.code == errc::bad_frame) {
        discard_key(out.key);
        break_now(r.generation);
      }
      return out;
    }
    discard_key(r.reply_key);
    if (!unknown_outcome(r.status)) {
      out.code = r.status;
      return out;
    }
    if (r.status == errc::disconnected) saw_break(g);
    if (r.status == errc::timed_out) unanswered(posted);
    if (clock::now() >= deadline) {
      out.code = errc::timed_out;
      return out;
    }
  }
}

slot_answer agent_session_impl::fetch_slot(detail::slot_t slot, bool with_page, std::uint32_t bytes_max,
                                           time_point deadline) noexcept try {
  auto message = frame(message_type::fetch_slot,
                       fetch_slot_body{.slot = slot, .with_page = with_page ? 1u : 0u, .bytes_max = bytes_max});
  count_.fetches.fetch_add(1, std::memory_order_relaxed);
  reply r = call(fabric::lane::fetch, message_type::fetch_slot, &message, sizeof message, deadline);
  slot_answer out;
  out.status = r.code;
  if (r.code != errc::ok) return out;

  std::span<const std::byte> body = r.body();
  fetch_slot_answer a;
  const auto malformed = [&] {
    break_now(r.session_generation);
    return slot_answer{.status = errc::bad_frame};
  };
  if (!take(body, a) || a.bytes > bytes_max || (a.page_entries != 0 && (a.page_entries != 512 || !with_page)) ||
      body.size() != std::size_t{a.page_entries} * sizeof(detail::word_t) + a.bytes)
    return malformed();
  const bool stored = detail::word::is_remote(a.entry);
  if (!stored && ((a.entry != 0 && a.entry != detail::word::free) || a.bytes != 0)) return malformed();
  if (a.bytes != 0) {
    std::uint64_t header = 0;
    const std::span<const std::byte> copy = body.last(a.bytes);
    if (copy.size() < sizeof header) return malformed();
    std::memcpy(&header, copy.data(), sizeof header);
    if (detail::header::slot(header) != slot) return malformed();
    out.copy.assign(copy.begin(), copy.end());
  }
  out.entry = a.entry;
  out.page.resize(a.page_entries);
  if (a.page_entries != 0) std::memcpy(out.page.data(), body.data(), a.page_entries * sizeof(detail::word_t));
  return out;
} catch (const std::bad_alloc&) {
  return slot_answer{.status = errc::out_of_memory};
}

errc agent_session_impl::place_tablets(message_type type, std::uint32_t first, std::uint32_t count) noexcept {
  auto message = frame(type, grant_tablets_body{.first = first, .count = count});
  return call(fabric::lane::control, type, &message, sizeof message, operation_deadline()).code;
}

errc agent_session_impl::register_types() noexcept try {
  const time_point deadline = operation_deadline();
  for (;;) {
    const std::uint32_t known = types_known_.load(std::memory_order_acquire);
    errand_list one = types_errand(known);
    if (one.empty()) return errc::ok;
    errand& e = one.front();
    const errc code =
        call(fabric::lane::bulk, message_type::register_types, e.message.data(), e.message.size(), deadline).code;
    if (code != errc::ok) return code;
    const lock_type lock(mutex_);
    if (types_known_.load(std::memory_order_relaxed) < e.types_to)
      types_known_.store(e.types_to, std::memory_order_release);
    types_sent_ = std::max(types_sent_, e.types_to);
  }
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::take_region_answer(std::uint32_t region, std::span<const std::byte> body,
                                            region_answer& out) const noexcept {
  if (!take(body, out) || !body.empty() || out.region != region || out.generation == 0 ||
      out.generation >= detail::home_address::generation_limit || out.bytes != region_bytes_ ||
      out.readable_bytes > out.bytes || out.readable_bytes % 8 != 0 || out.sealed > 1)
    return errc::bad_frame;
  return errc::ok;
}

errc agent_session_impl::learn_region(std::uint32_t region) noexcept {
  if (region >= detail::home_address::region_limit) return errc::not_found;
  const time_point deadline = operation_deadline();
  {
    // One thread asks; the others wait for what it learns.
    lock_type lock(mutex_);
    bool waited = false;
    while (learning_.count(region) != 0) {
      waited = true;
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) return errc::timed_out;
    }
    if (retiring_.count(region) != 0) return errc::stale;
    if (const auto* r = book_.find(region)) {
      if (r->state == region_state::retiring) return errc::stale;
      if (r->state != region_state::foreign || r->sealed_by_agent || waited) return errc::ok;
    }
    try {
      learning_.insert(region);
    } catch (const std::bad_alloc&) {
      return errc::out_of_memory;
    }
  }
  const errc e = learn_once(region, deadline);
  const lock_type lock(mutex_);
  learning_.erase(region);
  changed_.notify_all();
  return e;
}

errc agent_session_impl::learn_once(std::uint32_t region, time_point deadline) noexcept {
  for (;;) {
    // Generation 0 asks for whatever generation the region is in.
    auto message = frame(message_type::region_info, region_name{.region = region, .generation = 0});
    reply r = call(fabric::lane::control, message_type::region_info, &message, sizeof message, deadline);
    if (r.code != errc::ok) {
      discard_key(r.key);
      return r.code;
    }
    region_answer info;
    if (take_region_answer(region, r.body(), info) != errc::ok) {
      discard_key(r.key);
      break_now(r.session_generation);
      return errc::bad_frame;
    }
    const errc attached = session().attach(region, info.generation, info.bytes, r.key);
    if (attached != errc::ok && !unknown_outcome(attached)) return attached;
    bool unwanted = false, is_short = false;
    if (attached == errc::ok) {
      const lock_type lock(mutex_);
      // A connection that broke meanwhile may have taken its memory along, and the next one does not know of this
      // region: ask again.
      if (usable_generation() == r.session_generation) {
        if (retiring_.count(region) != 0 && book_.find(region)) return errc::stale;  // attached until it is given back
        unwanted = retiring_.count(region) != 0;
        if (!unwanted) try {
            book_.add_foreign(info, session().direct(region));
            return errc::ok;
          } catch (const std::bad_alloc&) {
            is_short = true;
          }
      }
    }
    if (unwanted || is_short) {
      session().detach(region);  // nobody has read it: asked back while we were learning of it, or not in the book
      return is_short ? errc::out_of_memory : errc::stale;
    }
    if (clock::now() >= deadline) return errc::timed_out;
  }
}

errc agent_session_impl::read_entries(detail::slot_t first, std::uint32_t count, std::vector<detail::word_t>& out,
                                      time_point deadline) noexcept try {
  out.clear();
  out.reserve(count);
  while (out.size() < count) {
    const auto n = std::min(detail::limits::entries_read_at_once, count - static_cast<std::uint32_t>(out.size()));
    auto message =
        frame(message_type::read_entries, read_entries_body{.first_slot = first + out.size(), .count = n, .zero = 0});
    const reply r = call(fabric::lane::control, message_type::read_entries, &message, sizeof message,
                         std::min(deadline, operation_deadline()));
    if (r.code != errc::ok) return r.code;
    const std::span<const std::byte> body = r.body();
    if (body.size() != std::size_t{n} * sizeof(detail::word_t)) return errc::bad_frame;
    const std::size_t at = out.size();
    out.resize(at + n);
    std::memcpy(out.data() + at, body.data(), body.size());
  }
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::census(detail::slot_t first, std::uint32_t count, std::vector<std::uint64_t>& stored,
                                std::vector<census_record>& out) noexcept try {
  auto message = frame(message_type::census, census_body{.first_slot = first, .count = count, .zero = 0});
  const reply r = call(fabric::lane::control, message_type::census, &message, sizeof message, operation_deadline());
  if (r.code != errc::ok) return r.code;
  const std::span<const std::byte> body = r.body();
  const std::size_t bits = count / 64 * sizeof(std::uint64_t);
  if (body.size() < bits || (body.size() - bits) % sizeof(census_record) != 0) return errc::bad_frame;
  stored.resize(count / 64);
  std::memcpy(stored.data(), body.data(), bits);
  out.resize((body.size() - bits) / sizeof(census_record));
  if (!out.empty()) std::memcpy(out.data(), body.data() + bits, body.size() - bits);
  return errc::ok;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::audit(audit_answer& out, std::string& text) noexcept try {
  auto message = frame_empty(message_type::audit);
  const reply r = call(fabric::lane::control, message_type::audit, &message, sizeof message, operation_deadline());
  std::span<const std::byte> body = r.body();
  if (r.code == errc::ok && !take(body, out)) return errc::bad_frame;
  text = detail::readable_text(body, true);
  return r.code;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

errc agent_session_impl::statistics(std::string& json) noexcept try {
  auto message = frame_empty(message_type::statistics);
  const reply r = call(fabric::lane::control, message_type::statistics, &message, sizeof message, operation_deadline());
  const std::span<const std::byte> body = r.body();
  json.assign(reinterpret_cast<const char*>(body.data()), body.size());
  return r.code;
} catch (const std::bad_alloc&) {
  return errc::out_of_memory;
}

}  // namespace fm::remote::internal
