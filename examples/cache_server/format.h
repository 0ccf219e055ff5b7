// What the server keeps in the pool, for other processes to read one-sidedly: values that carry their key, and a directory that
// finds them. The server alone writes; a reader trusts nothing that does not prove itself.
//
//   root     magic, seed of the hash, number of buckets; pointers to pages
//   page     pointers to 256 buckets, which stay where they are for as long as the server runs
//   bucket   19 entries {hash of the key, pointer to its value}, and a pointer to another bucket when those are not enough
//   value    header, key, value, padding to 16 bytes
//
// Why a reader never gets wrong bytes. Each of these is an object of the pool, and a read of one is a state that it had during
// the read, whole. An entry is published after its value, and a value is freed after its entry is gone; a pointer to a
// freed object says so for ever (not_found), so a reader that was overtaken notices, and begins again. An entry is a hint: what
// was found counts when it carries the key that was asked for. An entry stays in its bucket until it is removed, so a walk that
// meets no entry has seen, in each bucket, a moment at which the key was not there.
#pragma once

#include <array>
#include <boost/crc.hpp>
#include <cstdint>
#include <cstring>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <farmem/pool/pool.h>
#include <optional>
#include <string_view>
#include <vector>

namespace fm::example {

struct directory_entry {
  std::uint64_t hash = 0;
  pool_address value{};  ///< null: the entry is free
};
struct directory_bucket {
  pool_ptr<directory_bucket> next;
  std::array<directory_entry, 19> entries{};
};
static_assert(sizeof(directory_bucket) == 472, "fits a slot of 512 bytes, header included");
struct directory_page {
  std::array<pool_ptr<directory_bucket>, 256> buckets{};
};
struct directory_root {
  static constexpr std::uint64_t magic_of_this = 0x31656863'61436d46;  // "FmCache1"
  std::uint64_t magic = magic_of_this;
  std::uint64_t seed = 0;
  std::uint64_t buckets = 0;  ///< a power of two
  std::array<pool_ptr<directory_page>, 512> pages{};
};
inline constexpr std::uint64_t buckets_max = 512 * 256;

/// Of a key. Seeded, so that nobody can choose keys that meet in one bucket.
inline std::uint64_t hash_of(std::string_view key, std::uint64_t seed) noexcept {
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    const auto wide = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
  };
  std::uint64_t h = seed ^ (key.size() * 0x9e3779b97f4a7c15ull);
  while (!key.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = std::min<std::size_t>(key.size(), 8);
    std::memcpy(&word, key.data(), n);
    h = mix(h ^ word ^ 0xa0761d6478bd642full, seed | 1) + h;
    key.remove_prefix(n);
  }
  return mix(h ^ 0xe7037ed1a0b428dbull, h | 0x8ebc6af09c88c6e3ull);
}

struct value_header {
  std::uint32_t crc = 0;  ///< CRC-32C of everything after it but the padding
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t zero = 0;
  std::int64_t expires_at_ms = 0;  ///< since 1970; 0: never
  std::uint64_t change = 0;  ///< the server counts its changes: of two states of a key, the larger one is the newer
};
static_assert(sizeof(value_header) == 32);

/// Rounded, so that a value that grows or shrinks a little is written in place.
constexpr std::uint64_t value_object_bytes(std::uint64_t key_bytes, std::uint64_t value_bytes) noexcept {
  return (sizeof(value_header) + key_bytes + value_bytes + 15) / 16 * 16;
}

inline std::uint32_t value_crc(const std::byte* object, const value_header& h) noexcept {
  boost::crc_optimal<32, 0x1EDC6F41, 0xffffffff, 0xffffffff, true, true> crc;  // CRC-32C
  crc.process_bytes(object + sizeof h.crc,
                    sizeof h - sizeof h.crc + std::size_t{h.key_bytes} + std::size_t{h.value_bytes});
  return crc.checksum();
}

inline void encode_value(std::vector<std::byte>& to, std::string_view key, std::string_view value,
                         std::int64_t expires_at_ms, std::uint64_t change) {
  to.assign(value_object_bytes(key.size(), value.size()), std::byte{0});
  value_header h{
      0, static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size()), 0, expires_at_ms, change};
  std::memcpy(to.data(), &h, sizeof h);
  if (!key.empty()) std::memcpy(to.data() + sizeof h, key.data(), key.size());
  if (!value.empty()) std::memcpy(to.data() + sizeof h + key.size(), value.data(), value.size());
  h.crc = value_crc(to.data(), h);
  std::memcpy(to.data(), &h, sizeof h);
}

struct decoded_value {
  value_header header;
  std::string_view key, value;
};
/// Nothing when these are not the bytes of a value.
inline std::optional<decoded_value> decode_value(std::span<const std::byte> object) noexcept {
  decoded_value v;
  if (object.size() < sizeof v.header) return std::nullopt;
  std::memcpy(&v.header, object.data(), sizeof v.header);
  if (v.header.zero != 0 || object.size() != value_object_bytes(v.header.key_bytes, v.header.value_bytes) ||
      v.header.crc != value_crc(object.data(), v.header))
    return std::nullopt;
  const char* const text = reinterpret_cast<const char*>(object.data() + sizeof v.header);
  v.key = {text, v.header.key_bytes};
  v.value = {text + v.header.key_bytes, v.header.value_bytes};
  return v;
}

/// The clock of expiry times, which the processes have in common.
inline std::int64_t unix_ms() noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace fm::example
