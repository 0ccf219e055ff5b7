// fm::prefetch: fetching ahead of need. Posts one-sided reads and returns; the access that comes later finds the object
// resident, or waits only for the rest of its fetch. A hint in every respect: it never waits for memory and never
// throws for an object that cannot be had, and what it did not do, the access does.
#pragma once

#include <concepts>
#include <farmem/ptr.h>
#include <ranges>
#include <span>

namespace fm {
namespace detail {

/// Fetches at most this many objects at once a thread and heap (mutator::fetches_max).
constexpr std::size_t prefetch_chunk = 64;

/// Posts fetches for what is away among `slots`, of any heaps; returns how many were posted.
std::size_t prefetch_slots(std::span<const slot_t> slots);

template <class H>
concept handle = requires(const H& h) {
  { h.slot() } -> std::same_as<slot_t>;
};

}  // namespace detail

/// Starts fetching one object; true when a fetch was posted (not when it is null, resident, or on its way).
template <class T>
bool prefetch(const ptr<T>& p) {
  const detail::slot_t s = p.slot();
  return detail::prefetch_slots({&s, 1}) != 0;
}
template <class T>
bool prefetch(const ref<T>& r) {
  const detail::slot_t s = r.slot();
  return detail::prefetch_slots({&s, 1}) != 0;
}

/// Starts fetching the objects of a range of fm::ptr or fm::ref: a vector of roots, a std::span<const fm::ref<T>>, an array
/// of refs in a scope. Returns how many fetches were posted. It stops when this thread has 64 of them in flight in a
/// heap, or memory is short: a caller that has more calls it again as it goes. O(n), of which the heap is asked 64 at a time.
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
