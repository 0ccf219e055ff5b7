// Random words of the operating system, for numbers that nobody else may guess: instances of pools, ids of objects,
// tickets of cycles.
// A source belongs to one owner, which guards it with its own mutex.
// If the system has no random numbers, next throws fm::error (unsupported).
#pragma once

#include <sys/random.h>

#include "base/base.h"
#include <array>
#include <cerrno>
#include <cstdint>

namespace fm::agent {

/// Takes 256 bytes at a time. Not thread-safe.
class random_source {
 public:
  std::uint64_t next() {
    if (at_ == words_.size()) fill();
    return words_[at_++];
  }

 private:
  void fill() {
    auto* to = reinterpret_cast<char*>(words_.data());
    std::size_t got = 0;
    while (got < sizeof words_) {
      const ssize_t n = ::getrandom(to + got, sizeof words_ - got, 0);
      if (n > 0)
        got += static_cast<std::size_t>(n);
      else if (errno != EINTR)
        throw error(errc::unsupported, "the system has no random numbers");
    }
    at_ = 0;
  }

  std::array<std::uint64_t, 32> words_{};
  std::size_t at_ = 32;
};

}  // namespace fm::agent
