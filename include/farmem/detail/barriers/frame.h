// A frame: an object's bytes in the local cache. Frames are bump-allocated in segments, back to back.
//
//   -24  home    8 bytes   hint of the home copy these bytes came from or went to; 0: never written back
//   -16  pins    4 bytes   how many pins hold the frame in place
//   -12  shape   4 bytes   writing | elastic | used | size in units of 16 bytes (24)
//    -8  header  8 bytes   type and slot, as in the home copy; 0: nothing installed (yet)
//     0  payload           16-aligned; what a resident word points to
//
// The prefix (home, pins, shape) never travels. `home` and the flags of `shape` are written under the word's busy bit,
// or before the word is published. `pins` is written by whoever is in a section and has resolved the object.
//
// Barriers and pins use the prefix; everything else in it belongs to src/cache.
#pragma once

#include <atomic>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

struct frame_prefix {
  std::atomic<word_t> home;
  std::atomic<std::uint32_t> pins;
  std::atomic<std::uint32_t> shape;
  std::atomic<std::uint64_t> header;
};
static_assert(sizeof(frame_prefix) == 24);

namespace frame {

constexpr std::uint32_t writing_bit = 1u << 31;  ///< a write-back of this object is not yet acknowledged
constexpr std::uint32_t elastic_bit = 1u << 30;  ///< came with a neighbour's fetch and was not touched since
constexpr std::uint32_t used_bit = 1u << 28;     ///< used again since it came: it moves on instead of leaving
constexpr std::uint32_t units_mask = (1u << 24) - 1;
constexpr std::uint64_t unit_bytes = 16;

inline frame_prefix& prefix(char* payload) { return *reinterpret_cast<frame_prefix*>(payload - sizeof(frame_prefix)); }
constexpr std::uint64_t total_bytes(std::uint64_t payload_bytes) {
  return round_up(sizeof(frame_prefix) + payload_bytes, unit_bytes);
}
inline std::uint64_t total_bytes_of(char* payload) {
  return (prefix(payload).shape.load(std::memory_order_relaxed) & units_mask) * unit_bytes;
}
/// Where the header stands: what fetches read into and write-backs copy from.
inline char* home_copy(char* payload) { return payload - header::bytes; }

}  // namespace frame
}  // namespace fm::detail
