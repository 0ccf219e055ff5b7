// Opening and closing, calls that are repeated across reconnects, and what the session reports; see agent_client.h for
// the invariants. fm::pool calls it from any thread; the session calls back from its own.
#include "agent_client.h"
#include "base/pool_limits.h"

#include "base/log.h"
#include <ctime>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace fm::pool_detail {

using protocol::message_type;

void discard(fabric::memory_key& key) noexcept {
  if (key.fd >= 0) ::close(key.fd);
  key = {};
}

/// Takes an answer apart; bad_frame when it is none to `type`.
errc code_of(std::span<const std::byte> bytes, message_type type) noexcept {
  protocol::answer_head head;
  if (bytes.size() < sizeof head) return errc::bad_frame;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.type != static_cast<std::uint16_t>(type) || head.body_bytes != bytes.size() - sizeof head)
    return errc::bad_frame;
  return static_cast<errc>(head.code);
}

namespace {

bool outcome_unknown(errc e) noexcept {
  return e == errc::disconnected || e == errc::timed_out || e == errc::cancelled;
}

/// The clock of the lease: coarse, because every read looks at it.
duration::rep coarse_now() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return duration(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec)).count();
}

}  // namespace

agent_client::agent_client(const std::string& url, const pool_options& options, fabric::service* in_process,
                           detail::agent_events& events)
    : agent_client(0, {url}, options, in_process, events, nullptr) {}

agent_client::agent_client(std::uint32_t slot, const std::vector<std::string>& urls, const pool_options& options,
                           detail::agent_events& events, copies& parts)
    : agent_client(slot, urls, options, nullptr, events, &parts) {}

agent_client::agent_client(std::uint32_t slot, const std::vector<std::string>& urls, const pool_options& options,
                           fabric::service* in_process, detail::agent_events& events, copies* parts)
    : urls_(urls),
      slot_(slot),
      options_(options),
      synchronous_(urls.front().starts_with("local:") || urls.front().starts_with("shm:")),
      mapped_(urls.front().starts_with("shm:")),
      one_sided_within_(slot == 0 ? options.access_within
                                  : std::min<duration>(options.access_within, pool_limits::one_sided_within)),
      events_(events),
      parts_(parts),
      words_(std::uint64_t{blocks::vblock_limit} * 8, detail::page_bytes),
      chunks_(std::uint64_t{blocks::vblock_limit / blocks::chunk_words} * 8, detail::page_bytes),
      regions_(std::uint64_t{blocks::ordinal_limit} * sizeof(region_slot), detail::page_bytes) {
  static_assert(sizeof(region_slot) == 16);
  for (std::uint32_t i = protocol::pool_streams_max; i-- > 0;) free_streams_.push_back(i);
  while (client_[0] == 0)
    if (::getrandom(client_, sizeof client_, 0) != sizeof client_)
      throw error(errc::unsupported, "the system has no random numbers");
  has_not_.resize(urls_.size());
  fabric::session_options so;
  so.others.assign(urls_.begin() + 1, urls_.end());
  so.connect_within = options.connect_within;
  so.reconnect_for = options.reconnect_within;
  so.operation_within = one_sided_within_;
  so.writes_regions = false;
  try {
    session_owner_ = fabric::connect(urls_.front(), so, *this, in_process);
  } catch (const error&) {
    if (refused_ != errc::ok) throw error(refused_, urls_.front() + ": " + refusal_);  // what the agent said
    throw;
  }
  session_ = session_owner_.get();
  keeper_ = std::thread([this] { keep(); });
}

agent_client::~agent_client() {
  if (keeper_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    keeper_.join();  // the agent takes nothing from this client after pool_close
    if (session_owner_->state() == fabric::session_state::up)
      (void)call_once(message_type::pool_close, {}, {}, clock::now() + std::chrono::seconds(2), fabric::lane::control);
  }
  if (session_owner_) session_owner_->close();
}

// ---- the session ----

