// The agent session's own thread: what nobody waits for. It keeps the lease, asks for regions ahead of the writers,
// seals finished regions and acknowledges retired ones. It starts the sender again after a reconnect, and breaks a
// connection on which the oldest batch has waited too long. It sleeps until it is woken or one of these is due.
#include "base/base.h"
#include "base/replica_limits.h"
#include <algorithm>

#include "agent_session_impl.h"

namespace fm::remote::internal {

void agent_session_impl::keep() noexcept {
  os::name_thread("fm-link");
  lock_type lock(mutex_);
  while (!stopping_) {
    keeper_work_ = false;
    if (clock::now() >= again_at_) again_at_ = time_point::max();
    finish_errands(lock);
    if (end_with_ != errc::ok && ended_.load(std::memory_order_relaxed) == ended::no) {
      const errc why = end_with_;
      lock.unlock();
      end(ended::lost, why);
      session().close();
      lock.lock();
    }
    watch_oldest(clock::now());
    watch_silence(lock, clock::now());
    if (const std::uint32_t g = std::exchange(drop_, 0); g != 0) {
      lock.unlock();
      break_now(g);
      lock.lock();
    }
    if (usable()) {
      if (!was_usable_) {
        was_usable_ = true;
        changed_.notify_all();
      }
      close_gaps();
      if (again_at_ == time_point::max()) {
        if (send_at_ < flights_.size() && !sending_) {
          lock.unlock();
          send_queued();
          lock.lock();
        }
        start_errands(lock);
      }
    }
    if (keeper_work_ || stopping_) continue;
    keeper_wake_.wait_until(lock, next_wake(clock::now()), [this] { return keeper_work_; });
  }
}

time_point agent_session_impl::next_wake(time_point now) const {
  if (ended_.load(std::memory_order_relaxed) != ended::no) return time_point::max();
  if (!usable()) {
    const bool handshake_done = resumed_.load(std::memory_order_relaxed) > broken_.load(std::memory_order_relaxed);
    return handshake_done ? now + detail::limits::until_up : time_point::max();
  }
  if (again_at_ != time_point::max()) return again_at_;
  time_point t = time_point(duration(heard_at_.load(std::memory_order_relaxed))) + renew_after_;
  if (renewing_)
    t = time_point::max();
  else if (renew_soon_)
    t = now;
  if (!opening_region_ && (want_region_ || book_.wants_region())) t = std::min(t, open_again_at_);
  if (!flights_.empty()) t = std::min(t, now + options_.session.operation_within);
  if (suspect_within() > duration{}) t = std::min(t, silence_at_);
  return t;
}

// A connection that stands but on which nothing moves is as good as broken; the handshake on the next one decides.
void agent_session_impl::watch_oldest(time_point now) {
  if (flights_.empty() || !usable()) return;
  const flight& f = *flights_.front();
  if (f.state != flight_state::posted || f.sent_generation != resumed_.load(std::memory_order_relaxed)) return;
  if (now - f.sent_at > options_.session.operation_within + std::chrono::seconds(1))
    drop_ = std::max(drop_, f.sent_generation);
}

// Whoever waits for nothing hears nothing: the agent is asked for a sign of life at each look. A look that comes late counts
// nothing, because then this process was not scheduled, and the agent may be as well as ever.
void agent_session_impl::watch_silence(lock_type& lock, time_point now) {
  if (suspect_within() <= duration{} || !usable()) {
    silent_looks_ = 0;
    return;
  }
  const duration between = suspect_within() / detail::limits::silent_looks;
  if (now < silence_at_) return;
  const bool in_time = now < silence_at_ + between;
  silence_at_ = now + between;
  const clock::rep heard_at = heard_at_.load(std::memory_order_relaxed);
  if (std::exchange(heard_before_, heard_at) != heard_at)
    silent_looks_ = 0;
  else if (in_time)
    ++silent_looks_;
  if (silent_looks_ == 0) return;
  if (!renewing_) {
    renewing_ = true;
    renewing_ = post_errand(lock, errand::kind::renew);
  }
  if (silent_looks_ <= detail::limits::silent_looks) return;
  silent_looks_ = 0;
  lock.unlock();
  const bool replaceable = is_replaceable();
  lock.lock();
  if (replaceable) drop_ = std::max(drop_, resumed_.load(std::memory_order_relaxed));
}

// ---- errands ----

void agent_session_impl::start_errands(lock_type& lock) {
  const time_point now = clock::now();
  if (!opening_region_ && (want_region_ || book_.wants_region()) && now >= open_again_at_) {
    want_region_ = false;
    opening_region_ = true;
    if (!post_errand(lock, errand::kind::open_region)) {
      want_region_ = true;
      opening_region_ = false;
    }
  }
  const auto has_room = [this] { return errands_.size() < detail::limits::errands_max; };
  const auto post_from = [&](std::vector<region_name>& names, errand::kind what) {
    while (has_room() && !names.empty()) {
      const region_name n = names.back();
      names.pop_back();
      if (post_errand(lock, what, n)) continue;
      names.push_back(n);
      return;
    }
  };
  post_from(to_seal_again_, errand::kind::seal_region);
  while (has_room()) {
    const auto* r = book_.next_to_seal();
    if (!r) break;
    const region_name n{.region = r->region, .generation = r->generation};
    if (post_errand(lock, errand::kind::seal_region, n)) continue;
    to_seal_again_.push_back(n);
    break;
  }
  post_from(to_acknowledge_, errand::kind::retired_region);
  const auto heard_at = time_point(duration(heard_at_.load(std::memory_order_relaxed)));
  if (!renewing_ && (renew_soon_ || now - heard_at >= renew_after_)) {
    renew_soon_ = false;
    renewing_ = true;
    renewing_ = post_errand(lock, errand::kind::renew);
  }
}

// Each gives its place to what waits for one.
void agent_session_impl::finish_errands(lock_type& lock) {
  for (;;) {
    const auto at = std::find_if(errands_.begin(), errands_.end(), [](const errand& e) { return e.done; });
    if (at == errands_.end()) return;
    errand_list one;
    one.splice(one.end(), errands_, at);
    finish_errand(lock, one.front());
  }
}

bool agent_session_impl::post_errand(lock_type& lock, errand::kind what, region_name about) try {
  errand_list one;
  errand& e = one.emplace_back();
  e.link = this;
  e.what = what;
  e.region = about.region;
  e.generation = about.generation;
  e.session_generation = usable_generation();
  e.posted_at = clock::now();
  const auto store = [&](const auto& message) {
    const auto* from = reinterpret_cast<const std::byte*>(&message);
    e.message.assign(from, from + sizeof message);
  };
  switch (what) {
    case errand::kind::open_region: store(frame_empty(message_type::open_region)); break;
    case errand::kind::renew: store(frame_empty(message_type::renew)); break;
    case errand::kind::seal_region: store(frame(message_type::seal_region, about)); break;
    case errand::kind::retired_region: store(frame(message_type::retired_region, about)); break;
    case errand::kind::register_types: break;  // posted by the sender
  }
  make_message(e.request, fabric::lane::control, e.message.data(), e.message.size());
  e.request.context = &e;
  e.request.on_done = errand_done;
  errands_.splice(errands_.end(), one);
  errands_most_ = std::max(errands_most_, errands_.size());
  lock.unlock();
  session().post(e.request);
  lock.lock();
  return true;
} catch (const std::bad_alloc&) {
  short_of_memory();
  return false;
}

void agent_session_impl::errand_done(fabric::request& r) noexcept {
  auto* e = static_cast<errand*>(r.context);
  agent_session_impl* l = e->link;
  const lock_type lock(l->mutex_);
  if (e->what == errand::kind::register_types && r.status == errc::ok &&
      parse_answer(r.reply, message_type::register_types).code == errc::ok)
    l->types_known_.store(std::max(l->types_known_.load(std::memory_order_relaxed), e->types_to),
                          std::memory_order_release);
  e->done = true;
  l->wake_keeper();
}

agent_session_impl::errand_list agent_session_impl::types_errand(std::uint32_t from) {
  errand_list one;
  const std::uint32_t all = detail::type_count();
  if (from >= all) return one;
  errand& e = one.emplace_back();
  e.link = this;
  e.what = errand::kind::register_types;
  e.request.context = &e;
  e.request.on_done = errand_done;
  std::vector<std::byte>& m = e.message;
  const auto append = [&m](const void* data, std::size_t bytes) {
    const auto* p = static_cast<const std::byte*>(data);
    m.insert(m.end(), p, p + bytes);
  };
  m.resize(sizeof(message_head) + sizeof(register_types_body));
  register_types_body body{.count = 0, .zero = 0};
  for (std::uint32_t id = from + 1; id <= all && m.size() < detail::limits::types_bytes_max; ++id) {
    const detail::type_descriptor* t = detail::find_type(id);
    FM_CHECK(t, "types 1..type_count() are all there");
    const type_record record{.id = id,
                             .kind = static_cast<std::uint32_t>(t->kind),
                             .layout_hash = t->layout_hash,
                             .bytes = t->bytes,
                             .ref_count = static_cast<std::uint32_t>(t->ref_offsets.size()),
                             .name_bytes = static_cast<std::uint32_t>(t->name.size()),
                             .zero = 0};
    append(&record, sizeof record);
    const std::size_t tail = m.size();
    append(t->ref_offsets.data(), t->ref_offsets.size() * sizeof(std::uint32_t));
    append(t->name.data(), t->name.size());
    m.resize(tail + detail::round_up(m.size() - tail, 8));
    e.types_to = id;
    ++body.count;
  }
  const message_head head{.type = static_cast<std::uint16_t>(message_type::register_types),
                          .zero = 0,
                          .body_bytes = static_cast<std::uint32_t>(m.size() - sizeof(message_head))};
  std::memcpy(m.data(), &head, sizeof head);
  std::memcpy(m.data() + sizeof head, &body, sizeof body);
  return one;
}

void agent_session_impl::finish_errand(lock_type& lock, errand& e) {
  fabric::request& r = e.request;
  constexpr message_type types[] = {message_type::open_region, message_type::seal_region, message_type::retired_region,
                                    message_type::renew, message_type::register_types};
  answer_view a;
  a.code = r.status;
  if (r.status == errc::ok) {
    heard();
    a = parse_answer(r.reply, types[static_cast<int>(e.what)]);
    if (a.code == errc::bad_frame) break_soon(r.generation);
  } else if (r.status == errc::disconnected) {
    saw_break(e.session_generation);
  } else if (r.status == errc::timed_out && is_silent_since(e.posted_at)) {
    break_soon(r.generation);
  }
  const bool again = r.status != errc::ok && is_to_be_repeated(r.status);
  if (r.status == errc::out_of_memory) short_of_memory();
  const region_name name{.region = e.region, .generation = e.generation};
  switch (e.what) {
    case errand::kind::open_region:
      region_opened(lock, e, a);
      opening_region_ = false;
      if (a.code != errc::ok && waiting_for_region_ != 0) want_region_ = true;
      changed_.notify_all();
      break;
    case errand::kind::seal_region:
      if (again)
        to_seal_again_.push_back(name);
      else  // refused is final too: asking again would change nothing
        book_.sealed(e.region, e.generation, a.code == errc::ok);
      break;
    case errand::kind::retired_region:
      if (again) {
        to_acknowledge_.push_back(name);
        break;
      }
      if (const auto it = retiring_.find(e.region); it != retiring_.end() && it->second == e.generation)
        retiring_.erase(it);
      owed_ -= owed_ != 0 ? 1 : 0;
      left_.store(left_after_retirement(a), std::memory_order_relaxed);
      count_.retired.fetch_add(1, std::memory_order_release);
      open_again_at_ = {};  // there is room again
      open_delay_ = {};
      break;
    case errand::kind::renew:
      renewing_ = false;
      if (renew_answer told; a.code == errc::ok && take(a.body, told))
        busy_permille_.store(told.busy_permille, std::memory_order_relaxed);
      break;
    case errand::kind::register_types:
      types_refused_ = a.code == errc::ok || again ? errc::ok : a.code;
      if (a.code != errc::ok) types_sent_ = types_known_.load(std::memory_order_relaxed);
      break;
  }
  discard_key(r.reply_key);
}

// The region that was opened is room, too. An older agent does not tell.
std::uint64_t agent_session_impl::left_after(const region_answer& a) const noexcept {
  if (a.left != 0) return a.left * region_bytes_;
  const std::uint64_t before = left_.load(std::memory_order_relaxed);
  return std::max(before, 2 * region_bytes_) - region_bytes_;
}

// An older agent does not tell what its evacuation has taken meanwhile: then the quota is all that is certain.
std::uint64_t agent_session_impl::left_after_retirement(const answer_view& a) const noexcept {
  retired_answer told{};
  if (a.code == errc::ok && a.body.size() == sizeof told) std::memcpy(&told, a.body.data(), sizeof told);
  if (told.left != 0) return (told.left - 1 + (book_.has_open() ? 1 : 0)) * region_bytes_;
  return std::min(left_.load(std::memory_order_relaxed) + region_bytes_, quota_bytes_);
}

void agent_session_impl::region_opened(lock_type& lock, errand& e, const answer_view& a) {
  errc code = a.code;
  region_answer info{};
  std::span<const std::byte> body = a.body;
  if (code == errc::ok) {
    region_answer probe;
    code = body.size() == sizeof probe ? errc::ok : errc::bad_frame;
    if (code == errc::ok) {
      std::memcpy(&probe, body.data(), sizeof probe);
      code = probe.region < detail::home_address::region_limit ? take_region_answer(probe.region, body, info)
                                                               : errc::bad_frame;
    }
    if (code == errc::ok && (info.sealed != 0 || info.readable_bytes != 0)) code = errc::bad_frame;
  }
  if (code == errc::ok) {
    // An answer of a connection that is gone: the agent takes back what was never used. The next one asks afresh. Of a
    // connection that stands, the next handshake finds the region in the book.
    if (usable_generation() != e.session_generation) return;
    // What the owner was asked to give back is the agent's again when that was acknowledged: then it is not in the book.
    // In the generation that was asked back it never is.
    const auto asked = retiring_.find(info.region);
    const bool is_owed =
        asked != retiring_.end() && (asked->second == info.generation || book_.find(info.region) != nullptr);
    try {
      if (to_seal_again_.capacity() <= book_.size()) to_seal_again_.reserve(2 * book_.size() + 8);
      if (is_owed || !book_.add_opening(info.region, info.generation)) code = errc::bad_frame;
    } catch (const std::bad_alloc&) {
      code = errc::out_of_memory;
    }
  }
  if (code == errc::ok) {
    lock.unlock();
    code = session().attach(info.region, info.generation, info.bytes, std::exchange(e.request.reply_key, {}));
    std::byte* memory = code == errc::ok ? session().direct(info.region) : nullptr;
    // Regions are opened ahead of the writers, so the page faults are taken here instead of in their batches.
    if (memory) session().touch_ahead(info.region, info.bytes);
    lock.lock();
    // A connection that broke meanwhile may have taken its memory along, and the next handshake attaches it.
    if (code == errc::ok && usable_generation() != e.session_generation) return;
    if (code == errc::ok) {
      book_.opened(info.region, info.generation, memory);
      left_.store(left_after(info), std::memory_order_relaxed);
      open_error_ = errc::ok;
      open_delay_ = {};
      open_again_at_ = {};
      return;
    }
    if (unknown_outcome(code)) return;  // the next handshake attaches it
    book_.gone(info.region, info.generation);
  }
  if (unknown_outcome(code) || e.request.status == errc::out_of_memory) return;
  // Without memory here, the agent takes the region back with the next handshake; it has room all the same.
  const bool is_short_here = code == errc::out_of_memory && a.code == errc::ok;
  if (code == errc::bad_frame || is_short_here) break_soon(e.request.generation);
  if (is_short_here) return;
  if (options_.on_news && open_error_ != code && (code == errc::agent_full || code == errc::quota_exceeded)) {
    lock.unlock();
    options_.on_news(options_.context, agent_news::full);
    lock.lock();
  }
  open_error_ = code;
  left_.store(0, std::memory_order_relaxed);
  open_delay_ = std::clamp(open_delay_ * 2, detail::limits::open_delay_min, detail::limits::open_delay_max);
  open_again_at_ = clock::now() + open_delay_;
}

}  // namespace fm::remote::internal
