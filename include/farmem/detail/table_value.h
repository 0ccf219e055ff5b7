// Values of managed tables, hashed and ordered: how they lie in a page beside readers, and how a lookup gives them out.
//
// Invariant: a value of one word is stored and loaded as a whole; of one of more words, a reader needs a snapshot that
// held (shard_lock.h). Used by the maps and sets of the library only.
#pragma once

#include <farmem/detail/shard_lock.h>

namespace fm {

/// Result of looking up a reference: a handle, null if there was no such key. It can also be used as an optional.
template <class Handle>
class found : public Handle {
 public:
  /// No value.
  found() noexcept = default;
  /// The value `h`.
  found(Handle h) noexcept : Handle(std::move(h)) {}
  /// Whether there was such a key.
  [[nodiscard]] bool has_value() const noexcept { return static_cast<bool>(*this); }
  /// The handle; null if there was no such key.
  const Handle& operator*() const& noexcept { return *this; }
  /// The same of a temporary, by value: a loop over it keeps it.
  const Handle operator*() && noexcept { return std::move(*this); }
  /// The handle. Throws not_found if there was no such key.
  [[nodiscard]] const Handle& value() const& {
    check();
    return *this;
  }
  /// The same of a temporary, by value.
  [[nodiscard]] const Handle value() && {
    check();
    return std::move(*this);
  }

 private:
  void check() const {
    if (!has_value()) throw error(errc::not_found, "no such key");
  }
};

namespace detail {

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

/// The bytes of a value, padding included.
template <class V>
using value_words = std::array<typename shared_words<V>::unsigned_word, shared_words<V>::count>;
template <class V>
value_words<V> load_words(const V& v) noexcept {
  value_words<V> words;
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = __atomic_load_n(reinterpret_cast<const typename shared_words<V>::word*>(&v) + i, __ATOMIC_ACQUIRE);
  return words;
}

/// The value of a key of a set.
enum class no_value : std::uint8_t { none };

}  // namespace detail
}  // namespace fm
