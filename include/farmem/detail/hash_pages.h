// The objects of a managed map: a header of shards. A shard is a linear-hashing table, a vector of references to pages
// of a few entries, which overflow into further pages. Also: how keys are stored, compared and hashed.
//
// Invariants owned here
//   - An entry with hash h is in shard h >> 60, in the chain of bucket bucket_of(h, buckets).
//   - A page's entries are its first `count`, and the rest of it is zero.
//   - Readers take no lock (shard_lock.h). So keys, values, counts and the number of buckets are stored with release,
//     and an entry before the count that covers it.
//
// Used by fm::hash_map only.
#pragma once

#include <cstring>
#include <farmem/detail/shard_lock.h>
#include <farmem/string.h>
#include <farmem/vector.h>
#include <optional>

namespace fm::detail {

/// What comparing a key with one in a page gives; torn: a writer is changing it.
enum class match : std::uint8_t { no, yes, torn };

/// Keys are equal by an == that is a constant expression, so it takes no lock and waits for nothing. Of any other ==
/// that is not known.
template <class K>
concept constant_equality = requires {
  typename std::bool_constant<((void)(K{} == K{}), true)>;
};
/// Hashed by bytes, or by the standard library.
template <class K>
concept hashed_here = std::has_unique_object_representations_v<K> || std::is_scalar_v<K>;
/// A key that functions of the program compare or hash. They run under no lock (shard_lock.h) and in no section. So the
/// hash lies beside the key. A reader compares copies of the keys with that hash. A writer does, too, while nobody
/// changes those keys, and then looks for the bytes of the one that is equal.
template <class K>
concept key_of_program = !std::is_same_v<K, string> && !(constant_equality<K> && hashed_here<K>);

/// A key of a plain type, stored as it is.
template <class K>
struct map_key {
  using stored = K;
  using lookup = K;  ///< what the program asks with
  using value = K;   ///< what it is shown

  static std::uint64_t hash(const K& k) {
    if constexpr (std::has_unique_object_representations_v<K>)
      return hash_bytes(&k, sizeof k);
    else
      return mix(std::hash<K>{}(k));
  }
  static std::uint64_t hash_of(const stored& s) { return hash(s); }
  static match equal(const stored& s, std::uint64_t, const lookup& k, const shard_snapshot& seen) {
    const K stored_key = load_shared(s);
    // The program's == is never shown half a key.
    if (!single_word<K> && !seen.holds()) return match::torn;
    return stored_key == k ? match::yes : match::no;
  }
  static stored make(object_cache&, std::uint64_t, const lookup& k) { return k; }
  static void place(stored& to, const stored& k) { store_shared(to, k); }
  static void move(stored& to, const stored& from) { store_shared(to, from); }
  static void clear(stored& s) { store_shared(s, stored{}); }
  static value show(const stored& s) { return load_shared(s); }

 private:
  static std::uint64_t mix(std::uint64_t h) { return hash_bytes(&h, sizeof h); }
};

template <class K>
struct program_key {
  std::uint64_t hash = 0;
  K key{};
};
template <key_of_program K>
struct map_key<K> {
  using stored = program_key<K>;
  using lookup = K;
  using value = K;
  using image = std::array<std::byte, sizeof(K)>;  ///< the very bytes of a stored key, padding included

  static std::uint64_t hash(const K& k) {
    if constexpr (std::has_unique_object_representations_v<K>) {
      return hash_bytes(&k, sizeof k);
    } else {
      const std::uint64_t h = std::hash<K>{}(k);
      return hash_bytes(&h, sizeof h);
    }
  }
  static std::uint64_t hash_of(const stored& s) { return load_shared(s.hash); }
  /// Without ==. Under the lock.
  static match equal(const stored& s, std::uint64_t h, const std::optional<image>& i, const shard_snapshot&) {
    return i && s.hash == h && image_of(s) == *i ? match::yes : match::no;
  }
  /// Under the lock.
  static image image_of(const stored& s) {
    image i;
    std::memcpy(i.data(), &s.key, sizeof(K));
    return i;
  }
  static stored make(object_cache&, std::uint64_t h, const lookup& k) { return {h, k}; }
  static void place(stored& to, const stored& k) { move(to, k); }
  static void move(stored& to, const stored& from) {
    store_shared(to.hash, from.hash);
    store_shared(to.key, from.key);
  }
  static void clear(stored& s) { move(s, stored{}); }
  static value show(const stored& s) { return load_shared(s.key); }
};

/// Text as a key: its hash lies beside the reference, so that growing touches no text and asking touches one.
struct text_key {
  std::uint64_t hash = 0;
  ref<string> text;
};
template <>
struct map_key<string> {
  using stored = text_key;
  using lookup = std::string_view;
  using value = string;
  struct made {
    std::uint64_t hash;
    string text;
  };

  static std::uint64_t hash(std::string_view k) { return string::hash_of(k); }
  static std::uint64_t hash_of(const stored& s) { return s.hash; }
  /// In a section. Texts never change, so only which one it is may be of the wrong moment.
  static match equal(const stored& s, std::uint64_t h, std::string_view k, const shard_snapshot& seen) {
    if (load_shared(s.hash) != h) return match::no;
    const slot_t slot = s.text.slot();
    if (slot == 0) return seen.holds() ? match::no : match::torn;
    const auto* text = object_at<array_object<char>>(slot);
    return std::string_view(text->data(), text->size()) == k ? match::yes : match::no;
  }
  static made make(object_cache& cache, std::uint64_t h, std::string_view k) { return {h, string(cache, k)}; }
  static void place(stored& to, const made& k) {
    store_shared(to.hash, k.hash);
    to.text = k.text;
  }
  static void move(stored& to, const stored& from) {
    store_shared(to.hash, from.hash);
    element<ref<string>>::move(to.text, from.text);
  }
  static void clear(stored& s) {
    store_shared(s.hash, std::uint64_t{0});
    s.text = nullptr;
  }
  static value show(const stored& s) { return string(s.text); }
};

/// A value in a page: element (container.h), for readers that come along meanwhile.
template <class V>
struct map_value : element<V> {
  static V load(const V& v) { return load_shared(v); }
  static void store(V& to, const V& v) { store_shared(to, v); }
  static void clear(V& v) { store_shared(v, V{}); }
  static void move(V& to, const V& from) { store_shared(to, from); }
};
template <class U>
struct map_value<ref<U>> : element<ref<U>> {};

/// Some entries of one bucket; about 256 bytes.
template <class K, class V>
struct hash_page {
  static constexpr std::uint64_t entries =
      std::clamp<std::uint64_t>(240 / (sizeof(typename map_key<K>::stored) + sizeof(V)), 4, 16);

  std::uint64_t count = 0;
  ref<hash_page> next;
  std::array<typename map_key<K>::stored, entries> keys{};
  std::array<V, entries> values{};
};

template <class K, class V>
struct hash_shard {
  std::atomic<std::uint64_t> size{0};
  ref<vector<ref<hash_page<K, V>>>> buckets;
};

constexpr std::size_t map_shards = 16;
constexpr std::size_t shard_of(std::uint64_t h) { return h >> 60; }

/// Linear hashing (Litwin, VLDB 1980): with `n` buckets, those below n - 2^k are split already.
constexpr std::uint64_t bucket_of(std::uint64_t h, std::uint64_t n) {
  const std::uint64_t half = std::bit_floor(n);
  const std::uint64_t b = h & (2 * half - 1);
  return b < n ? b : b - half;
}

template <class K, class V>
struct hash_map_header {
  std::array<hash_shard<K, V>, map_shards> shards{};
};

}  // namespace fm::detail