errc agent_client::connected(fabric::session& s, std::uint32_t) {
  if (session_ == nullptr) session_ = &s;  // the same one for ever
  const std::uint64_t before = primary_;
  if (const errc e = shake_hands(s); e != errc::ok) return e;
  std::string was = s.url();
  {
    const std::lock_guard lock(mutex_);
    std::swap(was, at_);
    is_up_ = true;
    if (primary_ != before) state_ = 0;
    if (parts_ != nullptr && !was.empty() && primary_ != before) parts_->note(slot_, part_state::alone);
  }
  if (!was.empty()) tell(primary_ == before ? agent_change::back : agent_change::taken_over);
  return errc::ok;
}

void agent_client::disconnected(fabric::session&, std::uint32_t, errc) noexcept {
  bool was_up = false;
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    was_up = std::exchange(is_up_, false);
    if (parts_ != nullptr) parts_->note(slot_, part_state::unknown);
  }
  if (was_up) tell(agent_change::silent);
}

void agent_client::lost(fabric::session&, errc) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) {
      ended_ = true;
      end_ = errc::agent_lost;
    }
    changed_.notify_all();
  }
  tell(agent_change::lost);
}

// Of the agent that is connected, or was last.
void agent_client::tell(agent_change what) noexcept {
  try {
    std::string who;
    {
      const std::lock_guard lock(mutex_);
      who = at_;
    }
    if (!who.empty()) events_.post({.change = what, .agent = std::move(who)});
  } catch (const std::bad_alloc&) {
    log::error("pool {}: an agent is {}, and nobody could be told", options_.name, to_string(what));
  }
}

void agent_client::notice(fabric::session& s, std::span<const std::byte> payload) noexcept {
  struct {
    protocol::message_head head;
    protocol::pool_epoch_notice body;
  } n{};
  if (payload.size() != sizeof n) return s.drop_connection(s.generation());
  std::memcpy(&n, payload.data(), sizeof n);
  if (n.head.type != static_cast<std::uint16_t>(message_type::pool_epoch) || n.head.body_bytes != sizeof n.body)
    return s.drop_connection(s.generation());
  const std::lock_guard lock(mutex_);
  epoch_ = std::max(epoch_, n.body.epoch);
  pass_wanted_ = true;
  changed_.notify_all();
}

// ---- calls ----

errc agent_client::wait_until_up(time_point deadline) noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ended_) return end_;
    if (session_->state() == fabric::session_state::up) return errc::ok;
    const time_point now = clock::now();
    if (now >= deadline) return errc::timed_out;
    changed_.wait_until(lock, std::min(deadline, now + pool_limits::until_up));
  }
}

reply agent_client::call_once(message_type type, std::span<const std::byte> fixed, std::span<const std::byte> payload,
                              time_point deadline, fabric::lane on) noexcept {
  std::array<std::byte, sizeof(protocol::message_head) + 128> head;
  FM_CHECK(fixed.size() <= 128, "the fixed part of a message is larger than there is room for");
  const protocol::message_head h{static_cast<std::uint16_t>(type), 0,
                                 static_cast<std::uint32_t>(fixed.size() + payload.size())};
  std::memcpy(head.data(), &h, sizeof h);
  if (!fixed.empty()) std::memcpy(head.data() + sizeof h, fixed.data(), fixed.size());
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = on;
  r.sg_count = payload.empty() ? 1 : 2;
  r.sg[0] = {head.data(), sizeof h + fixed.size()};
  if (!payload.empty()) r.sg[1] = {const_cast<std::byte*>(payload.data()), payload.size()};
  reply out;
  out.tenure = tenure();
  const time_point sent = clock::now();
  r.deadline = std::min(
      deadline, sent + (slot_ == 0 ? options_.access_within : std::min<duration>(options_.access_within, silence())));
  session_->post(r);
  session_->wait(r);
  if (r.status != errc::ok) {
    // Another agent may be the primary by now.
    if (slot_ != 0 && r.status == errc::timed_out) session_->drop_connection(r.generation);
    discard(r.reply_key);
    out.code = outcome_unknown(r.status) ? errc::disconnected : r.status;
    return out;
  }
  out.generation = r.generation;
  out.bytes = std::move(r.reply);
  out.key = r.reply_key;
  out.code = code_of(out.bytes, type);
  if (out.code == errc::bad_frame) {
    discard(out.key);
    out.bytes.clear();
    session_->drop_connection(r.generation);
  } else if (slot_ != 0 && (out.code == errc::stale || out.code == errc::under_replicated)) {
    if (out.code == errc::stale) {
      out.code = errc::disconnected;
      session_->drop_connection(r.generation);
    }
  } else {
    take_number(out, type);
    heard(sent);
    if (protocol::pool_pass_answer a{};
        type == message_type::pool_pass && out.code == errc::ok && out.body().size() >= sizeof a) {
      std::memcpy(&a, out.body().data(), sizeof a);
      learn_clock(a.now, out.tenure);
    }
  }
  return out;
}

