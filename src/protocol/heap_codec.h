// Building messages and taking answers apart, for whoever asks an agent (protocol/heap_messages.h): the owner, and an
// agent as a peer.
// Invariant owned here: every answer is checked against the length that was received before any field of it is
// believed. An answer that does not follow the protocol comes back as errc::bad_frame.
// Nothing here keeps state.
#pragma once

#include <unistd.h>

#include "base/text.h"
#include "fabric/client/client.h"
#include "heap_messages.h"
#include <cstring>
#include <span>
#include <string>

namespace fm::protocol::codec {

#pragma pack(push, 1)
/// A message whose body is one fixed struct.
template <class Body>
struct framed {
  message_head head{};
  Body body{};
};
#pragma pack(pop)

/// A message without a body.
struct empty_body {};

template <class Body>
framed<Body> frame(message_type type, const Body& body) {
  framed<Body> m;
  m.head = {.type = static_cast<std::uint16_t>(type), .zero = 0, .body_bytes = sizeof(Body)};
  m.body = body;
  return m;
}

inline message_head frame_empty(message_type type) {
  return {.type = static_cast<std::uint16_t>(type), .zero = 0, .body_bytes = 0};
}

/// An answer taken apart. `body` points into the reply.
struct answer_view {
  errc code = errc::bad_frame;
  std::span<const std::byte> body;
  /// What the agent says about a refusal.
  [[nodiscard]] std::string text() const { return code == errc::ok ? std::string() : detail::readable_text(body); }
};

/// Takes an answer to `type` apart; bad_frame when it is not one.
inline answer_view parse_answer(std::span<const std::byte> reply, message_type type) {
  answer_view v;
  answer_head head;
  if (reply.size() < sizeof head) return v;
  std::memcpy(&head, reply.data(), sizeof head);
  if (head.type != static_cast<std::uint16_t>(type) || head.body_bytes != reply.size() - sizeof head) return v;
  v.code = static_cast<errc>(head.code);
  v.body = reply.subspan(sizeof head);
  return v;
}

/// Copies a fixed struct from the start of `from`; false when it is too short.
template <class T>
bool take(std::span<const std::byte>& from, T& out) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&out, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return true;
}

/// Makes `r` a message on `lane` whose payload is `bytes` at `data`, which must live until the request is done.
inline void make_message(fabric::request& r, fabric::lane on, void* data, std::size_t bytes) {
  r.kind = fabric::op_kind::message;
  r.on = on;
  r.fence = false;
  r.sg_count = 1;
  r.sg[0] = {.data = data, .bytes = bytes};
}

inline void discard_key(fabric::memory_key& key);

/// Posts the first message of a connection, `bytes` at `data`, and waits for its answer, which is in `r` if it came.
inline errc ask(fabric::session& s, fabric::request& r, void* data, std::size_t bytes) {
  make_message(r, fabric::lane::control, data, bytes);
  s.post(r);
  s.wait(r);
  discard_key(r.reply_key);
  return r.status;
}

/// Gives up a key that nobody attaches.
inline void discard_key(fabric::memory_key& key) {
  if (key.fd >= 0) ::close(key.fd);
  key = {};
}

/// Makes a request that is done ready to be posted again.
inline void rearm(fabric::request& r) {
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.status = errc::ok;
  r.reply.clear();
  discard_key(r.reply_key);
  r.deadline = time_point::max();
}

/// The outcome is unknown: sending again is the only way to find out.
constexpr bool unknown_outcome(errc e) {
  return e == errc::disconnected || e == errc::timed_out || e == errc::cancelled || e == errc::agent_lost;
}
/// The same, or there was no memory to ask or to hear the answer: nothing has been refused.
constexpr bool is_to_be_repeated(errc e) { return unknown_outcome(e) || e == errc::out_of_memory; }

}  // namespace fm::protocol::codec
