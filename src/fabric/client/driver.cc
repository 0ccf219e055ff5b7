// The session thread: dialling, reconnecting with backoff, and the calls to session_events; see driver.h. Owns the
// invariant that every connected(g) has one disconnected(g), after all requests of generation g are done. Transports
// derive from it.
#include "driver.h"

#include "base/limits.h"
#include "base/log.h"
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

namespace fm::fabric {
namespace {

/// The session whose events.connected runs on this thread: it alone may post before the session is up.
thread_local const driver* t_opening = nullptr;

/// Errors that another attempt would only meet again.
bool is_final(errc e) noexcept {
  switch (e) {
    case errc::version_mismatch:
    case errc::refused:
    case errc::layout_mismatch:
    case errc::invalid_argument:
    case errc::unsupported:
    case errc::quota_exceeded:
    case errc::bad_config:
    case errc::agent_lost:
    case errc::heap_closed: return true;
    default: return false;
  }
}

/// What `f` returns. Without memory the attempt has failed, and the next one may have some.
template <class F>
errc without_throwing(F&& f) noexcept try {
  return f();
} catch (const error& e) {
  return e.code();
} catch (const std::exception&) {  // bad_alloc, or a thread that cannot be started
  return errc::out_of_memory;
}

}  // namespace

driver::driver(std::string url, const session_options& options, session_events& events)
    : options_(options), events_(events), wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) throw error(errc::out_of_memory, fmt::format("{}: eventfd: {}", url, std::strerror(errno)));
  const auto add = [&](std::string at) {
    address a = value_or_throw(parse_url(at));
    if (!places_.empty() && a.scheme != places_.front().where.scheme)
      throw error(errc::invalid_argument, fmt::format("{} and {} are of two kinds", places_.front().url, at));
    places_.push_back({std::move(at), std::move(a)});
  };
  try {
    add(std::move(url));
    for (const std::string& other : options_.others) add(other);
  } catch (...) {
    ::close(wake_fd_);
    throw;
  }
}

void driver::go_on() noexcept { place_.store((place_.load() + 1) % places_.size(), std::memory_order_release); }

driver::~driver() {
  FM_CHECK(!thread_.joinable(), "a transport closes its session before its own members are destroyed");
  ::close(wake_fd_);
}

void driver::start() {
  thread_ = std::thread([this] { run(); });
  errc outcome;
  {
    std::unique_lock lock(mutex_);
    first_.wait(lock, [this] { return first_known_; });
    outcome = first_outcome_;
  }
  if (outcome == errc::ok) return;
  close();
  const std::string& to = places_.front().url;
  throw error(outcome, explanation_.empty() ? fmt::format("connecting to {}", to)
                                            : fmt::format("connecting to {}: {}", to, explanation_));
}

session_state driver::state() const noexcept {
  switch (current()) {
    case phase::connecting: return session_state::connecting;
    case phase::opening: return generation() <= 1 ? session_state::connecting : session_state::down;
    case phase::up: return session_state::up;
    case phase::broken:
    case phase::down: return session_state::down;
    case phase::lost: return session_state::lost;
    case phase::closed: break;
  }
  return session_state::closed;
}

errc driver::admit(lane on) const noexcept {
  switch (current()) {
    case phase::up: return errc::ok;
    case phase::opening: return on == lane::control && t_opening == this ? errc::ok : errc::disconnected;
    case phase::lost: return errc::agent_lost;
    case phase::closed: return errc::cancelled;
    default: return errc::disconnected;
  }
}

time_point driver::deadline_of(const request& r, time_point now) const noexcept {
  const time_point own = r.deadline == time_point::max() ? now + options_.operation_within : r.deadline;
  return std::min(own, t_opening == this ? attempt_deadline_ : time_point::max());
}

void driver::progressed() noexcept {
  FM_CHECK(on_session_thread(), "whoever makes an attempt tells of its progress");
  attempt_deadline_ = std::max(attempt_deadline_, clock::now() + attempt_within_);
}

