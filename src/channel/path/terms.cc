// The bounds of a channel's terms, for this program's options and for those of the other end; see terms.h.
#include "terms.h"

#include <fmt/format.h>

#include <algorithm>

#include "ring.h"

namespace fm::detail {

using namespace channel_wire;

channel_terms channel_terms::of(const channel_options& o) {
  const auto bad = [](const char* option, std::uint64_t value, const char* rule) {
    throw error(errc::invalid_argument, fmt::format("channel_options::{} is {}: {}", option, value, rule));
  };
  if (o.part < part_bytes_min || o.part > part_bytes_max || o.part % 8 != 0)
    bad("part", o.part, "it must be 1 KiB to 512 KiB, a multiple of 8");
  if (o.window < 4 * std::uint64_t{o.part} || o.window > window_bytes_max)
    bad("window", o.window, "it must be four parts at least and 1 GiB at most");
  if (o.window_parts < 4 || o.window_parts > window_parts_max)
    bad("window_parts", o.window_parts, "it must be 4 to 64");
  return {o.window, o.window_parts, o.part};
}

std::uint64_t channel_terms::ring_bytes() const noexcept { return ring_pair::bytes_for(window, window_parts, part); }

head channel_terms::hello() const noexcept {
  head h = make(kind::hello);
  h.a = window;
  h.b = std::uint64_t{part} << 32 | window_parts;
  return h;
}

errc channel_terms::agree(const head& theirs, channel_terms& mine) noexcept {
  const auto their_part = static_cast<std::uint32_t>(theirs.b >> 32);
  const auto their_parts = static_cast<std::uint32_t>(theirs.b);
  if (their_part < part_bytes_min || their_part > part_bytes_max || their_part % 8 != 0) return errc::bad_frame;
  if (theirs.a < 4 * std::uint64_t{their_part} || theirs.a > window_bytes_max) return errc::bad_frame;
  if (their_parts < 4 || their_parts > window_parts_max) return errc::bad_frame;
  mine.window = std::min(mine.window, theirs.a);
  mine.window_parts = std::min(mine.window_parts, their_parts);
  mine.part = std::min(mine.part, their_part);
  return errc::ok;
}

}  // namespace fm::detail
