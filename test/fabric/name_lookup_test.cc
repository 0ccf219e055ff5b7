// Looking a host's name up, which the system does without a deadline: a connection has one all the same.
#include "base/limits.h"
#include "fabric/socket/socket.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>

using namespace fm;
using namespace fm::fabric;

namespace {

/// In place of the system's: names wait until the test lets them go, and are not found then; numbers are as ever.
struct slow_names {
  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool let_go = false;
  static inline int waiting = 0;

  static int look_up(const char* host, const char* port, const addrinfo* hints, addrinfo** list) {
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) return ::getaddrinfo(host, port, hints, list);
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [] { return let_go; });
    --waiting;
    changed.notify_all();
    return EAI_NONAME;
  }
  slow_names() { name_lookup = &look_up; }
  ~slow_names() {
    std::unique_lock lock(mutex);
    let_go = true;
    changed.notify_all();
    changed.wait(lock, [] { return waiting == 0; });
    name_lookup = &::getaddrinfo;
  }
  slow_names(const slow_names&) = delete;
  slow_names& operator=(const slow_names&) = delete;
};

/// A port of this host that somebody listens on, who accepts nobody.
struct port {
  descriptor listening{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string number;
  explicit port(int backlog) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(listening.get(), backlog) == 0);
    REQUIRE(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    number = fmt::format("{}", ntohs(at.sin_port));
  }
};

/// In place of the system's: every name has two addresses, the ports `first` and `second`.
struct two_addresses {
  static inline std::string first, second;
  static int look_up(const char*, const char*, const addrinfo* hints, addrinfo** list) {
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
    if (const int rc = ::getaddrinfo("127.0.0.1", first.c_str(), hints, list); rc != 0) return rc;
    return ::getaddrinfo("127.0.0.1", second.c_str(), hints, &(*list)->ai_next);
  }
  two_addresses(const port& a, const port& b) {
    first = a.number;
    second = b.number;
    name_lookup = &look_up;
  }
  ~two_addresses() { name_lookup = &::getaddrinfo; }
  two_addresses(const two_addresses&) = delete;
  two_addresses& operator=(const two_addresses&) = delete;
};

}  // namespace

TEST_CASE("a name that the system does not find within the deadline is a timeout, and few are looked up at once") {
  slow_names names;
  const address to = value_or_throw(parse_url("tcp://host.of.nobody.invalid:7070"));
  descriptor out;
  for (int i = 0; i < fabric_limits::lookups_max + 4; ++i)
    CHECK(connect_socket(to, clock::now() + std::chrono::milliseconds(5), out) == errc::timed_out);
  {
    const std::lock_guard lock(slow_names::mutex);
    CHECK(slow_names::waiting <= fabric_limits::lookups_max);
  }
  // Numbers need nobody.
  const address number = value_or_throw(parse_url("tcp://127.0.0.1:1"));
  CHECK(connect_socket(number, clock::now() + std::chrono::seconds(60), out) == errc::unreachable);
}

TEST_CASE("a host is reached at its second address if the first one does not answer") {
  const port silent(0), answers(16);
  // With one connection the first one's backlog is full: it answers no other.
  descriptor filling, out;
  REQUIRE(connect_socket(value_or_throw(parse_url("tcp://127.0.0.1:" + silent.number)),
                         clock::now() + std::chrono::seconds(60), filling) == errc::ok);
  const two_addresses names(silent, answers);
  const address to = value_or_throw(parse_url("tcp://host.of.two.invalid:7070"));
  REQUIRE(connect_socket(to, clock::now() + std::chrono::milliseconds(500), out) == errc::ok);
  sockaddr_in at{};
  socklen_t size = sizeof at;
  REQUIRE(::getpeername(out.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  CHECK(fmt::format("{}", ntohs(at.sin_port)) == answers.number);
}
