// Where ranges of managed trees begin and end: at a key, or at something else that a transparent Compare takes. A range
// outlives the call that made it, so it keeps a copy.
//
// Invariant: a Compare is asked about a bound as the program gave it, but for text, which it is shown as a
// std::string_view. Used by fm::map and fm::set only.
#pragma once

#include <farmem/detail/tree/keys.h>
#include <string>
#include <type_traits>

namespace fm::detail {

/// A bound whose characters a range keeps: not a key, text, and Compare takes a view of it.
template <class K, class Compare, class Q>
concept bound_of_text = !std::same_as<Q, K> && std::convertible_to<const Q&, std::string_view> &&
                        std::is_invocable_r_v<bool, Compare, const K&, std::string_view> &&
                        std::is_invocable_r_v<bool, Compare, std::string_view, const K&>;

template <class K, class Compare>
struct tree_bounds {
  using key_of = tree_key<K, Compare>;
  /// What a range keeps of a bound that is given as a `Q`.
  template <class Q>
  using kept = std::conditional_t<bound_of_text<K, Compare, Q>, std::string, std::decay_t<Q>>;

  /// What Compare is asked with.
  static decltype(auto) asked(const typename key_of::kept& key) { return key_of::lookup_of(key); }
  template <class Kept>
  requires(!std::same_as<Kept, typename key_of::kept>) static decltype(auto) asked(const Kept& bound) {
    if constexpr (bound_of_text<K, Compare, Kept>)
      return std::string_view(bound);
    else
      return (bound);
  }
  /// Whether a key is before a bound.
  template <class Q>
  static bool is_before(const typename key_of::lookup& key, const Q& bound) {
    if constexpr (std::same_as<Q, typename key_of::lookup>)
      return key_of::is_before(key, bound);
    else
      return Compare{}(key, bound);
  }
};

}  // namespace fm::detail
