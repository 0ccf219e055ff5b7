// Messages that the session brings to an end, and how an end closes; see endpoint.h.
#include "endpoint.h"

#include "base/channel_limits.h"

#include <algorithm>

namespace fm::detail {

using namespace channel_wire;

void endpoint::set_byte_path(std::unique_ptr<byte_path> p) {
  state_.path = std::move(p);
  receiver_.path_changed();
}

errc endpoint::arrived(std::span<const std::byte> message) noexcept {
  head h{};
  std::span<const std::byte> payload;
  if (const errc e = decode(message, h, payload); e != errc::ok) return e;
  try {
    std::unique_lock lock(state_.mutex);
    if (state_.broken != errc::ok) return state_.broken == errc::bad_frame ? state_.broken : errc::ok;
    state_.stats.wire_bytes_received += message.size();
    errc e = errc::bad_frame;
    sender_.take_answers_locked();  // what was told before this message
    if (state_.broken != errc::ok) return state_.broken;
    switch (static_cast<kind>(h.kind)) {
      case kind::part: e = receiver_.part_arrived_locked(h, message); break;
      case kind::credit: e = sender_.credit_arrived_locked(h); break;
      case kind::verdict: e = sender_.verdict_arrived_locked(h, payload); break;
      case kind::ask: {
        const std::string text = sender_.description_locked(h.a);
        lock.unlock();
        head answer = make(kind::describe);
        answer.a = h.a;
        return state_.tell(answer, text) == errc::ok ? errc::ok : errc::disconnected;
      }
      case kind::describe: e = receiver_.description_arrived_locked(h, payload); break;
      case kind::bye:
        state_.break_locked(errc::disconnected, "the other end has closed the channel");
        e = errc::ok;
        break;
      case kind::want: e = receiver_.want_arrived_locked(h); break;
      case kind::aside: e = receiver_.aside_arrived_locked(h, payload); break;
      case kind::hello: break;
    }
    state_.changed.notify_all();
    state_.path->kick();
    return e;
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

void endpoint::close(duration linger, bool sends) noexcept {
  const time_point deadline = clock::now() + linger;
  sender_.linger(deadline);
  if (!state_.transport) return;
  if (!sends) state_.transport->drain_parts(std::max(deadline, clock::now() + channel_limits::word_within));
  state_.transport->drain(deadline);
  bool gone = false;
  {
    const std::lock_guard lock(state_.mutex);
    state_.path->writer().finish();
    gone = state_.broken != errc::ok;
    // Before the goodbye: the other end answers it by ending the connection, and that must not be what waits here hears.
    state_.break_locked(errc::cancelled, "the channel is closed");
  }
  if (!gone) state_.tell(make(kind::bye));
  state_.transport->close();
}

bool endpoint::is_broken() const {
  const std::lock_guard lock(state_.mutex);
  return state_.broken != errc::ok;
}

channel_stats endpoint::stats() const {
  const std::lock_guard lock(state_.mutex);
  return state_.stats;
}

void endpoint::count_graph(bool sent, std::uint64_t objects) noexcept {
  const std::lock_guard lock(state_.mutex);
  ++(sent ? state_.stats.graphs_sent : state_.stats.graphs_received);
  (sent ? state_.stats.objects_sent : state_.stats.objects_received) += objects;
}

}  // namespace fm::detail
