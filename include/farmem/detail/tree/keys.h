// Keys of managed trees: how they are ordered and stored. Plain keys lie in the nodes. Text lies behind a reference, with
// its head beside it: 15 bytes and how many there are. Heads decide unless both texts are longer and begin alike, so
// looking a text up touches few others (as the key slices of Masstree; Mao, Kohler, Morris, EuroSys 2012, section 4.2).
//
// Compare may be the program's. Where it is a constant expression, it takes no lock and waits for nothing, and keys are
// compared in place. Any other runs under no lock and in no section, on copies of keys (tree/program.h).
//
// Invariant: no function of the program is shown a key that a writer is changing. Used by fm::map and fm::set only.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <farmem/containers/string.h>
#include <farmem/detail/tree/locks.h>
#include <functional>

namespace fm::detail {

/// Keys are ordered by a function that is a constant expression.
template <class K, class Compare>
concept constant_order = requires {
  typename std::bool_constant<((void)(Compare{}(K{}, K{})), true)>;
};
/// A key that a function of the program compares, which may wait.
template <class K, class Compare>
concept order_of_program = !std::same_as<K, string> && !constant_order<K, Compare>;
/// Keys may be looked up by other types than their own.
template <class K, class Compare>
concept transparent_order = !std::same_as<K, string> && requires {
  typename Compare::is_transparent;
};

/// Result of comparing with a key in a leaf; torn: a writer is changing it.
enum class answer : std::uint8_t { no, yes, torn };
constexpr answer answer_of(bool b) { return b ? answer::yes : answer::no; }

/// A key of a plain type, stored as it is.
template <class K, class Compare>
struct tree_key {
  using stored = K;
  using lookup = K;  ///< what the program asks with
  using value = K;   ///< what it is shown
  using kept = K;    ///< what a walk remembers
  using made = K;    ///< what a writer stores

  template <class Q>
  static const Q& sought(const Q& q) {
    return q;
  }
  static const K& lookup_of(const kept& k) { return k; }

  /// Whether a key in a node is before `q`, or after it. In nodes that change, `seen` says what may be believed.
  template <class Q>
  static answer before(const stored& s, const Q& q, const shard_snapshot* seen) {
    const K key = load_shared(s);
    if (!single_word<K> && seen != nullptr && !seen->holds()) return answer::torn;
    return answer_of(Compare{}(key, q));
  }
  template <class Q>
  static answer after(const stored& s, const Q& q, const shard_snapshot* seen) {
    const K key = load_shared(s);
    if (!single_word<K> && seen != nullptr && !seen->holds()) return answer::torn;
    return answer_of(Compare{}(q, key));
  }
  static bool is_before(const lookup& a, const lookup& b) { return Compare{}(a, b); }

  static made make(object_cache&, const lookup& k) { return k; }
  static void place(stored& to, const made& k) { store_shared(to, k); }
  static void move(stored& to, const stored& from) { store_shared(to, from); }
  static void clear(stored& s) { store_shared(s, stored{}); }
  static value show(const stored& s) { return load_shared(s); }
  static kept keep(const stored& s) { return load_shared(s); }
  /// A number of a stored key, the same while it is there. Under the lock of its leaf.
  static std::uint64_t number_of(const stored& s) {
    std::array<std::byte, sizeof(K)> bytes;
    std::memcpy(bytes.data(), &s, sizeof(K));
    return hash_bytes(bytes.data(), bytes.size());
  }
};

/// The first 15 bytes of a text and min(size, 16), as two numbers in the order of the texts.
struct text_head {
  static constexpr std::size_t bytes = 15;
  std::uint64_t first = 0;
  std::uint64_t rest = 0;

