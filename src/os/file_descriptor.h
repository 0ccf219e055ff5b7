// A file descriptor that closes itself.
//
// Invariant: a descriptor has one owner, and is closed once. Code that opens a file or a socket keeps it in one of
// these.
#pragma once

#include <utility>

namespace fm::os {

class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  /// Of the same file; none if the process has as many as it may.
  [[nodiscard]] static descriptor duplicate_of(int fd) noexcept;
  descriptor(descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  descriptor& operator=(descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~descriptor() { reset(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace fm::os
