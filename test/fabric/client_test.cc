// A stream client against a server made by hand, which answers late, never, twice, or with nonsense: what a request's
// owner may rely on then. Its buffers are its own again once the request is done, whatever arrives later.
#include "fabric/wire/wire.h"
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#include "fixture.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;
using namespace std::chrono_literals;

namespace {

/// Shakes hands with the control, fetch and bulk lane of one session, listens no more, and does what the test says.
class raw_server {
 public:
  raw_server() : listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof in;
    REQUIRE(::bind(listening_, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0);
    REQUIRE(::listen(listening_, 8) == 0);
    REQUIRE(::getsockname(listening_, reinterpret_cast<sockaddr*>(&in), &size) == 0);
    url = format_url("tcp", "127.0.0.1", ntohs(in.sin_port));
    greeter_ = std::thread([this] { greet(); });
  }
  ~raw_server() {
    if (greeter_.joinable()) greeter_.join();
    for (const int fd : lanes_)
      if (fd >= 0) ::close(fd);
  }
  raw_server(const raw_server&) = delete;
  raw_server& operator=(const raw_server&) = delete;

  std::unique_ptr<session> open(session_options o, session_events& events) {
    o.fetch_lanes = 1;
    o.reconnect_for = 20ms;
    auto s = connect(url, o, events);
    greeter_.join();
    REQUIRE(lanes_.back() >= 0);
    return s;
  }
  /// The next request on a lane, without payload.
  wire::frame_header take(lane on) {
    wire::frame_header h{};
    REQUIRE(receive(lanes_[std::size_t(on)], &h, sizeof h));
    return h;
  }
  void send(lane on, const void* data, std::size_t bytes) {
    CHECK(::send(lanes_[std::size_t(on)], data, bytes, MSG_NOSIGNAL) == ssize_t(bytes));
  }
  void answer(lane on, const wire::frame_header& to, std::size_t bytes, int fill) {
    auto h = wire::make_header(wire::frame_type::answer, std::uint32_t(bytes));
    h.op = to.op;
    send(on, &h, sizeof h);
    const std::vector<std::byte> payload(bytes, std::byte(fill));
    if (bytes != 0) send(on, payload.data(), payload.size());
  }
  void hang_up(lane on) { ::shutdown(lanes_[std::size_t(on)], SHUT_RDWR); }

  std::string url;

