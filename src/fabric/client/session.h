// The client half of the fabric: a session with one agent over local:, shm://, tcp:// or verbs://. A session survives
// its connections: when one breaks, everything in flight completes as `disconnected`, the session reconnects with
// jittered backoff, and its generation goes up by one. The owner of the session re-establishes its own state in
// session_events::connected before any other request is accepted.
#pragma once

#include "fabric/wire/request.h"
#include "os/os.h"
#include <memory>
#include <string>
#include <string_view>

namespace fm::fabric {

class session;

enum class session_state : std::uint8_t { connecting, up, down, lost, closed };

/// What the owner of a session is told. Calls come from the session's own thread, one at a time.
class session_events {
 public:
  virtual ~session_events() = default;
  /// A connection stands; generation `g` >= 1. Requests on the control lane may be posted and waited for here, and
  /// only here while the session is not yet `up`. An error that cannot change (version, refused, layout) ends the
  /// session as `lost`; any other error is retried.
  virtual errc connected(session& s, std::uint32_t g) = 0;
  /// The connection of generation `g` is gone; all its requests are done.
  virtual void disconnected(session& s, std::uint32_t g, errc why) noexcept = 0;
  /// For how long a connection that broke is tried again, as things are now; `usual` is session_options::reconnect_for.
  /// Asked again at each attempt.
  [[nodiscard]] virtual duration reconnect_for(duration usual) const noexcept { return usual; }
  /// Reconnecting was given up after reconnect_for.
  virtual void lost(session& s, errc why) noexcept = 0;
  /// The agent sent a message of its own accord. `payload` is valid during the call.
  virtual void notice(session& s, std::span<const std::byte> payload) noexcept = 0;
};

struct session_options {
  /// Other addresses, of the same kind, at which whoever the session wants may be: an attempt that fails is followed by
  /// one at the next.
  std::vector<std::string> others{};
  duration connect_within = std::chrono::seconds(5);     ///< a step of an attempt: a lane's, an answer's to its owner
  duration reconnect_for = std::chrono::seconds(5);      ///< after that a broken session is lost
  duration operation_within = std::chrono::seconds(10);  ///< deadline of requests that name none
  std::uint32_t fetch_lanes = 2;                         ///< connections that misses are spread over (tcp, verbs)
  std::uint32_t requests_in_flight = 1024;               ///< credit per lane; posting more waits in a bounded queue
  std::uint64_t bytes_in_flight = 64ull << 20;           ///< credit per session
  std::uint32_t message_bytes_max = 1u << 20;            ///< an answer larger than this is a bad frame
  duration spin_for = std::chrono::microseconds(20);     ///< polling before blocking, where it pays
  bool writes_regions = true;     ///< shm: false maps regions for reading alone, also those that only agents can write
  bool on_demand_paging = false;  ///< verbs: do not pin memory that is lent, where the device can do without
};

class session {
 public:
  virtual ~session() = default;

  /// Posts requests, in order per lane. Each becomes done exactly once, possibly before post returns (an in-memory
  /// transport; a session that is down: `disconnected`; lost: `agent_lost`). A write or read larger than 64 KiB may be
  /// split on the wire. Thread-safe. Blocks only for credit, and then at most until the request's deadline.
  virtual void post(std::span<request* const> requests) noexcept = 0;
  void post(request& r) noexcept {
    request* one = &r;
    post(std::span<request* const>(&one, 1));
  }
  /// As post, of as many of the first ones as there is credit for; returns how many. Never blocks.
  virtual std::size_t try_post(std::span<request* const> requests) noexcept = 0;
  bool try_post(request& r) noexcept {
    request* one = &r;
    return try_post(std::span<request* const>(&one, 1)) != 0;
  }

  /// Handles what has completed on any lane, without blocking; returns how many requests became done. Thread-safe.
  virtual std::size_t poll() noexcept = 0;
  /// Between the two the session's thread looks for all answers, also for those that are left to pollers
  /// (attendance::poller): by a poller before and after it sleeps. Thread-safe.
  virtual void stop_polling() noexcept {}
  virtual void resume_polling() noexcept {}

