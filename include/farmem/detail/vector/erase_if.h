// fm::erase_if and fm::erase of vectors: elements are removed by what they hold.
//
// Invariant: an element is copied to its new place before anything is stored in its old one, and the size changes at the
// end. So an error loses no element that was not to be removed.
#pragma once

#include <algorithm>
#include <farmem/detail/vector/range.h>
#include <functional>

namespace fm {

/// Removes the elements for which `remove(element)` is true, and returns how many they were. It is asked once for each
/// element in order, outside of sections, and must not change the vector. O(n), with one barrier a chunk; chunks before
/// the first element that is removed stay clean. Iterators, mutable ranges and pins made before show old elements.
///
/// Basic: if `remove` throws, or a chunk cannot be reached, elements that it was asked about may stand twice, or not be
/// removed. All others are there, in order.
template <class T, class F>
std::uint64_t erase_if(const vector<T>& v, F remove) {
  const auto begin = v.begin(), end = v.end();
  const auto first = std::find_if(begin, end, std::ref(remove));
  if (first == end) return 0;
  const auto size = static_cast<std::uint64_t>(end - begin);
  auto kept = static_cast<std::uint64_t>(first - begin);
  {
    auto m = v.mutate();
    auto from = m.begin() + (first - begin);
    auto to = from;
    while (++from != m.end()) {
      auto&& e = *from;
      if constexpr (detail::is_ref<T>) {
        const typename vector<T>::value_type handle = e;
        if (remove(handle)) continue;
      } else {
        if (remove(std::as_const(e))) continue;
      }
      *to = e;
      ++to;
      ++kept;
    }
  }
  v.resize(kept);
  return size - kept;
}

/// Removes the elements that equal `value`, and returns how many they were. As erase_if.
template <class T, class U>
std::uint64_t erase(const vector<T>& v, const U& value) {
  if constexpr (std::is_same_v<U, typename vector<T>::argument>) {
    const typename vector<T>::value_type sought(value);
    return erase_if(v, [&](const typename vector<T>::value_type& e) { return e == sought; });
  } else {
    return erase_if(v, [&](const auto& e) { return e == value; });
  }
}

}  // namespace fm