reply agent_client::call(message_type type, std::span<const std::byte> fixed, std::span<const std::byte> payload,
                         time_point deadline, fabric::lane on) noexcept {
  const detail::section_break outside;
  for (;;) {
    reply r = call_once(type, fixed, payload, deadline, on);
    if (slot_ != 0 && await_count(r, deadline)) continue;
    if (r.code != errc::disconnected) return r;
    if (clock::now() >= deadline) r.code = errc::timed_out;
    if (r.code == errc::disconnected) r.code = wait_until_up(deadline);
    if (r.code != errc::ok) return r;
  }
}

agent_client::open_change::open_change(agent_client& c, time_point deadline) noexcept : client(c) {
  std::unique_lock lock(c.mutex_);
  if (!c.changed_.wait_until(lock, deadline, [&] { return !c.free_streams_.empty(); })) return;
  stream = c.free_streams_.back();
  c.free_streams_.pop_back();
  number = ++c.last_number_[stream];
}

agent_client::open_change::~open_change() {
  if (number == 0) return;
  const std::lock_guard lock(client.mutex_);
  client.free_streams_.push_back(stream);
  if (client.free_streams_.size() == 1) client.changed_.notify_all();
}

// ---- the lease, and epochs ----

void agent_client::heard(time_point sent) noexcept {
  const duration::rep until = (sent + lease()).time_since_epoch().count();
  duration::rep seen = lease_until_.load(std::memory_order_relaxed);
  while (seen < until && !lease_until_.compare_exchange_weak(seen, until, std::memory_order_acq_rel)) {
  }
}

namespace {

duration::rep drift_in(duration d) noexcept { return d.count() / pool_limits::clock_drift_share; }

}  // namespace

void agent_client::learn_clock(std::uint64_t agents_ns, std::uint32_t tenure_then) noexcept {
  const std::lock_guard lock(mutex_);
  if (tenure() == tenure_then) note_clock(agents_ns);  // else another agent's
}

/// The answer that was fastest says most; but what an earlier one said loses by what the clocks may have drifted.
void agent_client::note_clock(std::uint64_t agents_ns) noexcept {
  const time_point now = clock::now();
  const duration::rep ahead =
      static_cast<duration::rep>(std::min<std::uint64_t>(agents_ns, INT64_MAX / 2)) - now.time_since_epoch().count();
  const bool first = clock_learned_ == time_point{};
  agent_ahead_ = first ? ahead : std::max(ahead, agent_ahead_ - drift_in(now - clock_learned_));
  clock_learned_ = now;
}

void agent_client::set_deadline(protocol::pool_change& change, time_point until) noexcept {
  const std::lock_guard lock(mutex_);
  const duration::rep at =
      until.time_since_epoch().count() + agent_ahead_ - drift_in(std::max<duration>(until - clock_learned_, {}));
  change.agent = agent_tag_;
  change.deadline = static_cast<std::uint64_t>(std::max<duration::rep>(at, 1));
}

bool agent_client::lease_holds() const noexcept {
  // The coarse clock is up to a tick of 10 ms behind.
  const duration margin = std::min<duration>(lease() / 8, std::chrono::milliseconds(50));
  return coarse_now() + margin.count() < lease_until_.load(std::memory_order_acquire);
}

errc agent_client::renew(due& until) noexcept {
  protocol::pool_pass_body b{0, 0};
  {
    const std::lock_guard lock(mutex_);
    b.gone = gone_;
  }
  return call(message_type::pool_pass, std::as_bytes(std::span(&b, 1)), {}, until.at()).code;
}

void agent_client::pass_soon() noexcept {
  const std::lock_guard lock(mutex_);
  pass_wanted_ = true;
  changed_.notify_all();
}

