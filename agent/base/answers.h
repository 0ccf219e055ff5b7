// Taking messages apart and putting answers together; every part of the agent that answers messages uses it.
//
// A body is untrusted: nothing is read beyond its end, and every handler checks all fields before it applies any. A
// refusal is an answer, because the session goes on; what a correct owner cannot send ends the connection.
#pragma once

#include "agent/base/protocol.h"
#include "fabric/server/server.h"

#include <cstring>
#include <span>
#include <string>

namespace fm::agent {

using body = std::span<const std::byte>;

/// The body as a packed struct; false unless it has exactly that size.
template <class T>
bool read_exactly(std::span<const std::byte> b, T& out) {
  if (b.size() != sizeof out) return false;
  std::memcpy(&out, b.data(), sizeof out);
  return true;
}

/// Splits off the fixed part of a body; false when it is too short.
template <class T>
bool read_front(std::span<const std::byte>& b, T& out) {
  if (b.size() < sizeof out) return false;
  std::memcpy(&out, b.data(), sizeof out);
  b = b.subspan(sizeof out);
  return true;
}

/// Makes `out` the answer to a message: its head, `fixed`, and whatever is appended to the payload afterwards by
/// append_answer.
void begin_answer(fabric::answer& out, message_type type, const void* fixed, std::size_t bytes);
void append_answer(fabric::answer& out, const void* data, std::size_t bytes);
/// A refusal with a text for the reader; always returns ok, because the session goes on.
errc refuse(fabric::answer& out, message_type type, errc code, const std::string& text);
/// As JSON, whatever bytes it has.
std::string quoted(const std::string& s);

}  // namespace fm::agent
