// The objects of a managed hash table: a header of shards. A shard is a linear-hashing table: chunks of references to
// pages of a few entries, which overflow into further pages. Also: which hashes a bucket has, and in which order they
// are walked.
//
// A lookup goes through few objects, since each costs two dependent loads: header, chunk, page, and between header and
// chunk a directory if the shard has more than 1024 buckets.
//
// Linear hashing (Litwin, VLDB 1980): with `n` buckets, those below n - 2^k are split already. A bucket has the hashes
// that end in some bits. So, with the bits of the hashes reversed, it has an interval of them. A split halves the
// interval, and a merge joins two neighbours.
//
// Invariants owned here
//   - An entry with hash h is in shard h >> 60, in the chain of bucket bucket_of(h, buckets).
//   - Chunks have a place for each of the first `buckets` buckets, and for no others a reference.
//   - A page's entries are its first `count`, and the rest of it is zero.
//   - Readers take no lock (shard_lock.h). So keys, values, counts and the number of buckets are stored with release,
//     and an entry before the count that covers it.
//
// Used by fm::hash_map and fm::hash_set only.
#pragma once

#include <algorithm>
#include <bit>
#include <farmem/detail/hash/keys.h>
#include <farmem/detail/table_value.h>

namespace fm {
template <class Self, class K, class V, class Hash, class Equal>
class hash_table;
}

namespace fm::detail {

/// Some entries of one bucket; about 256 bytes.
template <class K, class V, class Hash, class Equal>
struct hash_page {
  using stored_key = typename map_key<K, Hash, Equal>::stored;
  static constexpr std::uint64_t entries = std::clamp<std::uint64_t>(240 / (sizeof(stored_key) + sizeof(V)), 4, 16);

  std::uint64_t count = 0;
  ref<hash_page> next;
  std::array<stored_key, entries> keys{};
  std::array<V, entries> values{};
};

/// Buckets whose first pages one chunk names.
constexpr std::uint64_t chunk_buckets = 1024;

template <class K, class V, class Hash, class Equal>
struct hash_shard {
  using page = hash_page<K, V, Hash, Equal>;
  using chunk = ref<page>[];

  std::atomic<std::uint64_t> size{0};
  std::uint64_t buckets = 0;
  ref<chunk> first;             ///< the first chunk, of as many buckets as are needed: it is replaced by longer ones
  ref<ref<chunk>[]> directory;  ///< the chunks after it
};

constexpr std::size_t map_shards = 16;
constexpr unsigned shard_shift = 60;
constexpr std::size_t shard_of(std::uint64_t h) { return h >> shard_shift; }

constexpr std::uint64_t bucket_of(std::uint64_t h, std::uint64_t n) {
  const std::uint64_t half = std::bit_floor(n);
  const std::uint64_t b = h & (2 * half - 1);
  return b < n ? b : b - half;
}
/// How many bits of their ends the hashes of bucket `b` of `n` have in common: those of `b`.
constexpr unsigned bucket_bits(std::uint64_t b, std::uint64_t n) {
  const std::uint64_t half = std::bit_floor(n);
  return static_cast<unsigned>(std::countr_zero(half)) + (b >= half || b < n - half ? 1 : 0);
}

/// A hash, or a bucket, in the order of reversed bits.
constexpr std::uint64_t reversed(std::uint64_t h) {
  h = (h >> 1 & 0x5555555555555555) | (h & 0x5555555555555555) << 1;
  h = (h >> 2 & 0x3333333333333333) | (h & 0x3333333333333333) << 2;
  h = (h >> 4 & 0x0f0f0f0f0f0f0f0f) | (h & 0x0f0f0f0f0f0f0f0f) << 4;
  return __builtin_bswap64(h);
}
/// The last reversed hash of bucket `b` of `n`; its first is reversed(b).
constexpr std::uint64_t last_of_bucket(std::uint64_t b, std::uint64_t n) {
  return reversed(b) | ~std::uint64_t{0} >> bucket_bits(b, n);
}

template <class K, class V, class Hash, class Equal>
struct hash_shards;
template <class K, class V, class Hash, class Equal>
class hash_resize;
template <class Self, class K, class V, class Hash, class Equal>
class hash_writer;

/// The object behind a table: only the table's own members reach what is in it.
template <class K, class V, class Hash, class Equal>
class hash_table_header {
  template <class, class, class, class, class>
  friend class fm::hash_table;
  friend struct hash_shards<K, V, Hash, Equal>;
  template <class, class, class, class, class>
  friend class hash_writer;
  friend class hash_resize<K, V, Hash, Equal>;
  friend struct managed_traits<hash_table_header>;

  std::array<hash_shard<K, V, Hash, Equal>, map_shards> shards{};
};

}  // namespace fm::detail

/// The fields of a map's header, for reflection.
template <class K, class V, class Hash, class Equal>
struct fm::managed_traits<fm::detail::hash_table_header<K, V, Hash, Equal>> {
  /// All of them, in order.
  static auto fields(auto& self) { return std::tie(self.shards); }
};
