// The server half of the fabric: a service answers messages and names the memory that peers may reach. The agent's
// store is one; tests have others. Transports call it from their I/O threads, for one peer possibly from several
// (one per lane), so a service is thread-safe.
#pragma once

#include "fabric/wire/request.h"
#include "os/os.h"
#include <memory>
#include <string>
#include <string_view>

namespace fm::fabric {

/// One connected session, as the service sees it. Exists from service::connected until service::disconnected returns.
class peer {
 public:
  virtual ~peer() = default;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;  ///< "shm uid=0 pid=1234", "tcp 127.0.0.1:5123"
  /// Sends a message that nobody asked for. Bounded queue: false when it is full or the peer is gone. Thread-safe. One
  /// that was taken comes before the end of the connection, also when the listener is destroyed next.
  virtual bool notify(std::span<const std::byte> payload) noexcept = 0;
  /// Closes the connection, with a log line that gives the reason. Thread-safe, returns at once.
  virtual void close(errc why, std::string_view reason) noexcept = 0;
  /// Ends the connection when the client has handled the notices that it was given, or after last_words_within. Takes no
  /// further ones. Thread-safe, returns at once. Over local: and verbs:// the end is left to the client.
  virtual void finish() noexcept {}
  /// The service's own word for this peer.
  void* user = nullptr;
};

struct answer {
  std::vector<std::byte> payload;
  std::uint64_t token = 0;  ///< of a key that goes along; 0: none
  os::descriptor memory;    ///< the same, for a peer that maps memory
  bool lacks_descriptor = false;

  /// Sends the file along. It is duplicated here and now: the service may close its own as soon as others may change what
  /// the answer is about.
  void share(int file) noexcept {
    if (file < 0) return;
    memory = os::descriptor::duplicate_of(file);
    lacks_descriptor = !memory;
  }
};

enum class access : std::uint8_t { read, write };

class service {
 public:
  virtual ~service() = default;
  /// A session stands (all of its lanes share one peer). Anything but ok refuses it.
  virtual errc connected(peer& p) noexcept = 0;
  /// All lanes of the session have stopped; no call for this peer is running or will come.
  virtual void disconnected(peer& p) noexcept = 0;
  /// Answers a message. Anything but ok is a protocol violation and costs the peer its connection; a refusal
  /// that the peer should read goes into the answer.
  virtual errc message(peer& p, std::span<const std::byte> payload, answer& out) noexcept = 0;
  /// The bytes that a one-sided operation names, or null when bounds, generation or ownership forbid it. The
  /// pointer stays good until the call of memory_done for the same peer and region.
  virtual std::byte* memory(peer& p, const remote& where, std::uint64_t bytes, access how) noexcept = 0;
  virtual void memory_done(peer& p, std::uint32_t region) noexcept = 0;
  /// The peer has opened a stream (session::open_stream): a non-blocking socket, the service's from here on, also when
  /// the peer goes. Anything but ok costs the peer its connection.
  virtual errc stream(peer&, std::uint16_t /*index*/, os::descriptor /*socket*/) noexcept { return errc::refused; }
};

struct listen_options {
  bool insecure = false;  ///< allow a plaintext TCP address that is not loopback
  std::uint32_t io_threads = 1;
  duration spin_for = std::chrono::microseconds(20);  ///< a thread that serves fetches polls so long after a request
                                                      ///< before it blocks; 0: never
  std::uint32_t connections_max = 512;                ///< of 64 heaps, with several each
  /// Connections that have not said who they are yet: those of forty programs that start at once. More are turned away.
  std::uint32_t handshakes_max = 256;
  duration handshake_within = std::chrono::seconds(2);
  std::uint32_t message_bytes_max = 1u << 20;
  std::uint32_t requests_in_flight = 4096;  ///< per connection, refused beyond
  bool on_demand_paging = false;            ///< verbs: do not pin regions, where the device can do without
};

/// A listening transport. Destruction lets peers handle the notices that were given to them, for at most
/// last_words_within; then it stops, disconnects every peer and joins its threads.
class listener {
 public:
  virtual ~listener() = default;
  /// The address with the port or path really used: "tcp://127.0.0.1:41234".
  [[nodiscard]] virtual const std::string& url() const noexcept = 0;
};

/// Serves `shm://PATH` or `tcp://HOST:PORT` (port 0: any). Throws fm::error naming the address.
std::unique_ptr<listener> listen(std::string_view url, const listen_options& options, service& s);

/// Throws what listen would, as far as that can be told without opening anything: invalid_argument, unknown_scheme,
/// unsupported, and access_denied for plaintext that others could reach. May ask for the address of a host's name.
void check_listen(std::string_view url, const listen_options& options);

}  // namespace fm::fabric
