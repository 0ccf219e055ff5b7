// Queueing the bytes that a server connection sends, and writing them to its socket; see server_output.h. Owns the rule
// that nothing stays borrowed after flush(), or after release() if flush() found no memory. Called by the connection's
// I/O thread alone.
#include "server_output.h"

#include <array>

namespace fm::fabric {

void server_output::append(std::span<const std::byte> bytes) {
  if (segments_.empty() || segments_.back().is_borrowed) {
    segments_.emplace_back();
    segments_.back().owned = std::exchange(spare_, {});
    segments_.back().owned.clear();
  }
  auto& owned = segments_.back().owned;
  owned.insert(owned.end(), bytes.begin(), bytes.end());
  bytes_ += bytes.size();
}

void server_output::append_owned(std::vector<std::byte> bytes) {
  if (bytes.size() <= 4096) return append(bytes);
  bytes_ += bytes.size();
  segments_.emplace_back();
  segments_.back().owned = std::move(bytes);
}

void server_output::append_borrowed(std::span<const std::byte> bytes, std::uint32_t region) {
  segments_.emplace_back();
  bytes_ += bytes.size();
  segments_.back().borrowed = bytes;
  segments_.back().region = region;
  segments_.back().is_borrowed = true;
}

void server_output::release(const std::function<void(std::uint32_t)>& released) noexcept {
  for (const segment& s : segments_)
    if (s.is_borrowed) released(s.region);
  segments_.clear();
  bytes_ = descriptors_ = 0;
}

void server_output::append_descriptor(descriptor fd) {
  segments_.emplace_back();
  segments_.back().fd = std::move(fd);
  ++descriptors_;
}

void server_output::drop_front(const std::function<void(std::uint32_t)>& released) {
  segment& s = segments_.front();
  if (s.is_borrowed) released(s.region);
  if (s.owned.capacity() > spare_.capacity() && s.owned.capacity() <= (256u << 10)) spare_ = std::move(s.owned);
  segments_.pop_front();
}

bool server_output::flush(int socket, const std::function<void(std::uint32_t)>& released) {
  bool alive = true, blocked = false;
  while (bytes_ != 0 && alive && !blocked) {
    std::array<iovec, 64> parts;
    std::size_t n = 0;
    for (const segment& s : segments_) {
      if (n == parts.size() || (n != 0 && s.fd)) break;  // a descriptor goes with the first byte of a call
      parts[n++] = {const_cast<std::byte*>(s.rest().data()), s.rest().size()};
    }
    const io_result r = send_some(socket, std::span(parts.data(), n), segments_.front().fd.get());
    alive = r.outcome != io_result::gone;
    blocked = r.outcome == io_result::again;
    if (r.outcome != io_result::progress) break;
    if (segments_.front().fd) {
      segments_.front().fd.reset();
      --descriptors_;
    }
    bytes_ -= r.bytes;
    for (std::size_t left = r.bytes;
         left != 0 || (!segments_.empty() && !segments_.front().fd && segments_.front().rest().empty());) {
      segment& s = segments_.front();
      const std::size_t step = std::min(left, s.rest().size());
      s.sent += step;
      left -= step;
      if (!s.rest().empty()) break;
      drop_front(released);
    }
  }
  for (segment& s : segments_) {
    if (!s.is_borrowed) continue;
    const auto rest = s.rest();
    s.owned.assign(rest.begin(), rest.end());
    s.sent = 0;
    s.is_borrowed = false;
    released(s.region);
  }
  return alive;
}

}  // namespace fm::fabric
