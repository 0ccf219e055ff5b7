// Looking at a frame without touching it: whoever only wants to know what is in a frame does not make it warm. For
// collection.cc and census.cc.
#pragma once

#include "object_cache.h"

#include <algorithm>
#include <cstring>

namespace fm::detail {

/// Runs `f(payload)` if the word is resident; its frame stays meanwhile. In a section. False when it is not resident. What is
/// cold may be moved or dropped by whoever takes its lock, so the lock is taken; what is warm is nobody's to move.
template <class F>
bool with_frame(std::atomic<word_t>& word, F&& f) {
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (!word::is_resident(w)) return false;
    if (!word::is_cold(w)) {
      f(word::payload(w));
      return true;
    }
    if (word::is_busy(w)) {
      cpu_relax();
      continue;
    }
    if (!word.compare_exchange_weak(w, w | word::busy_bit, std::memory_order_acq_rel)) continue;
    f(word::payload(w));
    word.fetch_and(~word::busy_bit, std::memory_order_acq_rel);
    return true;
  }
}

/// Calls `f(slot)` for the references in a payload of the type that `h` names, as they are now, null ones left out: those of up
/// to `elements` of its elements from `from` on. The payload stays meanwhile. How many elements it has: 1 unless it is an
/// array, 0 for a type without references.
template <class F>
std::uint64_t for_each_ref(std::uint64_t h, const char* payload, std::uint64_t from, std::uint64_t elements, F&& f) {
  const type_descriptor* type = find_type(header::type(h));
  if (!type || type->ref_offsets.empty()) return 0;
  std::uint64_t length = 1;
  if (type->kind == type_kind::array) {
    std::memcpy(&length, payload, sizeof length);
    payload += sizeof length;
  }
  const std::uint64_t end = from < length ? from + std::min(elements, length - from) : from;
  for (std::uint64_t i = from; i < end; ++i)
    for (const std::uint32_t at : type->ref_offsets)
      if (const slot_t s =
              __atomic_load_n(reinterpret_cast<const std::uint64_t*>(payload + i * type->bytes + at), __ATOMIC_ACQUIRE);
          s != 0)
        f(s);
  return length;
}

/// All of them; false for a type without references.
inline bool read_refs(std::uint64_t h, const char* payload, std::vector<slot_t>& out) {
  out.clear();
  return for_each_ref(h, payload, 0, ~std::uint64_t{0}, [&](slot_t s) { out.push_back(s); }) != 0;
}
inline bool read_refs(char* payload, std::vector<slot_t>& out) {
  return read_refs(frame::prefix(payload).header.load(std::memory_order_relaxed), payload, out);
}

}  // namespace fm::detail
