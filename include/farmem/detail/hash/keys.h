// Keys of managed hash tables: how they are hashed, compared and stored. Plain keys lie in the pages. Text lies behind a
// reference, with its hash beside it.
//
// Hash and Equal of a table may be the program's. Where they are constant expressions, they take no lock and wait for
// nothing, and keys are hashed and compared in place. All others run under no lock (shard_lock.h) and in no section. So
// the hash lies beside the key. A reader compares copies of the keys with that hash. A writer does, too, while nobody
// changes those keys, and then looks for the bytes of the one that is equal.
//
// Invariants owned here
//   - The hash of a stored key never changes, and equal keys have equal hashes if the program's functions say so.
//   - No function of the program is shown a key that a writer is changing.
//
// Used by the pages and tables of fm::hash_map and fm::hash_set only.
#pragma once

#include <array>
#include <concepts>
#include <cstring>
#include <farmem/containers/string.h>
#include <farmem/detail/shard_lock.h>
#include <functional>
#include <optional>

namespace fm::detail {

/// What comparing a key with one in a page gives; torn: a writer is changing it.
enum class match : std::uint8_t { no, yes, torn };

/// Keys are equal by a function that is a constant expression. Of any other that is not known.
template <class K, class Equal = std::equal_to<K>>
concept constant_equality = requires {
  typename std::bool_constant<((void)(Equal{}(K{}, K{})), true)>;
};
template <class K, class Hash>
concept constant_hash = requires {
  typename std::bool_constant<((void)(Hash{}(K{})), true)>;
};
template <class K>
concept has_std_hash = requires(const K& k) {
  std::size_t{std::hash<K>{}(k)};
};
/// Nobody has said how a key is hashed: its bytes are.
template <class K, class Hash = std::hash<K>>
concept hashed_by_bytes = std::same_as<Hash, std::hash<K>> && std::has_unique_object_representations_v<K> &&
    (std::is_scalar_v<K> || !has_std_hash<K>);
/// Hashed by bytes, by the standard library, or by a function that is a constant expression.
template <class K, class Hash = std::hash<K>>
concept hashed_in_place =
    hashed_by_bytes<K, Hash> ||(std::same_as<Hash, std::hash<K>>&& std::is_scalar_v<K>) || constant_hash<K, Hash>;
/// A key that functions of the program compare or hash, which may wait.
template <class K, class Hash = std::hash<K>, class Equal = std::equal_to<K>>
concept key_of_program = !std::same_as<K, string> && !(constant_equality<K, Equal> && hashed_in_place<K, Hash>);

/// Keys may be looked up by other types than their own.
template <class K, class Hash, class Equal>
concept transparent = !std::same_as<K, string> && requires {
  typename Hash::is_transparent;
  typename Equal::is_transparent;
};

/// Spreads the result of a hash function, which may be the identity.
inline std::uint64_t mix_hash(std::uint64_t h) { return hash_bytes(&h, sizeof h); }

template <class K, class Hash>
std::uint64_t hash_plain(const K& k) {
  if constexpr (hashed_by_bytes<K, Hash>)
    return hash_bytes(&k, sizeof k);
  else
    return mix_hash(Hash{}(k));
}

/// A key of a plain type, stored as it is.
template <class K, class Hash = std::hash<K>, class Equal = std::equal_to<K>>
struct map_key {
  using stored = K;
  using lookup = K;  ///< what the program asks with
  using value = K;   ///< what it is shown
  using image = K;   ///< what a writer knows a stored key by

