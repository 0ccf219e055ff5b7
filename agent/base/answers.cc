// Heads, bodies and texts of answers; see answers.h for who uses them.
// Invariant owned here: the length in an answer's head is the length of its body. Whatever appends keeps it so.
#include "answers.h"

namespace fm::agent {

void begin_answer(fabric::answer& out, message_type type, const void* fixed, std::size_t bytes) {
  const answer_head head{static_cast<std::uint16_t>(type), 0, 0};
  out.payload.clear();
  out.payload.reserve(sizeof head + bytes);
  const auto* p = reinterpret_cast<const std::byte*>(&head);
  out.payload.insert(out.payload.end(), p, p + sizeof head);
  append_answer(out, fixed, bytes);
}

void append_answer(fabric::answer& out, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* p = static_cast<const std::byte*>(data);
  out.payload.insert(out.payload.end(), p, p + bytes);
  const auto body_bytes = static_cast<std::uint32_t>(out.payload.size() - sizeof(answer_head));
  std::memcpy(out.payload.data() + offsetof(answer_head, body_bytes), &body_bytes, sizeof body_bytes);
}

errc refuse(fabric::answer& out, message_type type, errc code, const std::string& text) {
  begin_answer(out, type, text.data(), text.size());
  const auto c = static_cast<std::uint16_t>(code);
  std::memcpy(out.payload.data() + offsetof(answer_head, code), &c, sizeof c);
  return errc::ok;
}

std::string quoted(const std::string& s) {
  std::string q = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') q += '\\';
    q += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return q + '"';
}

}  // namespace fm::agent
