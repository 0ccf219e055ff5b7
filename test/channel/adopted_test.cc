// Channels over sockets that the program has: graphs both ways over Unix and TCP sockets, ends that close, and processes at the other
// end that are no channel, or say what they may not.
#include "channel/path/channel_messages.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "channel/fixture.h"
#include "channel/path/terms.h"

using namespace channel_test;
using fm::errc;
using namespace fm::detail::channel_wire;

namespace {

struct pair_of_sockets {
  explicit pair_of_sockets(const std::string& kind) {
    if (kind == "unix") {
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
      return;
    }
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof a;
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&a), &bytes) == 0);
    fds[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::connect(fds[0], reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
    fds[1] = ::accept(listener, nullptr, nullptr);
    REQUIRE(fds[1] >= 0);
    ::close(listener);
  }
  int fds[2] = {-1, -1};
};

/// Two heaps, and a channel of two adopted sockets between them.
struct adopted {
  explicit adopted(const std::string& kind, const fm::channel_options& o = {}) : from(small()), to(small()) {
    const pair_of_sockets s(kind);
    beside other([&] { rx = fm::channel::adopt(to, s.fds[1], o); });
    tx = fm::channel::adopt(from, s.fds[0], o);
    require_ok(other);
  }
  fm::heap from, to;
  fm::channel tx, rx;
};

/// A socket whose other end is `raw`, which says what a test wants.
struct stranger {
  stranger() : s("unix"), raw(s.fds[1]) {}
  ~stranger() { ::close(raw); }
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  void say(const void* bytes, std::size_t n) const { REQUIRE(::send(raw, bytes, n, MSG_NOSIGNAL) == ssize_t(n)); }
  void say(head h, const std::vector<std::uint64_t>& words = {}) const {
    h.bytes = static_cast<std::uint32_t>(words.size() * 8);
    say(&h, sizeof h);
    if (!words.empty()) say(words.data(), words.size() * 8);
  }
  void introduce() const { say(fm::detail::channel_terms::of({}).hello()); }
  /// All that comes until the connection ends; its messages.
  [[nodiscard]] std::vector<head> rest() const {
    const timeval long_enough{60, 0};
    ::setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &long_enough, sizeof long_enough);
    std::vector<char> all;
    char some[4096];
    for (;;) {
      const ssize_t n = ::recv(raw, some, sizeof some, 0);
      if (n < 0) FAIL("the connection does not end: " << std::strerror(errno));
      if (n == 0) break;
      all.insert(all.end(), some, some + n);
    }
    std::vector<head> heads;
    for (std::size_t at = 0; at + sizeof(head) <= all.size();) {
      std::memcpy(&heads.emplace_back(), all.data() + at, sizeof(head));
      at += sizeof(head) + heads.back().bytes;
    }
    return heads;
  }
  pair_of_sockets s;
  int raw;
};

fm::heap& heap() {
  static fm::heap h(small());
  return h;
}
fm::channel_options impatient() { return {.connect_within = std::chrono::milliseconds(200)}; }

}  // namespace