 private:
  static bool receive(int fd, void* to, std::size_t bytes) {
    for (auto* p = static_cast<std::byte*>(to); bytes != 0;) {
      pollfd f{fd, POLLIN, 0};
      if (::poll(&f, 1, 10'000) <= 0) return false;
      const auto n = ::recv(fd, p, bytes, 0);
      if (n <= 0) return false;
      p += n;
      bytes -= std::size_t(n);
    }
    return true;
  }
  void greet() {
    for (int& fd : lanes_) {
      pollfd f{listening_, POLLIN, 0};
      if (::poll(&f, 1, 10'000) <= 0) break;
      fd = ::accept(listening_, nullptr, nullptr);
      struct {
        wire::frame_header header;
        wire::hello_body body;
      } hello{};
      if (!receive(fd, &hello, sizeof hello)) break;
      struct {
        wire::frame_header header = wire::make_header(wire::frame_type::welcome, sizeof(wire::welcome_body));
        wire::welcome_body body{{1, 2}, 0, 3, 1u << 20, 4096};
      } welcome;
      if (::send(fd, &welcome, sizeof welcome, MSG_NOSIGNAL) != ssize_t(sizeof welcome)) break;
    }
    ::close(listening_);
  }

  int listening_;
  std::array<int, 3> lanes_{-1, -1, -1};
  std::thread greeter_;
};

using bytes64 = std::array<std::byte, 64>;

bytes64 filled(int with) {
  bytes64 b;
  b.fill(std::byte(with));
  return b;
}
void prepare(request& r, bytes64& into, duration within = 5min) {
  r.kind = op_kind::read;
  r.where = {1, 1, 0};
  r.sg_count = 1;
  r.sg[0] = {into.data(), into.size()};
  r.deadline = clock::now() + within;
}

/// Whether a thread of this process is in a call that blocks.
bool sleeps(pid_t thread) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(in, line);
  const auto end = line.rfind(')');
  return end != std::string::npos && line.substr(end + 2, 1) == "S";
}

}  // namespace

TEST_CASE("what arrives after a request was given up never lands in its buffer") {
  const bool by_deadline = GENERATE(true, false);
  const std::size_t early = GENERATE(0u, 20u, 48u, 80u);  // bytes of the answer that come before it is given up
  CAPTURE(by_deadline, early);
  raw_server server;
  recorded_events events;
  const auto s = server.open({}, events);
  struct {
    wire::frame_header header = wire::make_header(wire::frame_type::answer, 64);
    bytes64 payload = filled(0x11);
  } answer;
  bytes64 first = filled(0), second = filled(0);
  request r, next;
  prepare(r, first, by_deadline ? 60ms : 5min);
  s->post(r);
  const auto asked = server.take(lane::fetch);
  CHECK(asked.bytes == 64);
  answer.header.op = asked.op;
  if (early != 0) server.send(lane::fetch, &answer, early);
  if (!by_deadline) {
    s->poll();
    s->cancel(r);
  }
  s->wait(r);
  CHECK(r.status == (by_deadline ? errc::timed_out : errc::cancelled));
  first = filled(0xee);  // its owner's again

  server.send(lane::fetch, reinterpret_cast<const std::byte*>(&answer) + early, sizeof answer - early);
  prepare(next, second);
  s->post(next);
  server.answer(lane::fetch, server.take(lane::fetch), 64, 0x22);
  s->wait(next);
  CHECK(next.status == errc::ok);
  CHECK(second == filled(0x22));
  CHECK(first == filled(0xee));
  CHECK(s->generation() == 1);
  s->close();
}

TEST_CASE("an answer that comes to a sleeper whose own request was cancelled reaches the one whom it is for") {
  raw_server server;
  recorded_events events;
  const auto s = server.open({.spin_for = 0ms}, events);
  bytes64 mine = filled(0), others = filled(0);
  for (int round = 1; round <= 20; ++round) {
    request waited, other;
    prepare(waited, mine);
    prepare(other, others);
    std::atomic<bool> told{false};
    other.context = &told;
    other.on_done = [](request& done) noexcept { static_cast<std::atomic<bool>*>(done.context)->store(true); };
    s->post(waited);
    s->post(other);
    const auto first = server.take(lane::fetch), second = server.take(lane::fetch);
    std::atomic<pid_t> sleeper{0};
    std::thread waiter([&] {
      sleeper = pid_t(::syscall(SYS_gettid));
      s->wait(waited);
    });
    while (sleeper == 0 || !sleeps(sleeper)) std::this_thread::yield();
    s->cancel(waited);
    struct {
      wire::frame_header header = wire::make_header(wire::frame_type::answer, 64);
      bytes64 payload;
    } answer;
    answer.header.op = second.op;
    answer.payload = filled(round);
    server.send(lane::fetch, &answer, sizeof answer);  // all at once: nothing comes behind it
    while (!told) std::this_thread::yield();
    CHECK(other.status == errc::ok);
    CHECK(others == filled(round));
    waiter.join();
    CHECK(waited.status == errc::cancelled);
    server.answer(lane::fetch, first, 64, 0xee);  // reaches nobody
  }
  CHECK(mine == filled(0));
  CHECK(s->generation() == 1);
  s->close();
}

TEST_CASE("while others on its lane are answered the deadline of a patient request is put off") {
  raw_server server;
  recorded_events events;
  const auto s = server.open({}, events);
  std::array<bytes64, 6> into;
  std::array<request, 6> r;
  request &answered = r[0], &patient = r[1], &not_patient = r[2], &silent = r[3], &bounded = r[4], &next = r[5];
  std::atomic<bool> given_up{false};
  prepare(answered, into[0]);
  prepare(patient, into[1], 50ms);
  patient.patience = 5min;
  patient.latest = clock::now() + 10min;
  prepare(not_patient, into[2], 60ms);
  not_patient.context = &given_up;
  not_patient.on_done = [](request& done) noexcept { static_cast<std::atomic<bool>*>(done.context)->store(true); };
  s->post(answered);
  server.answer(lane::fetch, server.take(lane::fetch), 64, 1);
  s->wait(answered);
  CHECK(answered.status == errc::ok);
  s->post(patient);
  s->post(not_patient);
  // By the session's thread, which looks at all deadlines at once, and at the earlier one first.
  while (!given_up) std::this_thread::yield();
  CHECK(not_patient.status == errc::timed_out);
  CHECK_FALSE(patient.done());
  server.answer(lane::fetch, server.take(lane::fetch), 64, 2);
  s->wait(patient);
  CHECK(patient.status == errc::ok);
  CHECK(into[1] == filled(2));
  server.answer(lane::fetch, server.take(lane::fetch), 64, 3);  // reaches nobody

  // Nothing comes for so long; and it has been long enough whatever comes.
  prepare(silent, into[3], 50ms);
  silent.patience = 50ms;
  silent.latest = clock::now() + 10min;
  prepare(bounded, into[4], 50ms);
  bounded.patience = 5min;
  bounded.latest = clock::now() + 60ms;
  s->post(silent);
  s->post(bounded);
  s->wait(silent);
  s->wait(bounded);
  CHECK(silent.status == errc::timed_out);
  CHECK(bounded.status == errc::timed_out);
  for (int i = 0; i < 2; ++i) server.answer(lane::fetch, server.take(lane::fetch), 64, 4);
  prepare(next, into[5]);
  s->post(next);
  server.answer(lane::fetch, server.take(lane::fetch), 64, 5);
  s->wait(next);
  CHECK(next.status == errc::ok);
  CHECK(into[5] == filled(5));
  s->close();
}

TEST_CASE("without credit a post waits no longer than its deadline, and credit comes back with the answers") {
  const bool by_count = GENERATE(true, false);
  CAPTURE(by_count);
  session_options o;
  if (by_count)
    o.requests_in_flight = 2;
  else
    o.bytes_in_flight = 130;
  raw_server server;
  recorded_events events;
  const auto s = server.open(o, events);
  std::array<bytes64, 4> into;
  std::array<request, 4> r;
  for (std::size_t i : {0, 1}) {
    prepare(r[i], into[i]);
    s->post(r[i]);
  }
  prepare(r[2], into[2], 50ms);
  const auto begin = clock::now();
  s->post(r[2]);
  s->wait(r[2]);
  CHECK(r[2].status == errc::timed_out);
  CHECK(clock::now() - begin >= 50ms);
  CHECK_FALSE(r[0].done());
  for (std::size_t i : {0, 1}) server.answer(lane::fetch, server.take(lane::fetch), 64, int(i) + 1);
  for (std::size_t i : {0, 1}) {
    s->wait(r[i]);
    CHECK(r[i].status == errc::ok);
    CHECK(into[i] == filled(int(i) + 1));
  }
  prepare(r[3], into[3]);
  s->post(r[3]);
  server.answer(lane::fetch, server.take(lane::fetch), 64, 4);  // the third never went out
  s->wait(r[3]);
  CHECK(r[3].status == errc::ok);
  CHECK(into[3] == filled(4));
  s->close();
}

TEST_CASE("a server that does not follow the protocol costs its connection, and the request says so") {
  const int how = GENERATE(range(0, 12));
  CAPTURE(how);
  raw_server server;
  recorded_events events;
  const auto s = server.open({}, events);
  bytes64 into = filled(0xee);
  request r;
  prepare(r, into);
  s->post(r);
  const auto asked = server.take(lane::fetch);
  auto h = wire::make_header(wire::frame_type::answer, 64);
  h.op = asked.op;
  lane on = lane::fetch;
  switch (how) {
    case 0: h.magic ^= 1; break;
    case 1: h.type = 77; break;
    case 2: h.op += 1; break;
    case 3: h.op = ~0ull; break;
    case 4: h.length = 63; break;
    case 5: h.length = 65; break;
    case 6: h.length = 0; break;
    case 7: h.length = ~0u; break;
    case 8: h.flags = wire::flag_fd; break;
    case 9: h = wire::make_header(wire::frame_type::welcome, sizeof(wire::welcome_body)); break;
    case 10:
      on = lane::control;
      h = wire::make_header(wire::frame_type::notice, ~0u);
      break;
    default: break;  // cut off below
  }
  server.send(on, &h, how == 11 ? 30 : sizeof h);
  if (how == 11) server.hang_up(on);
  s->wait(r);
  CHECK(r.status == errc::disconnected);
  CHECK(into == filled(0xee));
  CHECK(events.until([](auto& e) { return e.lost_with != errc::ok; }));  // nobody listens there any more
  CHECK(s->state() == session_state::lost);
  s->close();
}
