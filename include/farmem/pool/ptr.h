// fm::pool_ptr and fm::pool_address: names of objects of a pool. 128 bits, trivially copyable, valid in every process
// that has the pool open. They can be stored anywhere: in other objects of pools, in files, in messages. They keep
// nothing alive.
//
//   who    31..0 pool instance (a pool on an agent) | 63..32 virtual block that the object was born in
//   what   31..0 generation | 47..32 birth index | 63..48 hint: the slot that it was last seen in
//
// Who, generation and index are the object's identity and never change. The hint tells where to look first and may be
// out of date; reads correct it in place (CoRM, section 3.2: pointer correction).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <farmem/base/units.h>
#include <functional>
#include <type_traits>

namespace fm {

/// Name of an object of a pool, without its type. All zero is null. All members are O(1) and local.
struct pool_address {
  std::uint64_t who = 0;   ///< pool instance and virtual block
  std::uint64_t what = 0;  ///< generation, birth index and hint

  /// Packs the parts; for the library.
  static constexpr pool_address make(std::uint32_t instance, std::uint32_t block, std::uint32_t generation,
                                     std::uint16_t index, std::uint16_t slot) noexcept {
    return {std::uint64_t{block} << 32 | instance, std::uint64_t{slot} << 48 | std::uint64_t{index} << 32 | generation};
  }
  /// The pool instance: a pool on an agent.
  [[nodiscard]] constexpr std::uint32_t instance() const noexcept { return static_cast<std::uint32_t>(who); }
  /// The virtual block that the object was born in.
  [[nodiscard]] constexpr std::uint32_t block() const noexcept { return static_cast<std::uint32_t>(who >> 32); }
  /// The generation of that block.
  [[nodiscard]] constexpr std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(what); }
  /// The index in the block that the object was born with.
  [[nodiscard]] constexpr std::uint16_t index() const noexcept { return static_cast<std::uint16_t>(what >> 32); }
  /// The slot that the object was last seen in.
  [[nodiscard]] constexpr std::uint16_t hint() const noexcept { return static_cast<std::uint16_t>(what >> 48); }
  /// Whether it names no object.
  [[nodiscard]] constexpr bool is_null() const noexcept { return who == 0 && what == 0; }
  /// Changes the hint; for the library.
  constexpr void set_hint(std::uint16_t slot) noexcept {
    what = (what & 0x0000ffffffffffffull) | std::uint64_t{slot} << 48;
  }
  /// Whether both name the same object; hints do not count.
  friend constexpr bool operator==(const pool_address& a, const pool_address& b) noexcept {
    return a.who == b.who && ((a.what ^ b.what) & 0x0000ffffffffffffull) == 0;
  }
};
static_assert(sizeof(pool_address) == 16 && std::is_trivially_copyable_v<pool_address>);

/// A pointer to a T in a pool. Null by default. Dereferenced only by fm::pool; it keeps nothing alive.
template <class T>
class pool_ptr {
 public:
  /// A null pointer.
  constexpr pool_ptr() noexcept = default;
  /// A null pointer.
  constexpr pool_ptr(std::nullptr_t) noexcept {}
  /// A pointer to the object of `a`, which the caller knows to be a T.
  constexpr explicit pool_ptr(pool_address a) noexcept : address_(a) {}
  /// The untyped name.
  [[nodiscard]] constexpr pool_address address() const noexcept { return address_; }
  /// The untyped name, for functions that correct it.
  [[nodiscard]] constexpr pool_address& address() noexcept { return address_; }
  /// Whether it is not null.
  constexpr explicit operator bool() const noexcept { return !address_.is_null(); }
  /// Whether both point to the same object; hints do not count.
  friend constexpr bool operator==(const pool_ptr& a, const pool_ptr& b) noexcept { return a.address_ == b.address_; }
  /// Whether it is null.
  friend constexpr bool operator==(const pool_ptr& a, std::nullptr_t) noexcept { return a.address_.is_null(); }

 private:
  pool_address address_{};
};

/// Names one state of an object of a pool, for pool::write_if. Every change of the object gives it a new one; compaction
/// gives it none. Two states of one object have the same version only if the pool saw a multiple of 2^32 changes in
/// between and, for objects with a checksum, the checksums are equal as well. It means nothing for other objects.
struct pool_version {
  std::uint64_t number = 0;  ///< opaque; does not grow
  /// Whether both name the same state.
  friend constexpr bool operator==(const pool_version&, const pool_version&) = default;
};

/// A value, and the version that it is of.
template <class T>
struct pool_versioned {
  T value{};               ///< the whole value of one write or of the allocation
  pool_version version{};  ///< of that value
};

/// How far pool::list has come. Plain data; begins at the first object. It means nothing for another pool.
struct pool_cursor {
  std::uint32_t agent = 0;  ///< of pool_options::agents, the one that is listed
  std::uint32_t block = 0;  ///< there, the block of the next object
  std::uint32_t index = 0;  ///< in the block, the place of the next object
  bool done = false;        ///< there are no more
};

/// An object that pool::list found.
struct pool_listing {
  pool_address at{};        ///< names it
  std::uint32_t bytes = 0;  ///< its size
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
