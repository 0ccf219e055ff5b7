// Agents that talk to each other (protocol/heap_messages.h, "Agents that talk"): an owner tells of the other agents of
// its heap, this agent sends remote references to them (peer_links.h), and takes theirs on sessions that have opened
// themselves as peers.
//
// Invariants owned here
//   - References are taken only from a peer that shows the ticket of the cycle that runs.
//   - Everything about a message is checked before anything is applied.
// agent/service owns the one object, gives it to heaps::add, and calls step where the agent has no threads.
// Thread-safe.
#pragma once

#include "agent/heaps/heaps.h"
#include "peer_links.h"

namespace fm::agent {

class peers final : public heap_part {
 public:
  peers(environment& e, heaps& all) : agent_(e), heaps_(all), links_(e.options, [&all] { return all.all(); }) {}

  /// For a session that has opened nothing; session::opening is held.
  errc open(session& s, body b, fabric::answer& out);
  std::optional<errc> message(session& s, heap& h, message_type type, body b, fabric::answer& out) override;
  /// Rung when something waits to be sent.
  [[nodiscard]] trace_bell& bell() noexcept { return links_.bell(); }
  /// As peer_links.
  bool step() { return links_.step(); }
  void stop() noexcept { links_.stop(); }
  /// Members of a JSON object.
  [[nodiscard]] std::string statistics() const;

 private:
  friend class peer_session;
  errc trace_peers(session& s, heap& h, body b, fabric::answer& out);
  errc take_remote_references(session& s, body b, fabric::answer& out);

  environment& agent_;
  heaps& heaps_;
  std::atomic<std::uint64_t> references_received_{0}, references_refused_{0};
  std::atomic<std::int64_t> refusal_logged_{0};  ///< when, in ticks of the clock
  peer_links links_;
};

/// Another agent's session: it sends remote references, and has no memory.
class peer_session final : public tenant {
 public:
  peer_session(peers& of, session& s) : of_(of), s_(s) {}
  errc message(message_type type, body b, fabric::answer& out) override {
    return type == message_type::remote_references ? of_.take_remote_references(s_, b, out) : errc::bad_frame;
  }
  std::byte* memory(const fabric::remote&, std::uint64_t, fabric::access) noexcept override { return nullptr; }
  void disconnected() noexcept override {}

 private:
  peers& of_;
  session& s_;
};

}  // namespace fm::agent
