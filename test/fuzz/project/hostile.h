// What the fuzz targets share: the fuzzer's bytes as numbers, and a peer that a service talks to.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fm::fuzz {

/// The fuzzer's bytes, taken from the front; zero when they are used up.
class input {
 public:
  input(const std::uint8_t* data, std::size_t bytes) : at_(data), end_(data + bytes) {}
  [[nodiscard]] bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
  std::uint32_t below(std::uint32_t limit) { return byte() % limit; }
  bool rarely() { return byte() == 255; }
  std::uint64_t word() {
    std::uint64_t w = 0;
    for (int i = 0; i < 8; ++i) w = w << 8 | byte();
    return w;
  }
  /// Mostly a small number, now and then any.
  std::uint64_t number() {
    const std::uint8_t b = byte();
    return b < 240 ? b : b < 248 ? std::uint64_t{b} << byte() % 56 : word();
  }
  /// Mostly one of the numbers that mean something, now and then any number.
  std::uint32_t name() {
    const std::uint8_t b = byte();
    return b < 250 ? b % 8 : static_cast<std::uint32_t>(word());
  }
  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> b(count);
    for (auto& x : b) x = std::byte{byte()};
    return b;
  }

 private:
  const std::uint8_t *at_, *end_;
};

class silent_peer : public fabric::peer {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte>) noexcept override { return true; }
  void close(errc, std::string_view) noexcept override { closed = true; }
  bool closed = false;

 private:
  std::string name_ = "fuzz";
};

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto* b = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), b, b + sizeof value);
}

}  // namespace fm::fuzz
