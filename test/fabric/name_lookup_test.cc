// Looking a host's name up, which the system does without a deadline: a connection has one all the same.
#include "base/limits.h"
#include "fabric/socket/socket.h"
#include <catch2/catch.hpp>

#include <condition_variable>
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