  /// Returns when `r` is done: polls for `spin_for`, then blocks. Past its deadline the request is cancelled and
  /// becomes done as `timed_out`, after its buffers are safe to reuse. Thread-safe.
  virtual void wait(request& r) noexcept = 0;
  /// As wait, but returns at `until` at the latest, and leaves `r` in flight then. Whether it is done. A request that
  /// nobody waits for afterwards needs on_done, so that the session's thread attends to it from then on.
  virtual bool wait_until(request& r, time_point /*until*/) noexcept {
    wait(r);  // of a session whose requests are done soon
    return true;
  }

  /// Asks for `r` to be given up: it becomes done as `cancelled` (or with its real outcome, if that comes first).
  virtual void cancel(request& r) noexcept = 0;

  /// Makes a region reachable one-sidedly, with the key that came in an answer; takes the key over, also on failure.
  /// The owner calls it for every region it learns of and again after each reconnect.
  virtual errc attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept = 0;
  /// Forgets a region. No request on it may be in flight.
  virtual void detach(std::uint32_t region) noexcept = 0;

  /// Says that requests will often name memory in [base, base + bytes), so that a transport whose device needs memory
  /// to be registered can do so, and need not copy: `slab_bytes` (a power of two) at a time, when a slab is first used.
  /// The memory stays mapped until take_back. Other memory may be named as well; it is copied on the way where it has
  /// to be.
  virtual void lend(std::byte* /*base*/, std::uint64_t /*bytes*/, std::uint64_t /*slab_bytes*/) {}
  /// No device reaches the slabs of [base, base + bytes) any more when this returns: they may be given back to the
  /// system or unmapped. No request that names them may be in flight. With `for_good` all that was lent there is
  /// forgotten.
  virtual void take_back(std::byte* /*base*/, std::uint64_t /*bytes*/, bool /*for_good*/) noexcept {}

  /// Bytes of one-sided transfers that were copied on the way since the session began, because the memory that requests
  /// named was not lent or could not be registered. Wait-free.
  [[nodiscard]] virtual std::uint64_t bounced_bytes() const noexcept { return 0; }

  /// Has the pages of a region that is mapped into this process mapped for writing, so that whoever fills it takes no page
  /// faults. A hint; blocks for milliseconds the first time.
  virtual void touch_ahead(std::uint32_t region, std::uint64_t bytes) noexcept {
    if (std::byte* const at = direct(region)) os::map_pages(at, bytes);
  }
  /// The region's memory where the transport maps it into this process (local:, shm://); null elsewhere.
  /// Valid until detach.
  virtual std::byte* direct(std::uint32_t region) noexcept = 0;

  /// Lets go of the memory of an agent that is lost: until then a mapping keeps it. Pointers from direct() stay valid,
  /// and name memory that is zero and of no consequence. The owner makes sure that nobody takes what is there for the
  /// agent's. From session_events::lost on.
  virtual void forget_memory() noexcept {}

  /// While the session's thread makes an attempt: something came of it, so its deadline is put off to connect_within
  /// from now. A peer that serves many answers late and has not gone.
  virtual void progressed() noexcept {}

  /// Opens a connection beside the session's own, which the service gets as stream number `index` (service::stream),
  /// and which carries whatever the two agree on: a non-blocking socket. The session neither looks at it nor ends it.
  /// Only in session_events::connected. Returns unsupported where there are no such connections (all but tcp://),
  /// otherwise what connecting comes to.
  virtual errc open_stream(std::uint16_t /*index*/, time_point /*deadline*/, os::descriptor& /*socket*/) noexcept {
    return errc::unsupported;
  }

  [[nodiscard]] virtual session_state state() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t generation() const noexcept = 0;
  [[nodiscard]] virtual const std::string& url() const noexcept = 0;

  /// Breaks the connection of that generation as if the network had, if it still stands: a request that completes late
  /// tells nothing of a later connection, which is left alone. Thread-safe.
  virtual void drop_connection(std::uint32_t generation) noexcept = 0;
  /// Ends the session: requests in flight become done as `cancelled`, threads are joined. Idempotent.
  virtual void close() noexcept = 0;
};

class service;

/// Opens a session. `local:` needs `in_process`, the service of an agent in this process; the others ignore it.
/// Blocks until the session is `up` or throws fm::error (unknown_scheme, invalid_argument, unreachable, refused,
/// version_mismatch, timed_out, unsupported) naming the URL. Gives up when the peer
/// has answered nothing for session_options::connect_within.
std::unique_ptr<session> connect(std::string_view url, const session_options& options, session_events& events,
                                 service* in_process = nullptr);

}  // namespace fm::fabric