void driver::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_fd_, &one, sizeof one);  // full means that a wake is pending already
}

void driver::woken() noexcept {
  std::uint64_t count;
  [[maybe_unused]] const auto n = ::read(wake_fd_, &count, sizeof count);
}

void driver::break_connection(std::uint32_t g, errc why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const phase p = current();
    if (generation_.load(std::memory_order_relaxed) != g || (p != phase::up && p != phase::opening)) return;
    why_ = why;
    phase_.store(phase::broken, std::memory_order_seq_cst);
  }
  interrupt(g, why);
  wake();
}

void driver::drop_connection(std::uint32_t g) noexcept { break_connection(g, errc::disconnected); }

void driver::close() noexcept {
  closing_.store(true, std::memory_order_release);
  break_connection(generation(), errc::cancelled);
  wake();
  if (on_session_thread()) return;  // an event handler asked: the thread ends by itself, the destructor joins it
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

// Under a lock. A push and a pop take 0.04 to 0.22 us with it, 0.4 us through a boost::lockfree::spsc_queue, and waking
// the session's thread 2.5 us (nobody contends; an EPYC). The peer counts its notices and never has more under way than
// fit; if one does, its connection breaks.
bool driver::queue_notice(std::uint32_t g, std::span<const std::byte> payload) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (generation_.load(std::memory_order_relaxed) > g || notices_.size() >= notices_max) return false;
    notices_.push_back({g, {payload.begin(), payload.end()}});
  } catch (const std::bad_alloc&) {
    return false;
  }
  wake();
  return true;
}

void driver::deliver_notices() noexcept {
  for (;;) {
    notice n;
    {
      const std::lock_guard lock(mutex_);
      if (notices_.empty() || current() != phase::up) return;
      n = std::move(notices_.front());
      notices_.pop_front();
    }
    if (n.generation != generation()) continue;
    events_.notice(*this, n.payload);
    notice_handled();
  }
}

void driver::serve_connection() noexcept {
  while (current() == phase::up && !closing()) {
    deliver_notices();
    serve(time_point::max());
  }
}

void driver::pause_until(time_point t) noexcept {
  while (!closing()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(t - clock::now()).count();
    if (left <= 0) return;
    pollfd p{wake_fd_, POLLIN, 0};
    if (::poll(&p, 1, int(left)) > 0) woken();
  }
}

errc driver::attempt(duration within) noexcept {
  const std::uint32_t g = generation_.load(std::memory_order_relaxed) + 1;
  explanation_.clear();
  attempt_within_ = within;
  attempt_deadline_ = clock::now() + within;
  errc e = without_throwing([&] { return dial(g, attempt_deadline_); });
  if (e != errc::ok) return e;
  {
    const std::lock_guard lock(mutex_);
    generation_.store(g, std::memory_order_release);
    why_ = errc::disconnected;
    phase_.store(phase::opening, std::memory_order_seq_cst);
  }
  t_opening = this;
  e = closing() ? errc::cancelled : without_throwing([&] { return events_.connected(*this, g); });
  t_opening = nullptr;
  const bool taken = e == errc::ok;
  {
    const std::lock_guard lock(mutex_);
    if (e == errc::ok && current() == phase::opening && !closing()) {
      phase_.store(phase::up, std::memory_order_seq_cst);
      return errc::ok;
    }
    if (e == errc::ok) e = closing() ? errc::cancelled : why_;
    phase_.store(phase::broken, std::memory_order_seq_cst);
  }
  interrupt(g, e);
  hang_up(e);
  // It broke after its owner had taken it and before it was up.
  if (taken && !closing()) events_.disconnected(*this, g, e);
  return e;
}

