// One operation on a fabric session. A request belongs to its poster: it and the memory it names must stay valid
// from post() until the request is done, and every posted request becomes done exactly once. The transport owns the
// fields below the line while the request is posted.
#pragma once

#include "base/base.h"
#include <array>
#include <atomic>
#include <boost/intrusive/slist.hpp>
#include <span>
#include <vector>

namespace fm::fabric {

enum class op_kind : std::uint8_t {
  read,          ///< peer memory -> sg buffers
  write,         ///< sg buffers -> peer memory
  compare_swap,  ///< 8 bytes at `where`, 8-aligned: if == compare then = operand; old value -> value
  fetch_add,     ///< 8 bytes at `where`, 8-aligned: += operand; old value -> value
  message,       ///< sg buffers -> the peer's service; its answer -> reply
};

/// What a request competes with. A miss must not queue behind a megabyte, so fetches and write-backs have lanes of
/// their own. On one lane a message is delivered after every write posted before it has reached the peer's memory;
/// nothing else is ordered unless `fence` is set.
enum class lane : std::uint8_t { control, fetch, bulk };

/// Memory of the peer: a region by number and generation, and a byte offset in it. Never a raw pointer of the peer.
struct remote {
  std::uint32_t region = 0;
  std::uint32_t generation = 0;
  std::uint64_t offset = 0;
};

/// One local scatter/gather element.
struct buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// What a peer hands over so that its memory can be reached one-sidedly: a file descriptor for `shm://` (owned by
/// whoever holds the key, -1 when there is none), and transport-specific bytes (an rkey for verbs).
struct memory_key {
  int fd = -1;
  std::uint64_t token = 0;
};

/// Who looks for a request's answer. Each time the session's thread is woken for one costs several microseconds, most of
/// them on the core of whoever posted it.
enum class attendance : std::uint8_t {
  session,  ///< the session's thread, from the posting on
  waiter,   ///< the poster waits at once (session::wait_until); when he leaves, the session's thread
  poller    ///< the poster polls, or needs it no sooner than he waits for it; while he sleeps
            ///< (session::stop_polling), and every session_tick, the session's thread
};

struct request {
  static constexpr std::size_t max_sg = 4;
  enum : std::uint32_t { idle = 0, posted = 1, done_state = 2 };

  op_kind kind = op_kind::read;
  lane on = lane::fetch;
  bool fence = false;  ///< starts only after every earlier request of its lane is complete at the peer
  std::uint8_t sg_count = 0;
  std::array<buffer, max_sg> sg{};
  remote where{};
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  time_point deadline = time_point::max();
  /// Not zero: while answers to others come on its lane the deadline is put off, until nothing has come for so long, or
  /// until `latest`. For what may wait behind others at a slow peer.
  duration patience{};
  time_point latest{};
  /// Called once, by whichever thread sees the completion, as its last act on the request: the callback may free or
  /// repost it. Must not block and must not post on the same session with a wait. May be null.
  void (*on_done)(request&) noexcept = nullptr;
  void* context = nullptr;
  /// With on_done: who looks for the answer. Without, the poster waits for it.
  attendance attended_by = attendance::session;

  // ---- written by the transport ----
  std::atomic<std::uint32_t> state{idle};
  errc status = errc::ok;        ///< valid once done; `disconnected` and `timed_out` mean: outcome unknown
  std::uint32_t generation = 0;  ///< of the session when it was posted
  std::uint64_t value = 0;       ///< old value of an atomic
  std::vector<std::byte> reply;  ///< answer to a message
  memory_key reply_key{};        ///< key that came with the answer; the request's owner takes it over
  std::uint64_t transport_word = 0;
  boost::intrusive::slist_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> transport_link;

  [[nodiscard]] bool done() const noexcept { return state.load(std::memory_order_acquire) == done_state; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t n = 0;
    for (std::size_t i = 0; i < sg_count; ++i) n += sg[i].bytes;
    return n;
  }
};

/// Requests in the order in which they were pushed. A request leaves the list before it becomes done, because whoever
/// sees that may free it; so links are neither cleared nor checked.
using request_list = boost::intrusive::slist<
    request, boost::intrusive::member_hook<request, decltype(request::transport_link), &request::transport_link>,
    boost::intrusive::cache_last<true>, boost::intrusive::constant_time_size<false>>;

}  // namespace fm::fabric