  static text_head of(std::string_view t) {
    std::array<unsigned char, 16> b{};
    std::memcpy(b.data(), t.data(), std::min(t.size(), bytes));
    b[bytes] = static_cast<unsigned char>(std::min<std::size_t>(t.size(), bytes + 1));
    text_head h;
    std::memcpy(&h.first, b.data(), 8);
    std::memcpy(&h.rest, b.data() + 8, 8);
    return {__builtin_bswap64(h.first), __builtin_bswap64(h.rest)};
  }
  /// Bytes of the whole text; above 15 if there are more than the head has.
  [[nodiscard]] std::size_t size() const { return rest & 0xff; }
  /// The text, if the head has all of it.
  [[nodiscard]] std::string text() const {
    const std::array<std::uint64_t, 2> words{__builtin_bswap64(first), __builtin_bswap64(rest)};
    return std::string(reinterpret_cast<const char*>(words.data()), std::min(size(), bytes));
  }
  auto operator<=>(const text_head&) const = default;
};

struct headed_text {
  text_head head;
  ref<string> text;
};
template <class Compare>
struct tree_key<string, Compare> {
  static constexpr bool by_bytes = std::same_as<Compare, std::less<string>>;
  static_assert(by_bytes || constant_order<std::string_view, Compare>,
                "farmem: the Compare of a tree of texts is constexpr and compares two std::string_view");
  using stored = headed_text;
  using lookup = std::string_view;
  using value = string;
  using kept = std::string;
  struct made {
    text_head head;
    string text;
  };
  struct asked {
    std::string_view text;
    text_head head;
  };

  static asked sought(std::string_view t) { return {t, text_head::of(t)}; }
  static std::string_view lookup_of(const kept& k) { return k; }

  /// In a section, as all that looks at texts.
  static answer before(const stored& s, const asked& q, const shard_snapshot* seen) {
    if constexpr (by_bytes) {
      const text_head h = head_of(s);
      if (h != q.head || h.size() <= text_head::bytes) return answer_of(h < q.head);
    }
    return with_text(s, seen, [&](std::string_view t) { return is_before(t, q.text); });
  }
  static answer after(const stored& s, const asked& q, const shard_snapshot* seen) {
    if constexpr (by_bytes) {
      const text_head h = head_of(s);
      if (h != q.head || h.size() <= text_head::bytes) return answer_of(q.head < h);
    }
    return with_text(s, seen, [&](std::string_view t) { return is_before(q.text, t); });
  }
  static bool is_before(std::string_view a, std::string_view b) {
    if constexpr (by_bytes)
      return a < b;
    else
      return Compare{}(a, b);
  }

  static made make(object_cache& cache, std::string_view k) { return {text_head::of(k), string(cache, k)}; }
  static void place(stored& to, const made& k) {
    store_shared(to.head, k.head);
    to.text = k.text;
  }
  static void move(stored& to, const stored& from) {
    store_shared(to.head, from.head);
    element<ref<string>>::move(to.text, from.text);
  }
  static void clear(stored& s) {
    store_shared(s.head, text_head{});
    s.text = nullptr;
  }
  static value show(const stored& s) { return string(s.text); }
  /// Of a key that no writer changes.
  static kept keep(const stored& s) {
    if (s.head.size() <= text_head::bytes) return s.head.text();
    kept k;
    (void)with_text(s, nullptr, [&](std::string_view t) { return k = t, true; });
    return k;
  }
  static std::uint64_t number_of(const stored& s) { return s.text.slot(); }

 private:
  static text_head head_of(const stored& s) { return load_shared(s.head); }
  /// Texts never change, so only which one it is may be of the wrong moment.
  template <class F>
  static answer with_text(const stored& s, const shard_snapshot* seen, F&& f) {
    const slot_t slot = s.text.slot();
    if (slot == 0 || (seen != nullptr && !seen->holds())) return answer::torn;
    const user_section in_section;  // what it hands out is given back
    const auto* text = object_at<array_object<char>>(slot);
    return answer_of(f(std::string_view(text->data(), text->size())));
  }
};

/// Holds a tree's parameters to its demands.
template <class K, class Compare>
consteval void check_ordered_key() {
  static_assert(std::same_as<K, string> || std::is_trivially_copyable_v<K>,
                "farmem: a key is a trivially copyable value or fm::string");
  static_assert(std::is_empty_v<Compare> && std::is_default_constructible_v<Compare>,
                "farmem: the Compare of a tree has no state: it must be the same in every process");
  if constexpr (!std::same_as<K, string>) check_element<K>();
}

}  // namespace fm::detail
