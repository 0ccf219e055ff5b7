// The attempts of a session whose connection is gone: when they are made, and with how much time. The transport is one
// that never connects again.
#include "fabric/client/driver.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>

namespace {

using namespace fm::fabric;
using fm::errc;
using fm::time_point;

/// Connects once.
class once final : public driver {
 public:
  once(const session_options& o, session_events& e) : driver("tcp://127.0.0.1:1", o, e) { start(); }
  ~once() override { close(); }

  using session::post;
  using session::try_post;
  void post(std::span<request* const>) noexcept override {}
  std::size_t try_post(std::span<request* const>) noexcept override { return 0; }
  std::size_t poll() noexcept override { return 0; }
  void wait(request&) noexcept override {}
  void cancel(request&) noexcept override {}
  errc attach(std::uint32_t, std::uint32_t, std::uint64_t, memory_key) noexcept override { return errc::unsupported; }
  void detach(std::uint32_t) noexcept override {}
  std::byte* direct(std::uint32_t) noexcept override { return nullptr; }

  std::atomic<int> attempts{0}, too_late{0}, put_off{0};

 private:
  errc dial(std::uint32_t, time_point deadline) noexcept override {
    if (attempts.fetch_add(1) == 0) {
      for (int answers = 0; answers < 3; ++answers) {
        const time_point before = attempt_deadline();
        progressed();
        if (attempt_deadline() > before) ++put_off;
      }
      return errc::ok;
    }
    if (fm::clock::now() >= deadline) ++too_late;
    return errc::unreachable;
  }
  void hang_up(errc) noexcept override {}
  void serve(time_point) noexcept override {
    pollfd p{wake_fd(), POLLIN, 0};
    if (::poll(&p, 1, -1) > 0) woken();
  }
};

struct told final : session_events {
  errc connected(session&, std::uint32_t) override { return errc::ok; }
  void disconnected(session&, std::uint32_t, errc) noexcept override {}
  void lost(session&, errc) noexcept override {
    is_lost = true;
    is_lost.notify_all();
  }
  void notice(session&, std::span<const std::byte>) noexcept override {}
  std::atomic<bool> is_lost{false};
};

}  // namespace

TEST_CASE("no attempt to reconnect is made when its time is over already, and one near the end has time left") {
  told events;
  session_options o;
  o.reconnect_for = std::chrono::seconds(1);
  once s(o, events);
  s.drop_connection(s.generation());
  events.is_lost.wait(false);
  CHECK(s.attempts > 2);
  CHECK(s.too_late == 0);
  CHECK(s.state() == session_state::lost);
}

TEST_CASE("each answer of the peer puts off the deadline of the attempt that it belongs to") {
  told events;
  once s({}, events);
  CHECK(s.put_off == 3);
}
