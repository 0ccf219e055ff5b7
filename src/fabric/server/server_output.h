// The bytes that a server connection has to send: frames in order, small ones gathered in one buffer, large ones
// borrowed from the service's memory for the length of one system call. Bytes that the socket did not take are copied,
// so that a client that stops reading holds no region.
#pragma once

#include "base/limits.h"
#include <deque>
#include <functional>
#include <vector>

#include "fabric/socket/socket.h"

namespace fm::fabric {

class server_output {
 public:
  /// Beyond this much unsent, the connection stops reading requests.

  void append(std::span<const std::byte> bytes);
  void append_owned(std::vector<std::byte> bytes);
  /// `bytes` stays good until `released` is called with `region`, during flush or release. Not if this throws.
  void append_borrowed(std::span<const std::byte> bytes, std::uint32_t region);
  /// What follows begins with a descriptor, which is closed once it is sent.
  void append_descriptor(descriptor fd);

  /// Sends what the socket takes. False: the connection is gone. Nothing is borrowed afterwards; but something may be if
  /// this throws, for want of memory.
  bool flush(int socket, const std::function<void(std::uint32_t)>& released);
  /// Gives back what is borrowed, unsent. Nothing can be sent afterwards.
  void release(const std::function<void(std::uint32_t)>& released) noexcept;
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] bool full() const noexcept {
    return bytes_ >= fabric_limits::unsent_bytes_max || descriptors_ >= fabric_limits::unsent_descriptors_max;
  }
  /// Descriptors that wait to be sent.
  [[nodiscard]] std::size_t descriptors() const noexcept { return descriptors_; }

 private:
  struct segment {
    std::vector<std::byte> owned;
    std::span<const std::byte> borrowed;
    std::uint32_t region = 0;
    bool is_borrowed = false;
    descriptor fd;
    std::size_t sent = 0;
    [[nodiscard]] std::span<const std::byte> rest() const {
      return (is_borrowed ? borrowed : std::span<const std::byte>(owned)).subspan(sent);
    }
  };

  void drop_front(const std::function<void(std::uint32_t)>& released);

  std::deque<segment> segments_;
  std::vector<std::byte> spare_;  ///< a buffer to use again
  std::size_t bytes_ = 0, descriptors_ = 0;
};

}  // namespace fm::fabric
