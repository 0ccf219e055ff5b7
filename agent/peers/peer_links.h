// Carries remote references from this agent's tracers to other agents (protocol/heap_messages.h, "Agents that talk").
//
// One thread, `fm-references`, takes references from the tracers' outboxes and sends them. It starts when an owner first
// names peers. Each tracer and peer have one message under way; references that come meanwhile go with the next one.
// Sessions are kept by address, for all heaps, and closed when no cycle has used them for a while.
// If an address cannot be reached or does not answer, it is left alone for a time that doubles. References for it are
// lost at once until then, and their tracer takes them to the owner.
// While one address is being connected to, all others wait, for a quarter of peer_within at most. After a long try, no
// other address is tried in the same round.
//
// Invariants owned here
//   - A message that was taken from a tracer is answered for once (tracer::delivered), whatever becomes of the
//     session.
//   - A letter and its bytes stay until its request is done.
//   - This agent connects only to kinds of addresses that its options name, and beyond its host only if they say so.
// Locks: one for the thread's start. Everything that is not atomic belongs to whoever steps. No tracer waits for
// anything here.
#pragma once

#include "agent/base/options.h"

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "agent/tracing/tracer.h"

namespace fm::agent {

class peer_links {
 public:
  using heap_list = std::vector<std::shared_ptr<heap>>;
  peer_links(const store_options& options, std::function<heap_list()> heaps);
  peer_links(const peer_links&) = delete;
  peer_links& operator=(const peer_links&) = delete;
  ~peer_links();

  /// Rung when something waits, and when something was answered.
  [[nodiscard]] trace_bell& bell() noexcept { return bell_; }
  /// There are peers now. Starts the thread, unless the store has none. Throws fm::error (out_of_memory). Thread-safe.
  void start();
  /// One round; true when there may be more to do at once. Waits for nothing but a connection, for a bounded time.
  bool step();
  /// Ends the thread and all sessions. Whatever is under way is not answered for any more. Idempotent.
  void stop() noexcept;
  /// Members of a JSON object.
  [[nodiscard]] std::string statistics() const;

 private:
  class peer_link;
  struct letter;

  void run();
  bool send_waiting(const std::shared_ptr<heap>& h, const std::shared_ptr<tracer>& t);
  bool settle_answered();
  void settle(const letter& l, errc how);
  /// The session for an address, or null and why there is none.
  peer_link* link_to(const std::string& url, errc& why);
  void leave_alone(const std::string& url, errc why, const std::string& text);
  using link_map = std::map<std::string, std::unique_ptr<peer_link>>;
  void forget(link_map::iterator which);
  bool make_room();
  void close_unused();

  const store_options& options_;
  const std::function<heap_list()> heaps_;
  trace_bell bell_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> sessions_{0}, messages_{0}, references_{0}, failures_{0};

  std::mutex starting_;
  std::thread thread_;  ///< starting_, until the store ends

  // ---- of whoever steps ----
  struct unreachable {
    errc why = errc::ok;
    time_point until;
    duration wait = duration::zero();
  };
  bool may_try_ = true;  ///< nobody has waited long in this round for an address that cannot be reached
  link_map links_;
  std::map<std::string, unreachable> unreachable_;
  std::list<letter> letters_;  ///< posted, not settled
};

}  // namespace fm::agent
