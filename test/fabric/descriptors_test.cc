// Descriptors that come with answers (shm://): a client that does not read is owed few of them, and a server cannot fill
// a client's table with descriptors that no answer claims.
#include "fabric/server/server_output.h"
#include "fabric/wire/wire.h"
#include <catch2/catch.hpp>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "fixture.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

namespace {

descriptor any_descriptor() {
  descriptor d(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(d);
  return d;
}

bool receive_all_of(int fd, void* to, std::size_t bytes) {
  for (auto* p = static_cast<std::byte*>(to); bytes != 0;) {
    pollfd f{fd, POLLIN, 0};
    if (::poll(&f, 1, 60'000) <= 0) return false;
    const auto n = ::recv(fd, p, bytes, 0);
    if (n <= 0) return false;
    p += n;
    bytes -= std::size_t(n);
  }
  return true;
}

}  // namespace

TEST_CASE("a connection reads no more requests while a few descriptors wait to be sent") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const descriptor from(ends[0]), to(ends[1]);
  const std::array<std::byte, 48> frame{};
  server_output out;
  for (std::size_t i = 0; i < fabric_limits::unsent_descriptors_max; ++i) {
    CHECK_FALSE(out.full());
    out.append_descriptor(any_descriptor());
    out.append(frame);
  }
  CHECK(out.full());
  REQUIRE(out.flush(from.get(), [](std::uint32_t) {}));
  CHECK_FALSE(out.full());
  CHECK(out.descriptors() == 0);
  std::vector<int> fds;
  fds.reserve(fabric_limits::unsent_descriptors_max + descriptors_at_once);
  std::array<std::byte, 48> got;
  for (std::size_t i = 0; i < fabric_limits::unsent_descriptors_max; ++i) {
    const iovec v{got.data(), got.size()};
    CHECK(receive_some(to.get(), std::span(&v, 1), &fds).bytes == got.size());
  }
  CHECK(fds.size() == fabric_limits::unsent_descriptors_max);
  for (const int fd : fds) ::close(fd);
}

TEST_CASE("a server that sends descriptors without answers loses the connection") {
  const std::string url = over_shm::listen_url();
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  url.copy(un.sun_path, sizeof un.sun_path - 1, std::strlen("shm://"));
  const descriptor listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&un), sizeof un) == 0);
  REQUIRE(::listen(listening.get(), 4) == 0);
  bool dropped = false;
  std::thread server([&] {
    const descriptor s(::accept(listening.get(), nullptr, nullptr));
    struct {
      wire::frame_header header;
      wire::hello_body body;
    } hello{};
    if (!receive_all_of(s.get(), &hello, sizeof hello)) return;
    struct {
      wire::frame_header header = wire::make_header(wire::frame_type::welcome, sizeof(wire::welcome_body));
      wire::welcome_body body{{1, 2}, 0, 3, 1u << 20, 4096};
    } welcome;
    if (::send(s.get(), &welcome, sizeof welcome, MSG_NOSIGNAL) != ssize_t(sizeof welcome)) return;
    const auto notice = wire::make_header(wire::frame_type::notice, 8);
    const descriptor sent = any_descriptor();
    for (std::size_t i = 0; i < 32; ++i) {  // less than a frame
      const iovec v{const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&notice)) + i, 1};
      if (send_some(s.get(), std::span(&v, 1), sent.get()).outcome != io_result::progress) break;
    }
    char end = 0;
    pollfd p{s.get(), POLLIN, 0};
    dropped = ::poll(&p, 1, 60'000) == 1 && ::recv(s.get(), &end, 1, 0) <= 0;
  });
  recorded_events events;
  session_options o;
  o.reconnect_for = std::chrono::milliseconds(1);
  const auto s = connect(url, o, events);
  server.join();
  CHECK(dropped);
  s->close();
  ::unlink(un.sun_path);
}
