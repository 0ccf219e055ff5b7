// Looking at a frame without touching it: whoever only wants to know what is in a frame does not make it warm. For collection.cc
// and census.cc.
#pragma once

#include <cstring>
#include <farmem/cache/object_cache.h>

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

/// The references in a payload of the type that `h` names, as they are now, null ones left out. The payload stays meanwhile. False for a
/// type without references.
inline bool read_refs(std::uint64_t h, const char* payload, std::vector<slot_t>& out) {
  out.clear();
  const type_descriptor* type = find_type(header::type(h));
  if (!type || type->ref_offsets.empty()) return false;
  const auto read = [&](const char* element) {
    for (const std::uint32_t at : type->ref_offsets)
      if (const slot_t s = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(element + at), __ATOMIC_ACQUIRE);
          s != 0)
        out.push_back(s);
  };
  if (type->kind == type_kind::object) {
    read(payload);
    return true;
  }
  std::uint64_t length = 0;
  std::memcpy(&length, payload, sizeof length);
  for (std::uint64_t i = 0; i < length; ++i) read(payload + 8 + i * type->bytes);
  return true;
}
inline bool read_refs(char* payload, std::vector<slot_t>& out) {
  return read_refs(frame::prefix(payload).header.load(std::memory_order_relaxed), payload, out);
}

}  // namespace fm::detail
