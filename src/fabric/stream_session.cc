// Connecting, and the session thread's part. Posting and waiting are in stream_session_post.cc.
#include "stream_session.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "transports.h"

namespace fm::fabric {
namespace {

constexpr std::uint32_t wake_index = ~0u;

std::uint32_t lanes_of(const session_options& o) { return std::clamp(o.fetch_lanes, 1u, 64u); }

}  // namespace

stream_session::stream_session(const address& to, const std::string& url, const session_options& options,
                               session_events& events)
    : driver(url, options, events),
      to_(to),
      shared_memory_(to.scheme == "shm"),
      fetch_lanes_(lanes_of(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw error(errc::out_of_memory, fmt::format("{}: epoll: {}", url, std::strerror(errno)));
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u32 = wake_index;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_fd(), &e);
  const std::uint32_t count = shared_memory_ ? 1 : 2 + fetch_lanes_;
  for (std::uint32_t i = 0; i < count; ++i)
    lanes_.push_back(std::make_unique<stream_lane>(static_cast<lane_owner&>(*this), i, options.requests_in_flight,
                                                   options.message_bytes_max, shared_memory_));
}

stream_session::~stream_session() { close(); }

lane stream_session::kind_of(std::uint32_t index) const noexcept {
  if (index == 0) return lane::control;
  return index <= fetch_lanes_ ? lane::fetch : lane::bulk;
}

errc stream_session::greet(int socket, std::uint32_t index, std::uint32_t generation, time_point deadline,
                           greeting& known) noexcept {
  using namespace wire;
  struct {
    frame_header header = make_header(frame_type::hello, sizeof(hello_body));
    hello_body body{};
  } hello;
  static_assert(sizeof hello == sizeof(frame_header) + sizeof(hello_body));
  hello.body.lane = std::uint16_t(kind_of(index));
  hello.body.lane_index = std::uint16_t(index);
  hello.body.generation = generation;
  std::memcpy(hello.body.token, known.token, sizeof known.token);
  hello.body.message_bytes_max = std::min(options_.message_bytes_max, message_bytes_limit);
  if (const errc e = send_all(socket, std::as_bytes(std::span(&hello, 1)), deadline); e != errc::ok) return e;

  std::array<std::byte, sizeof(frame_header)> head;
  if (const errc e = receive_all(socket, head, deadline); e != errc::ok) return e;
  frame_header h;
  if (const auto d = decode_header(head, receiver::client, 0, h); d.code != errc::ok)
    return d.code == errc::version_mismatch ? d.code : errc::bad_frame;
  if (h.type != std::uint8_t(frame_type::welcome)) return errc::bad_frame;
  std::array<std::byte, sizeof(welcome_body)> payload;
  if (const errc e = receive_all(socket, payload, deadline); e != errc::ok) return e;
  if (const errc e = status_of(h); e != errc::ok) return e;
  welcome_body w;
  if (decode_welcome(payload, w).code != errc::ok) return errc::bad_frame;
  std::memcpy(known.token, w.token, sizeof known.token);
  known.requests_in_flight = w.requests_in_flight;
  return errc::ok;
}

errc stream_session::dial(std::uint32_t generation, time_point deadline) noexcept {
  std::vector<descriptor> sockets(lanes_.size());
  greeting known;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (const errc e = connect_socket(to_, deadline, sockets[i]); e != errc::ok) return e;
    if (const errc e = greet(sockets[i].get(), i, generation, deadline, known); e != errc::ok) return e;
  }
  const std::uint32_t credit =
      std::clamp(std::min(options_.requests_in_flight, known.requests_in_flight), 1u, 1u << 20);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) lanes_[i]->open(std::move(sockets[i]), generation, credit);
  return errc::ok;
}

void stream_session::interrupt(std::uint32_t generation, errc why) noexcept {
  for (auto& l : lanes_) l->shut_down(generation, why);
}

void stream_session::hang_up(errc why) noexcept {
  for (auto& l : lanes_) {
    done_list done;
    l->fail(why, done);
    deliver(l.get(), done);
  }
  for (auto& l : lanes_) {
    // Whoever holds the role sees the end of the connection and gives it up; it stays with this thread until open().
    while (!l->try_role())
      l->sleep_aside([&] { return !l->role_taken(); }, clock::now() + std::chrono::milliseconds(20));
    l->close_socket();
  }
}

void stream_session::notice_handled() noexcept {
  const auto guard = lanes_[0]->lock();
  lanes_[0]->acknowledge_notices(1);
}

void stream_session::look_around() noexcept {
  const time_point now = clock::now();
  std::uint32_t in_flight = 0;
  for (auto& l : lanes_) {
    done_list done;
    {
      const auto guard = l->lock();
      if (l->in_flight() != 0) l->expire(now, done);
      l->arm(EPOLLIN);
    }
    deliver(l.get(), done);
    in_flight += l->in_flight();
  }
  quiet_ticks_ = in_flight == 0 ? quiet_ticks_ + 1 : 0;
}

void stream_session::serve(time_point) noexcept {
  for (auto& l : lanes_)
    if (!l->is_open()) return break_connection(generation(), errc::disconnected);
  bool sleep_long = quiet_ticks_ >= quiet_ticks_max;
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
  const int timeout = sleep_long ? -1 : int(std::chrono::duration_cast<std::chrono::milliseconds>(tick).count());
  const int n = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), timeout);
  if (sleep_long && idle_.exchange(false, std::memory_order_seq_cst) == false) quiet_ticks_ = 0;  // a poster woke us
  if (n == 0) return look_around();
  for (int i = 0; i < n; ++i) {
    const std::uint32_t index = events[std::size_t(i)].data.u32;
    if (index == wake_index) {
      woken();
      continue;
    }
    stream_lane& l = *lanes_[index];
    {
      const auto guard = l.lock();
      l.disarmed();
      l.pump();
    }
    if (!l.try_role()) continue;  // a waiter attends to it; a tick registers this thread again
    for (int rounds = 0; rounds < 64 && attend(l) != 0; ++rounds) {
    }
    l.release_role();
    const auto guard = l.lock();
    l.arm(EPOLLIN);
  }
}

namespace {

std::unique_ptr<session> connect_stream(const address& to, const std::string& url, const session_options& options,
                                        session_events& events, service*) {
  auto s = std::make_unique<stream_session>(to, url, options, events);
  s->start();
  return s;
}

}  // namespace

const transport tcp_transport = {transport_abi, "tcp", connect_stream, listen_stream};
const transport shm_transport = {transport_abi, "shm", connect_stream, listen_stream};

}  // namespace fm::fabric
