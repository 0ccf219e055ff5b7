// The inbox of a channel whose parts are messages, and the bell that its threads sleep on; see message_path.h.
#include "message_path.h"
#include "base/channel_limits.h"

#include "credit.h"

namespace fm::detail {

using namespace channel_wire;

// ---- the bell ----

std::uint32_t message_bell::watch() const noexcept {
  const std::lock_guard lock(mutex_);
  return count_;
}

void message_bell::wait(std::uint32_t seen, time_point deadline) noexcept {
  std::unique_lock lock(mutex_);
  rung_.wait_until(lock, deadline, [&] { return count_ != seen; });
}

void message_bell::ring() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  rung_.notify_all();
}

// ---- reading ----

errc message_reader::take_message(const head& h, std::span<const std::byte> message) {
  const bool ends_early = (h.flags & flag_abort) != 0;
  const std::uint64_t slack = ends_early ? channel_limits::parts_over_credit : 0;
  const std::lock_guard lock(mutex_);
  if (h.a - next_ >= terms_.window_parts + channel_limits::parts_over_credit)
    return errc::bad_frame;  // also what is repeated
  if (inbox_.size() >= terms_.window_parts + slack) return errc::bad_frame;
  if (!ends_early && inbox_bytes_ != 0 && inbox_bytes_ + message.size() > terms_.window) return errc::bad_frame;
  if (h.bytes > terms_.part && !ends_early) return errc::bad_frame;
  if (!inbox_.emplace(h.a, std::vector<std::byte>(message.begin(), message.end())).second) return errc::bad_frame;
  inbox_bytes_ += message.size();
  return errc::ok;
}

byte_path_reader::found message_reader::next(std::uint64_t, std::span<const std::byte>& message,
                                             std::uint64_t& rest) noexcept {
  const std::lock_guard lock(mutex_);
  if (inbox_.empty() || inbox_.begin()->first != next_) return found::nothing;
  message = inbox_.begin()->second;
  rest = 0;
  return found::message;
}

void message_reader::release() noexcept {
  const std::lock_guard lock(mutex_);
  inbox_bytes_ -= inbox_.begin()->second.size();
  inbox_.erase(inbox_.begin());
  ++next_;
}

// ---- both ----

std::unique_ptr<receive_credit> message_path::make_credit(const channel_terms& terms) const {
  return std::make_unique<credit_by_messages>(terms);
}

}  // namespace fm::detail
