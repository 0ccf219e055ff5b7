// fm::prefetch: fetches objects before they are needed. It posts one-sided reads and returns. A later access finds the
// object resident, or waits for the rest of its fetch only. Prefetching is a hint: it never waits for memory, and it
// never throws for an object that cannot be fetched. The later access does, and reports errors.
#pragma once

#include <algorithm>
#include <concepts>
#include <farmem/handles/ptr.h>
#include <span>

namespace fm {
namespace detail {

/// Fetches at most this many objects at once a thread and heap (mutator::fetches_max).
constexpr std::size_t prefetch_chunk = 64;

/// Posts fetches of those objects of `slots` that are not resident, of any heaps. Returns how many were posted.
std::size_t prefetch_slots(std::span<const slot_t> slots);

template <class H>
concept handle = requires(const H& h) {
  { h.slot() } -> std::same_as<slot_t>;
};

}  // namespace detail

/// Starts to fetch one object. Returns whether a fetch was posted: not if `p` is null, or if its object is resident or
/// being fetched. O(1), never waits, throws nothing for an object that cannot be fetched.
template <class T>
bool prefetch(const ptr<T>& p) {
  const detail::slot_t s = p.slot();
  return detail::prefetch_slots({&s, 1}) != 0;
}
/// Starts to fetch the object that a field refers to. As for fm::ptr.
template <class T>
bool prefetch(const ref<T>& r) {
  const detail::slot_t s = r.slot();
  return detail::prefetch_slots({&s, 1}) != 0;
}

/// Starts to fetch the objects of a range of fm::ptr or fm::ref, such as a vector of roots or a std::span<const
/// fm::ref<T>>. Returns how many fetches were posted. It stops if this thread has 64 fetches in flight in a heap, or if
/// memory is short. For a longer range, call it again as the program proceeds. O(n).
template <std::ranges::input_range Range>
requires detail::handle<std::remove_cvref_t<std::ranges::range_reference_t<Range>>> std::size_t prefetch(
    Range&& handles) {
  detail::slot_t slots[detail::prefetch_chunk];
  std::size_t n = 0, posted = 0;
  for (const auto& h : handles) {
    slots[n++] = h.slot();
    if (n < detail::prefetch_chunk) continue;
    posted += detail::prefetch_slots({slots, n});
    n = 0;
  }
  return posted + detail::prefetch_slots({slots, n});
}

}  // namespace fm