void agent_client::pass(std::uint64_t epoch) noexcept {
  {
    const std::lock_guard guard(pass_mutex_);
    const duration within = slot_ == 0 ? options_.access_within : std::min<duration>(options_.access_within, lease());
    if (!sections_.pass(clock::now() + within)) {
      // Reads of an agent that is silent: it is asked, so that it is left if it is.
      if (slot_ != 0)
        (void)call_once(message_type::pool_pass, std::as_bytes(std::span(&nothing_passed, 1)), {}, deadline(),
                        fabric::lane::control);
      return;
    }
  }
  protocol::pool_pass_body b{epoch, 0};
  {
    const std::lock_guard lock(mutex_);
    b.gone = gone_;
  }
  const reply r =
      call_once(message_type::pool_pass, std::as_bytes(std::span(&b, 1)), {}, deadline(), fabric::lane::control);
  protocol::pool_pass_answer a{};
  if (r.code != errc::ok || r.body().size() < sizeof a) return;
  std::memcpy(&a, r.body().data(), sizeof a);
  learn_state(a.state, r.tenure);  // here, where answers come in their order
  if (a.count > 1024 || r.body().size() != sizeof a + a.count * sizeof(std::uint32_t)) return;
  count.epochs_passed.fetch_add(1, std::memory_order_relaxed);
  std::vector<std::uint32_t> ordinals(a.count);
  if (a.count != 0) std::memcpy(ordinals.data(), r.body().data() + sizeof a, a.count * sizeof(std::uint32_t));
  forget_regions(ordinals);
  const std::lock_guard lock(mutex_);
  if (forget_all_) return;  // another connection was made meanwhile, and what this one told counts no more
  gone_ = a.gone;
  if (a.epoch > epoch_ || a.count == 1024) {
    epoch_ = std::max(epoch_, a.epoch);
    pass_wanted_ = pass_wanted_ || a.count == 1024;
  }
}

/// No read begins on them from here on; when those that did have ended, the regions are detached.
void agent_client::forget_regions(std::span<const std::uint32_t> ordinals) noexcept {
  const learning turn(*this);
  for (const std::uint32_t ordinal : ordinals) {
    if (ordinal >= blocks::ordinal_limit) continue;
    const std::uint64_t name = regions()[ordinal].name.exchange(0, std::memory_order_acq_rel);
    const auto region = static_cast<std::uint32_t>(name >> 32);
    if (const auto known = ordinal_of_.find(region);
        name != 0 && known != ordinal_of_.end() && known->second == ordinal) {
      ordinal_of_.erase(known);
      leaving_.push_back(region);
    }
  }
  if (leaving_.empty()) return;
  const std::lock_guard guard(pass_mutex_);
  if (!sections_.pass(clock::now() + options_.access_within)) return;  // they stay mapped until the next time
  for (const std::uint32_t region : leaving_) session_->detach(region);
  leaving_.clear();
}

void agent_client::forget_all_regions() noexcept {
  std::vector<std::uint32_t> ordinals;
  {
    const learning turn(*this);
    for (const auto& [region, ordinal] : ordinal_of_) ordinals.push_back(ordinal);
  }
  forget_regions(ordinals);
}

void agent_client::keep() noexcept {
  os::name_thread("fm-pool");
  const duration renew_every = std::max<duration>(lease() / 4, std::chrono::milliseconds(5));
  time_point renew_at = clock::now() + renew_every;
  bool let_go = false;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (ended_ ? !let_go : forget_all_) {
      let_go = ended_;  // nothing can be learned from here on
      forget_all_ = false;
      gone_ = 0;
      lock.unlock();
      forget_all_regions();
      lock.lock();
      continue;
    }
    const bool up = !ended_ && session_->state() == fabric::session_state::up;
    if (!up && !ended_) {
      changed_.wait_until(lock, clock::now() + std::chrono::milliseconds(5));
      continue;
    }
    if (ended_ || (!pass_wanted_ && clock::now() < renew_at)) {
      if (ended_)
        changed_.wait(lock);
      else
        changed_.wait_until(lock, renew_at);
      continue;
    }
    pass_wanted_ = false;
    const std::uint64_t epoch = epoch_;
    lock.unlock();
    pass(epoch);
    renew_at = clock::now() + renew_every;
    lock.lock();
  }
}

}  // namespace fm::pool_detail
