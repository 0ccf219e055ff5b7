// Checking the head of a channel's message, and making its text fit to be shown; see channel_messages.h. Allocates nothing but the
// text, keeps no state, and takes nothing on trust. Any thread may call it.
#include "channel_messages.h"
#include "base/text.h"

#include <algorithm>
#include <cstring>

namespace fm::detail::channel_wire {

errc decode(std::span<const std::byte> message, head& h, std::span<const std::byte>& payload,
            std::uint64_t rest) noexcept {
  if (message.size() < sizeof h) return errc::bad_frame;
  std::memcpy(&h, message.data(), sizeof h);
  __asm__ volatile("" ::: "memory");  // the head that is checked is the one that is used: the message may change
  if (h.magic != magic) return errc::bad_frame;
  if (h.version != version_major) return errc::version_mismatch;
  payload = message.subspan(sizeof h);
  if (h.zero != 0 || h.bytes != payload.size() + rest || to_string(static_cast<errc>(h.status)) == "unknown_error")
    return errc::bad_frame;
  const auto k = static_cast<kind>(h.kind);
  const bool part = k == kind::part;
  if (!part && (h.flags & ~(k == kind::hello ? flag_ring | flag_stream : 0)) != 0) return errc::bad_frame;
  if (k == kind::hello && h.flags == (flag_ring | flag_stream)) return errc::bad_frame;
  const bool text = k == kind::verdict || k == kind::describe;
  if (k == kind::aside && (h.bytes == 0 || h.bytes > aside_bytes_max)) return errc::bad_frame;
  if (!part && !text && k != kind::aside && h.bytes != 0) return errc::bad_frame;
  if (text && h.bytes > text_bytes_max) return errc::bad_frame;
  const auto ok = static_cast<std::uint16_t>(errc::ok);
  switch (k) {
    case kind::part:
      if ((h.flags & ~flags_known) != 0) return errc::bad_frame;
      if ((h.flags & flag_abort) != 0)
        return h.status != ok && (h.flags & flag_last) == 0 && h.bytes <= text_bytes_max ? errc::ok : errc::bad_frame;
      if (h.status != ok || h.bytes % 8 != 0 || h.bytes > part_bytes_max) return errc::bad_frame;
      return (h.flags & flag_first) != 0 && h.bytes < 8 ? errc::bad_frame : errc::ok;
    case kind::verdict: return errc::ok;
    case kind::hello:
    case kind::credit:
    case kind::ask:
    case kind::describe:
    case kind::want:
    case kind::aside:
    case kind::bye: return h.status == ok ? errc::ok : errc::bad_frame;
  }
  return errc::bad_frame;
}

std::string text_of(std::span<const std::byte> bytes) {
  return readable_text(bytes.first(std::min<std::size_t>(bytes.size(), 2048)));
}

}  // namespace fm::detail::channel_wire
