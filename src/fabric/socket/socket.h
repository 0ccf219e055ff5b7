// The few socket calls that stream transports make, over TCP and Unix sockets alike.
//
// Invariant: no call blocks but the waits and receive_asleep, and every wait has a deadline. Stream transports, and the
// TCP connections of verbs://, go through these calls; any thread may.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/uio.h>

#include "base/base.h"
#include "fabric/wire/url.h"
#include "os/os.h"
#include <atomic>
#include <span>
#include <vector>

namespace fm::fabric {

using os::descriptor;

/// What looks names up: getaddrinfo. A seam for tests, which may replace it.
using name_lookup_fn = int (*)(const char* host, const char* port, const addrinfo* hints, addrinfo** list);
extern std::atomic<name_lookup_fn> name_lookup;

/// Connects to tcp:// or shm://, and looks a host's name up within the deadline, too. The addresses of a host are tried in
/// their order, each with its share of the time that is left. Returns unreachable, timed_out, or ok with `out` set.
errc connect_socket(const address& to, time_point deadline, descriptor& out) noexcept;

/// Listens. Throws fm::error naming `url` (invalid_argument, unreachable when the address is in use, refused when another
/// process listens on the path). `real` becomes the URL with the port that was really bound.
descriptor listen_socket(const address& at, const std::string& url, bool insecure, std::string& real);

/// Whether listening on a tcp:// address lets other machines in. False for a host that has no address now: listening
/// says so.
bool is_beyond_host(const address& at);
[[noreturn]] void throw_insecure(std::string_view url);

/// Accepts one connection; an empty descriptor with errno set when there is none. Throws bad_alloc, and the connection is
/// closed then.
descriptor accept_socket(int listening, bool unix_family, std::string& peer_name);

struct io_result {
  std::size_t bytes = 0;
  enum { progress, again, gone } outcome = progress;
};

/// Sends what fits; `fd` (or -1) goes along with the first byte.
io_result send_some(int socket, std::span<const iovec> from, int fd = -1) noexcept;
/// Descriptors that one call of receive_some takes.
constexpr std::size_t descriptors_at_once = 8;
/// Receives what is there; descriptors that came along are appended to `fds` when it is not null. It has room for
/// descriptors_at_once more.
io_result receive_some(int socket, std::span<const iovec> to, std::vector<int>* fds) noexcept;

/// Lets receive_asleep sleep on the socket, for `at_most` at a time. False: it cannot, and would return at once.
bool may_sleep_in_receive(int socket, duration at_most) noexcept;
/// As receive_some, but sleeps until there is something, or for as long as may_sleep_in_receive was told: one system call
/// for what a wait and receive_some do in two.
io_result receive_asleep(int socket, std::span<const iovec> to, std::vector<int>* fds) noexcept;

/// Waits for events (POLLIN, POLLOUT) until the deadline; false when it passed.
bool wait_socket(int socket, short events, time_point deadline) noexcept;

/// The same for several descriptors, with their own events; revents are set.
bool wait_sockets(std::span<pollfd> sockets, time_point deadline) noexcept;

/// The whole of a small message, with a deadline: for handshakes. Returns ok, timed_out or unreachable.
errc send_all(int socket, std::span<const std::byte> bytes, time_point deadline) noexcept;
errc receive_all(int socket, std::span<std::byte> bytes, time_point deadline) noexcept;

}  // namespace fm::fabric
