// The session thread's part of a session over lanes, and the end of a broken connection; see lane_session.h.
// Posting and waiting are in lane_session_post.cc.
#include "lane_session.h"
#include "base/limits.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

namespace fm::fabric {
namespace {

constexpr std::uint32_t wake_index = ~0u;

}  // namespace

std::uint32_t fetch_lanes_of(const session_options& o) noexcept { return std::clamp(o.fetch_lanes, 1u, 64u); }

lane_session::lane_session(const std::string& url, const session_options& options, session_events& events,
                           std::uint32_t fetch_lanes, bool counts_messages)
    : driver(url, options, events),
      fetch_lanes_(fetch_lanes),
      counts_messages_(counts_messages),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw error(errc::out_of_memory, fmt::format("{}: epoll: {}", url, std::strerror(errno)));
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u32 = wake_index;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_fd(), &e);
}

void lane_session::interrupt(std::uint32_t generation, errc why) noexcept {
  for (auto& l : lanes_) l->shut_down(generation, why);
}

void lane_session::hang_up(errc why) noexcept {
  for (auto& l : lanes_) {
    done_list done;
    l->fail(why, done);
    deliver(l.get(), done);
  }
  for (auto& l : lanes_) {
    // Whoever holds the role sees the end of the connection and gives it up; it stays with this thread until open().
    while (!l->try_role())
      l->sleep_aside([&] { return !l->role_taken(); }, clock::now() + std::chrono::milliseconds(20));
    l->close_connection();
  }
}

void lane_session::notice_handled() noexcept {
  const auto guard = lanes_[0]->lock();
  lanes_[0]->acknowledge_notices(1);
}

void lane_session::look_around(bool nothing_came) noexcept {
  const time_point now = looked_ = clock::now();
  std::uint32_t in_flight = 0;
  for (auto& l : lanes_) {
    give_up(*l, [&](done_list& done) {
      if (l->in_flight() != 0) l->expire(now, done);
      l->arm(EPOLLIN);
    });
    in_flight += l->in_flight();
  }
  if (in_flight != 0)
    quiet_ticks_ = 0;
  else if (nothing_came)
    ++quiet_ticks_;
}

/// By the session thread, for a lane that nobody else attends to.
void lane_session::attend_fully(client_lane& l) noexcept {
  if (!l.try_role()) return;  // a waiter attends to it; a tick registers this thread again
  for (int rounds = 0; rounds < 64 && attend(l) != 0; ++rounds) {
  }
  l.release_role();
  // Notices come on the first lane, whenever the peer likes.
  if (&l != lanes_.front().get()) return;
  const auto guard = l.lock();
  l.arm(EPOLLIN);
}

void lane_session::serve(time_point) noexcept {
  for (auto& l : lanes_)
    if (!l->is_open()) return break_connection(generation(), errc::disconnected);
  bool sleep_long = quiet_ticks_ >= fabric_limits::quiet_ticks_max;
  if (sleep_long) {
    idle_.store(true, std::memory_order_seq_cst);
    for (auto& l : lanes_) {
      const auto guard = l->lock();
      l->arm(EPOLLIN);
      if (l->in_flight() != 0) sleep_long = false;
    }
    if (!sleep_long) idle_.store(false, std::memory_order_seq_cst);
  }
  std::array<epoll_event, 16> events;
  const int timeout =
      sleep_long ? -1 : int(std::chrono::duration_cast<std::chrono::milliseconds>(fabric_limits::session_tick).count());
  const int n = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), timeout);
  if (sleep_long && idle_.exchange(false, std::memory_order_seq_cst) == false) quiet_ticks_ = 0;  // a poster woke us
  if (n == 0) return look_around(true);
  for (int i = 0; i < n; ++i) {
    const std::uint32_t index = events[std::size_t(i)].data.u32;
    if (index == wake_index) {
      woken();
      for (auto& ready : lanes_)
        if (ready->ready()) attend_fully(*ready);
      continue;
    }
    if (index >= lanes_.size()) {
      on_watched(index);
      continue;
    }
    client_lane& l = *lanes_[index];
    {
      const auto guard = l.lock();
      l.disarmed();
      l.pump();
    }
    attend_fully(l);
  }
  // Also while something comes all the time: another lane may owe an answer that nobody waits for.
  if (clock::now() - looked_ >= fabric_limits::session_tick) look_around(false);
}

}  // namespace fm::fabric
