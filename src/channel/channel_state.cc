// How a channel breaks, and how an end tells the other one something by the session; see channel_state.h.
#include "channel_state.h"

#include <fmt/format.h>

#include <cstring>

#include "channel/path/message_path.h"

namespace fm::detail {

using namespace channel_wire;

channel_state::channel_state(const channel_terms& t, std::string n)
    : terms(t), name(std::move(n)), path(std::make_unique<message_path>(terms, transport)) {}

void channel_state::break_locked(errc why, std::string_view text) noexcept {
  if (broken == errc::ok) {
    broken = why;
    broken_at = clock::now();
    try {
      broken_text = text;
    } catch (const std::bad_alloc&) {  // then there is only the code
    }
  }
  changed.notify_all();
  path->kick();
}

void channel_state::break_channel(errc why, std::string_view text) noexcept {
  const std::lock_guard lock(mutex);
  break_locked(why, text);
}

void channel_state::break_rules_locked(std::string_view text) noexcept {
  const bool first = broken == errc::ok;
  break_locked(errc::bad_frame, text);
  if (first && transport) transport->drop();
}

void channel_state::throw_broken_locked() const {
  if (broken != errc::ok) throw error(broken, fmt::format("channel with {}: {}", name, broken_text));
}

errc channel_state::tell(head h, std::string_view text) noexcept {
  try {
    text = text.substr(0, text_bytes_max);
    h.bytes = static_cast<std::uint32_t>(text.size());
    std::vector<std::byte> message(sizeof h + text.size());
    std::memcpy(message.data(), &h, sizeof h);
    if (!text.empty()) std::memcpy(message.data() + sizeof h, text.data(), text.size());
    return transport->tell(message);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
}

}  // namespace fm::detail