  static std::uint64_t hash(const K& k) { return hash_plain<K, Hash>(k); }
  static std::uint64_t hash_of(const stored& s) { return hash(s); }
  /// The hash as a reader sees it; nothing if a writer is changing the key.
  static std::optional<std::uint64_t> seen_hash(const stored& s, const shard_snapshot& seen) {
    const K key = load_shared(s);
    if (!single_word<K> && !seen.holds()) return std::nullopt;
    return hash(key);
  }
  template <class Q>
  static match equal(const stored& s, std::uint64_t, const Q& k, const shard_snapshot& seen) {
    const K stored_key = load_shared(s);
    if (!single_word<K> && !seen.holds()) return match::torn;
    return Equal{}(stored_key, k) ? match::yes : match::no;
  }
  static image image_of(const stored& s) { return s; }
  static stored make(object_cache&, std::uint64_t, const lookup& k) { return k; }
  static void place(stored& to, const stored& k) { store_shared(to, k); }
  static void move(stored& to, const stored& from) { store_shared(to, from); }
  static void clear(stored& s) { store_shared(s, stored{}); }
  static value show(const stored& s) { return load_shared(s); }
};

template <class K>
struct program_key {
  std::uint64_t hash = 0;
  K key{};
};
template <class K, class Hash, class Equal>
requires key_of_program<K, Hash, Equal>
struct map_key<K, Hash, Equal> {
  using stored = program_key<K>;
  using lookup = K;
  using value = K;
  using image = std::array<std::byte, sizeof(K)>;  ///< the very bytes of a stored key, padding included

  static std::uint64_t hash(const K& k) { return hash_plain<K, Hash>(k); }
  static std::uint64_t hash_of(const stored& s) { return load_shared(s.hash); }
  static std::optional<std::uint64_t> seen_hash(const stored& s, const shard_snapshot&) { return hash_of(s); }
  /// Without Equal. Under the lock.
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
template <class Hash, class Equal>
struct map_key<string, Hash, Equal> {
  using stored = text_key;
  using lookup = std::string_view;
  using value = string;
  using image = slot_t;
  struct made {
    std::uint64_t hash;
    string text;
  };

  static std::uint64_t hash(std::string_view k) {
    if constexpr (std::same_as<Hash, std::hash<string>>)
      return string::hash_of(k);
    else
      return mix_hash(Hash{}(k));
  }
  static std::uint64_t hash_of(const stored& s) { return s.hash; }
  static std::optional<std::uint64_t> seen_hash(const stored& s, const shard_snapshot&) { return load_shared(s.hash); }
  /// In a section. Texts never change, so only which one it is may be of the wrong moment.
  static match equal(const stored& s, std::uint64_t h, std::string_view k, const shard_snapshot& seen) {
    if (load_shared(s.hash) != h) return match::no;
    const slot_t slot = s.text.slot();
    if (slot == 0) return seen.holds() ? match::no : match::torn;
    const auto* text = object_at<array_object<char>>(slot);
    return same_text(std::string_view(text->data(), text->size()), k) ? match::yes : match::no;
  }
  /// Under the lock.
  static match equal(const stored& s, std::uint64_t, image i, const shard_snapshot&) {
    return s.text.slot() == i ? match::yes : match::no;
  }
  static image image_of(const stored& s) { return s.text.slot(); }
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

 private:
  static bool same_text(std::string_view a, std::string_view b) {
    if constexpr (std::same_as<Equal, std::equal_to<string>>) {
      return a == b;
    } else {
      static_assert(constant_equality<std::string_view, Equal>,
                    "farmem: the Equal of a table of texts is constexpr and compares two std::string_view");
      return Equal{}(a, b);
    }
  }
};

/// What a table demands of its parameters.
template <class K, class Hash, class Equal>
consteval void check_key() {
  static_assert(std::same_as<K, string> || std::is_trivially_copyable_v<K>,
                "farmem: a key is a trivially copyable value or fm::string");
  static_assert(std::same_as<Hash, std::hash<K>> || (std::is_empty_v<Hash> && std::is_default_constructible_v<Hash>),
                "farmem: the Hash of a table has no state: it must be the same in every process");
  static_assert(std::is_empty_v<Equal> && std::is_default_constructible_v<Equal>,
                "farmem: the Equal of a table has no state: it must be the same in every process");
  if constexpr (!std::same_as<K, string>) {
    check_element<K>();
    static_assert(!std::same_as<Hash, std::hash<K>> || hashed_by_bytes<K, Hash> || has_std_hash<K>,
                  "farmem: a key with padding or floating-point members needs a std::hash, or a Hash of the table");
  }
}

}  // namespace fm::detail
