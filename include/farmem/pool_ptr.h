// What names an object of a pool. 128 bits, trivially copyable, good in every process that has the pool open, and to be stored
// anywhere: in other objects of pools, in files, in messages. It is no handle: it keeps nothing alive.
//
//   who    31..0 pool instance (which pool on which agent) | 63..32 virtual block that the object was born in
//   what   31..0 generation | 47..32 birth index | 63..48 hint: the slot that it was last seen in
//
// Who, generation and index are the object's identity, for ever; the hint is where to look first, and may be old. Reads
// correct it in place (CoRM section 3.2: pointer correction).
#pragma once

#include <compare>
#include <cstdint>
#include <farmem/units.h>
#include <functional>
#include <type_traits>

namespace fm {

/// A pointer without its type.
struct pool_address {
  std::uint64_t who = 0;
  std::uint64_t what = 0;

  static constexpr pool_address make(std::uint32_t instance, std::uint32_t block, std::uint32_t generation,
                                     std::uint16_t index, std::uint16_t slot) noexcept {
    return {std::uint64_t{block} << 32 | instance, std::uint64_t{slot} << 48 | std::uint64_t{index} << 32 | generation};
  }
  [[nodiscard]] constexpr std::uint32_t instance() const noexcept { return static_cast<std::uint32_t>(who); }
  [[nodiscard]] constexpr std::uint32_t block() const noexcept { return static_cast<std::uint32_t>(who >> 32); }
  [[nodiscard]] constexpr std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(what); }
  [[nodiscard]] constexpr std::uint16_t index() const noexcept { return static_cast<std::uint16_t>(what >> 32); }
  [[nodiscard]] constexpr std::uint16_t hint() const noexcept { return static_cast<std::uint16_t>(what >> 48); }
  [[nodiscard]] constexpr bool is_null() const noexcept { return who == 0 && what == 0; }
  constexpr void set_hint(std::uint16_t slot) noexcept {
    what = (what & 0x0000ffffffffffffull) | std::uint64_t{slot} << 48;
  }
  /// The same object, wherever it was last seen.
  friend constexpr bool operator==(const pool_address& a, const pool_address& b) noexcept {
    return a.who == b.who && ((a.what ^ b.what) & 0x0000ffffffffffffull) == 0;
  }
};
static_assert(sizeof(pool_address) == 16 && std::is_trivially_copyable_v<pool_address>);

/// A pointer to a T in a pool. Null by default.
template <class T>
class pool_ptr {
 public:
  constexpr pool_ptr() noexcept = default;
  /// Takes the address of an object of sizeof(T) bytes; that it is a T is the caller's word.
  constexpr explicit pool_ptr(pool_address a) noexcept : address_(a) {}
  [[nodiscard]] constexpr pool_address address() const noexcept { return address_; }
  [[nodiscard]] constexpr pool_address& address() noexcept { return address_; }
  constexpr explicit operator bool() const noexcept { return !address_.is_null(); }
  friend constexpr bool operator==(const pool_ptr& a, const pool_ptr& b) noexcept { return a.address_ == b.address_; }

 private:
  pool_address address_{};
};

}  // namespace fm

template <>
struct std::hash<fm::pool_address> {
  std::size_t operator()(const fm::pool_address& a) const noexcept {
    return static_cast<std::size_t>((a.who * 0x9e3779b97f4a7c15ull) ^ ((a.what << 16) * 0xc2b2ae3d27d4eb4full));
  }
};
template <class T>
struct std::hash<fm::pool_ptr<T>> {
  std::size_t operator()(const fm::pool_ptr<T>& p) const noexcept { return std::hash<fm::pool_address>()(p.address()); }
};