TEST_CASE("graphs go both ways over a socket that the program has") {
  const std::string kind = GENERATE("unix", "tcp");
  INFO(kind);
  adopted e(kind, {.window = 256_KiB, .part = 16_KiB});
  REQUIRE(e.tx.peer().find("adopted") == 0);
  edges expected;
  beside sender([&] {
    e.tx.send(make_list(e.from, 20000));
    e.tx.send(make_graph(e.from, 2000, 5, expected));
    e.tx.send_async(e.from.array<double>(200'000)).wait();
    e.tx.send(make_list(e.from, 3), {.until = fm::delivery::sent});
    e.tx.flush();
  });
  beside other_way([&] { e.rx.send(e.to.array<double>(200'000)); });
  require_list(e.rx.recv<node>(), 20000);
  const fm::ptr<vertex> graph = e.rx.recv<vertex>();
  REQUIRE(e.rx.recv<double[]>().read()->size() == 200'000);
  require_list(e.rx.recv<node>(), 3);
  REQUIRE(e.tx.recv<double[]>().read()->size() == 200'000);
  require_ok(sender);
  require_ok(other_way);
  require_graph(graph, expected);
  require_sound(e.to);
  require_sound(e.from);
}

TEST_CASE("refusals, limits and deadlines are those of other channels") {
  const std::string kind = GENERATE("unix", "tcp");
  INFO(kind);
  adopted e(kind, {.window = 64_KiB, .window_parts = 8, .part = 8_KiB, .objects_max = 1000});
  thrown sent;
  {
    beside sender([&] { sent = thrown_by([&] { e.tx.send(make_list(e.from, 5000)); }); });
    REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::too_large);
    require_ok(sender);
    REQUIRE(sent.code == errc::too_large);
  }
  {
    beside sender([&] { sent = thrown_by([&] { e.tx.send(make_list(e.from, 10)); }); });
    REQUIRE(thrown_by([&] { e.rx.recv<vertex>(); }).code == errc::layout_mismatch);
    require_ok(sender);
    REQUIRE(sent.code == errc::layout_mismatch);
  }
  // Nobody reads.
  REQUIRE(thrown_by([&] {
            e.tx.send(make_list(e.from, 900), {.until = fm::delivery::sent});
            e.tx.send(make_list(e.from, 9000), {.within = std::chrono::milliseconds(100)});
          }).code == errc::timed_out);
  require_list(e.rx.recv<node>(), 900);
}

TEST_CASE("an end that closes is heard of, after what it has sent") {
  const std::string kind = GENERATE("unix", "tcp");
  INFO(kind);
  adopted e(kind);
  beside sender([&] {
    e.tx.send(make_list(e.from, 100), {.until = fm::delivery::sent});
    e.tx.close();
  });
  require_list(e.rx.recv<node>(), 100);
  require_ok(sender);
  REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::disconnected);
  REQUIRE(thrown_by([&] { e.rx.send(make_list(e.to, 1)); }).code == errc::disconnected);
}

TEST_CASE("a process that does not introduce itself as a channel is refused, and the socket is closed") {
  const auto adopted_code = [](const stranger& s) {
    return thrown_by([&] { fm::channel::adopt(heap(), s.s.fds[0], impatient()); }).code;
  };
  {
    const stranger s;  // says nothing
    REQUIRE(adopted_code(s) == errc::timed_out);
    REQUIRE(s.rest().size() == 1);  // an introduction, and then the end
  }
  {
    const stranger s;
    s.say("GET / HTTP/1.1\r\nHost: somebody.example.org\r\n\r\n", 44);
    REQUIRE(adopted_code(s) == errc::bad_frame);
  }
  {
    const stranger s;
    head h = fm::detail::channel_terms::of({}).hello();
    h.version = version_major + 1;
    s.say(h);
    REQUIRE(adopted_code(s) == errc::version_mismatch);
  }
  for (const std::uint16_t flags : {flag_ring, flag_stream}) {
    const stranger s;
    head h = fm::detail::channel_terms::of({}).hello();
    h.flags = flags;
    s.say(h);
    REQUIRE(adopted_code(s) == errc::bad_frame);
  }
  {
    const stranger s;
    ::shutdown(s.raw, SHUT_WR);
    REQUIRE(adopted_code(s) == errc::disconnected);
    REQUIRE(fm::channel::try_adopt(heap(), -1).error().code() == errc::invalid_argument);
  }
  int pipes[2];
  REQUIRE(::pipe(pipes) == 0);
  REQUIRE(fm::channel::try_adopt(heap(), pipes[0]).error().code() == errc::invalid_argument);
  REQUIRE(::fcntl(pipes[0], F_GETFD) == -1);  // closed
  ::close(pipes[1]);
  const pair_of_sockets unused("unix");
  REQUIRE(fm::channel::try_adopt(heap(), unused.fds[0], {.part = 7}).error().code() == errc::invalid_argument);
  char c = 0;
  REQUIRE(::recv(unused.fds[1], &c, 1, 0) == 0);  // closed, too
  ::close(unused.fds[1]);
}

TEST_CASE("an end that breaks the rules is not heard again, and is told why before the connection ends") {
  const auto meet = [](const stranger& s) {
    s.introduce();
    return fm::channel::adopt(heap(), s.s.fds[0], impatient());
  };
  head part = make(kind::part, 1);
  part.flags = flag_first | flag_last;
  part.b = 1;
  {
    const stranger s;
    fm::channel c = meet(s);
    s.say("no message at all, but long enough to be a head of one", 54);
    REQUIRE(thrown_by([&] { c.recv<double[]>(); }).code == errc::bad_frame);
    (void)s.rest();
  }
  {
    const stranger s;
    fm::channel c = meet(s);
    part.bytes = ~0u;
    s.say(&part, sizeof part);
    REQUIRE(thrown_by([&] { c.recv<double[]>(); }).code == errc::bad_frame);
    (void)s.rest();
  }
  {
    const stranger s;
    fm::channel c = meet(s);
    s.say(part, {fm::detail::schema_of<double[]>().hash, 3, 1, 2});  // three, of which two come
    REQUIRE(thrown_by([&] { c.recv<double[]>(); }).code == errc::bad_frame);
    s.say(make(kind::want));  // the next message ends the connection
    bool told = false;
    for (const head& h : s.rest())
      told = told || (h.kind == static_cast<std::uint8_t>(kind::verdict) &&
                      h.status == static_cast<std::uint16_t>(errc::bad_frame));
    REQUIRE(told);
  }
  {
    const stranger s;
    fm::channel c = meet(s);
    s.say(part, {fm::detail::schema_of<double[]>().hash, 2, 1, 2});
    REQUIRE(c.recv<double[]>().read()->size() == 2);
    part.a = 1;
    part.number = 2;
    part.bytes = 800;
    s.say(&part, sizeof part);  // and nothing of it comes
    ::shutdown(s.raw, SHUT_RDWR);
    REQUIRE(thrown_by([&] { c.recv<double[]>(); }).code == errc::disconnected);
    REQUIRE(thrown_by([&] { c.send(heap().array<double>(1)); }).code == errc::disconnected);
  }
  {
    const stranger s;  // asks and asks, and reads no answer
    fm::channel c = meet(s);
    const head ask = make(kind::ask);
    const std::vector<head> many(1000, ask);
    ssize_t n = 1;
    while (n > 0) n = ::send(s.raw, many.data(), many.size() * sizeof ask, MSG_NOSIGNAL);
    REQUIRE(n < 0);  // it is not listened to any more
    REQUIRE(thrown_by([&] { c.recv<double[]>(); }).code != errc::ok);
  }
  REQUIRE(objects_left(heap()) == 0);
  require_sound(heap());
}

TEST_CASE("what is sent to an end that does not read ends with the deadline") {
  const stranger s;
  s.introduce();
  fm::channel c = fm::channel::adopt(heap(), s.s.fds[0], {.linger = fm::duration{}});
  const thrown t = thrown_by([&] { c.send(make_list(heap(), 200'000), {.within = std::chrono::milliseconds(200)}); });
  INFO(t.text);
  REQUIRE(t.code == errc::timed_out);
  c.close();  // does not wait for it for long
}
