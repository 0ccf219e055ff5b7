// The lanes of a session, and the notices that wait to be sent on them; see server_peer.h. Owns the bound on notices
// that the client has not handled. The service calls notify and close from any thread; the rest belongs to the I/O
// threads.
#include "server_peer.h"

#include "base/limits.h"
#include "base/log.h"
#include <sys/socket.h>

namespace fm::fabric {

bool server_peer::notify(std::span<const std::byte> payload) noexcept {
  const std::lock_guard lock(mutex_);
  if (ending_ || ends_by() != time_point::max() || lanes_.empty() || unacknowledged_ >= wire::notices_max ||
      payload.size() > message_bytes_max_)
    return false;
  try {
    notices_.emplace_back(payload.begin(), payload.end());
  } catch (const std::bad_alloc&) {
    return false;  // as if there was no room
  }
  ++unacknowledged_;
  lanes_.front().attention();
  return true;
}

/// With mutex_ held. Their I/O threads see it and remove them.
void server_peer::end_lanes() noexcept {
  for (const lane_ref& l : lanes_)
    if (l.socket >= 0) ::shutdown(l.socket, SHUT_RDWR);
}

void server_peer::end_locked() noexcept {
  ending_ = true;
  end_lanes();
  settled_.notify_all();
}

void server_peer::close(errc why, std::string_view reason) noexcept {
  log::warn("{}: connection closed: {}: {}", name_, to_string(why), reason);
  const std::lock_guard lock(mutex_);
  end_locked();
}

void server_peer::finish() noexcept {
  const std::lock_guard lock(mutex_);
  if (ending_ || lanes_.empty() || ends_by() != time_point::max()) return;
  if (unacknowledged_ == 0) return end_locked();
  ends_by_.store(clock::now() + fabric_limits::last_words_within, std::memory_order_relaxed);
  lanes_.front().attention();  // its deadline runs
}

bool server_peer::join(lane_ref l) {
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  lanes_.push_back(std::move(l));
  return true;
}

bool server_peer::leave(std::uint64_t id) noexcept {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(lanes_, [id](const lane_ref& l) { return l.id == id; });
    end_locked();
    if (!lanes_.empty()) return false;
  }
  service_.disconnected(*this);
  return true;
}

void server_peer::let_go(std::uint64_t id) noexcept {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(lanes_, [id](const lane_ref& l) { return l.id == id; });
    if (!lanes_.empty()) return;
  }
  service_.disconnected(*this);
}

std::deque<std::vector<std::byte>> server_peer::take_notices() {
  std::deque<std::vector<std::byte>> taken;  // an empty one has memory, too
  const std::lock_guard lock(mutex_);
  taken.swap(notices_);
  return taken;
}

bool server_peer::notices_handled(std::uint32_t count) noexcept {
  const std::lock_guard lock(mutex_);
  if (count > unacknowledged_) return false;
  unacknowledged_ -= count;
  if (unacknowledged_ != 0) return true;
  if (ends_by() != time_point::max()) end_locked();
  settled_.notify_all();
  return true;
}

void server_peer::drain(time_point deadline) noexcept {
  std::unique_lock lock(mutex_);
  settled_.wait_until(lock, deadline, [&] { return ending_ || unacknowledged_ == 0; });
}

}  // namespace fm::fabric