errc driver::reconnect() noexcept {
  std::minstd_rand random(std::uint32_t(clock::now().time_since_epoch().count()));
  const time_point broken = clock::now();
  const auto several = static_cast<duration::rep>(places_.size());
  const duration delay_max = several == 1 ? fabric_limits::reconnect_pause_most
                                          : std::min<duration>(several * fabric_limits::reconnect_pause_of_several,
                                                               fabric_limits::reconnect_pause_most);
  duration delay = std::chrono::milliseconds(2);
  // Asked anew before it is given up: what could be done without at first may be needed by now.
  const auto is_over = [&] { return clock::now() >= broken + events_.reconnect_for(options_.reconnect_for); };
  for (std::size_t tried = 0;; ++tried) {
    const duration within = events_.reconnect_for(options_.reconnect_for);
    const time_point give_up = broken + within;
    const bool round_begins = tried % places_.size() == 0;
    // Half to the whole of the delay, so that many sessions of a returning agent do not come in step.
    auto jitter = std::uniform_int_distribution<duration::rep>(delay.count() / 2, delay.count());
    const time_point last = give_up - std::min<duration>(within / 4, delay_max);
    const time_point next = clock::now() + duration(jitter(random));
    // One attempt has time left at the end, however long the pause would be.
    if (round_begins) pause_until(clock::now() < last ? std::min(next, last) : std::min(next, give_up));
    if (closing()) return errc::cancelled;
    if (clock::now() >= give_up) {
      if (is_over()) return errc::agent_lost;
      continue;
    }
    const errc e = attempt(std::min<duration>(give_up - clock::now(), step_within()));
    if (e == errc::ok || closing() || is_final(e)) return e;
    go_on();
    if (is_over()) return errc::agent_lost;
    if (round_begins) delay = std::min<duration>(delay * 2, delay_max);
  }
}

/// One of several addresses is not waited for as long as one alone: another may answer.
duration driver::step_within() const noexcept {
  return places_.size() == 1 ? options_.connect_within
                             : std::min<duration>(options_.connect_within, fabric_limits::one_of_several_within);
}

/// At all addresses in turn, as long as there is time; where there is one, once.
errc driver::first_attempt() noexcept {
  const time_point give_up = clock::now() + options_.connect_within;
  for (std::size_t tried = 1;; ++tried) {
    const errc e = attempt(step_within());
    if (e == errc::ok || closing() || is_final(e) || places_.size() == 1) return e;
    if (clock::now() >= give_up && tried >= places_.size()) return e;
    go_on();
    if (tried % places_.size() == 0) pause_until(std::min(give_up, clock::now() + fabric_limits::between_rounds));
  }
}

void driver::finish_first(errc e) noexcept {
  const std::lock_guard lock(mutex_);
  if (e != errc::ok) phase_.store(phase::lost, std::memory_order_seq_cst);
  first_known_ = true;
  first_outcome_ = e;
  first_.notify_all();
}

void driver::run() noexcept {
  thread_id_.store(std::this_thread::get_id());
  os::name_thread("fm-session");
  const errc first = first_attempt();
  finish_first(first);
  if (first != errc::ok) return;
  for (;;) {
    serve_connection();
    errc why;
    {
      const std::lock_guard lock(mutex_);
      phase_.store(closing() ? phase::closed : phase::down, std::memory_order_seq_cst);
      why = closing() ? errc::cancelled : why_;
    }
    interrupt(generation(), why);
    hang_up(why);
    {
      const std::lock_guard lock(mutex_);
      notices_.clear();
    }
    if (closing()) break;
    log::info("{}: connection {} is gone: {}", url(), generation(), to_string(why));
    events_.disconnected(*this, generation(), why);
    const errc e = reconnect();
    if (closing()) break;
    if (e == errc::ok) continue;
    phase_.store(phase::lost, std::memory_order_seq_cst);
    log::warn("{}: given up: {}{}{}", url(), to_string(e), explanation_.empty() ? "" : ": ", explanation_);
    events_.lost(*this, e);
    return;
  }
  phase_.store(phase::closed, std::memory_order_seq_cst);
}

}  // namespace fm::fabric
