// One end of a channel: a sender, a receiver, and what they share. It hands each message of the other end to the half
// that it concerns, and ends the channel.
//
// The fabric's threads call arrived() and broken(). The program's threads use sending() and receiving(), at most one
// each, and close().
#pragma once

#include "receiver.h"
#include "sender.h"

namespace fm::detail {

class endpoint {
 public:
  endpoint(const channel_terms& terms, std::string name)
      : state_(terms, std::move(name)), sender_(state_), receiver_(state_) {}
  ~endpoint() {
    if (state_.transport) state_.transport->close();
  }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  // ---- before anybody sends or receives ----
  void set_transport(std::unique_ptr<channel_transport> t) noexcept { state_.transport = std::move(t); }
  void agree(const channel_terms& t) noexcept { state_.terms = t; }
  /// Parts go that way, and not as messages of the session.
  void set_byte_path(std::unique_ptr<byte_path> p);

  [[nodiscard]] const channel_terms& terms() const noexcept { return state_.terms; }
  [[nodiscard]] const std::string& name() const noexcept { return state_.name; }
  [[nodiscard]] sender& sending() noexcept { return sender_; }
  [[nodiscard]] receiver& receiving() noexcept { return receiver_; }
  /// Whether payloads can change while they are read.
  [[nodiscard]] bool in_shared_memory() const noexcept { return state_.path->in_shared_memory(); }

  // ---- for the fabric's threads ----
  /// A message of the other end. Anything but ok: it breaks the rules, and the connection should end.
  errc arrived(std::span<const std::byte> message) noexcept;
  /// The connection has ended, or must: nothing more comes or goes. The first call counts.
  void broken(errc why, std::string_view text) noexcept { state_.break_channel(why, text); }

  /// Tells the other end that nothing more comes, and ends the connection. `sends`: a thread may be in a send, and what it
  /// has under way is not waited for.
  void close(duration linger, bool sends = false) noexcept;
  [[nodiscard]] bool is_broken() const;
  [[nodiscard]] channel_stats stats() const;
  void count_graph(bool sent, std::uint64_t objects) noexcept;

 private:
  channel_state state_;
  sender sender_;
  receiver receiver_;
};

}  // namespace fm::detail
