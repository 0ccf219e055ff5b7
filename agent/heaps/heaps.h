// The heaps of one agent, by id: opening and resuming them, their leases, the notices that they owe their owners, and
// their part of the statistics.
//
// Invariants owned here
//   - A heap is in the map from its opening until it is freed. It is `closed` before it is out, and whoever finds a
//     closed one takes it as not there.
//   - One session owns a heap. A later one is answered when the earlier one is revoked and has no operation in flight.
// Locks: the map's mutex is held for a moment, and no other with it. Thread-safe. agent/service owns the one object, and
// sessions come back to it by heap_session.
#pragma once

#include <unordered_map>

#include "agent/base/answers.h"
#include "agent/base/environment.h"
#include "agent/base/session.h"
#include "heap.h"

namespace fm::agent {

/// Messages of a heap's owner that another part of the agent answers: tracing, moving, peers.
class heap_part {
 public:
  heap_part() = default;
  heap_part(const heap_part&) = delete;
  heap_part& operator=(const heap_part&) = delete;
  virtual ~heap_part() = default;
  /// As tenant::message, of a heap that is open and not closed; none: not one of this part's messages.
  virtual std::optional<errc> message(session& s, heap& h, message_type type, body b, fabric::answer& out) = 0;
};

/// Sums over heaps, for the administrator.
struct heap_sums {
  std::uint64_t heaps = 0, regions = 0, live = 0, garbage = 0, metadata = 0, objects = 0, batches = 0;
};

class heaps {
 public:
  heaps(environment& e, region_pool& regions) : agent_(e), regions_(regions) {}
  heaps(const heaps&) = delete;
  heaps& operator=(const heaps&) = delete;

  /// Adds a part that answers messages; before the first session. It outlives all sessions.
  void add(heap_part& p) { parts_.push_back(&p); }
  /// Opens or resumes a heap for a session that has opened nothing; session::opening is held.
  errc open(session& s, body b, fabric::answer& out);
  /// Gives a heap that was detached to such a session, or shows it what was left of it (detachment.cc).
  errc attach(session& s, body b, fabric::answer& out);
  [[nodiscard]] std::vector<std::shared_ptr<heap>> all() const;
  /// Null: there is none.
  [[nodiscard]] std::shared_ptr<heap> find(const std::uint64_t (&id)[2]) const;
  /// Takes the heap out of the map and frees what it has; `why` is for the log.
  void free_heap(heap& h, const char* why, bool only_if_expired);
  [[nodiscard]] bool is_drained() const noexcept { return agent_.drained.load(std::memory_order_acquire); }
  [[nodiscard]] std::size_t count() const;
  /// Both return when they want to be called again, at the latest.
  time_point expire_leases();
  time_point send_lost_notices();
  /// Closes all heaps; no session is left.
  void close();

  /// JSON: the heaps, separated by commas; adds to the sums.
  [[nodiscard]] std::string statistics(heap_sums& total) const;
  [[nodiscard]] std::uint64_t expired() const;

 private:
  friend class heap_session;
  /// Gives the heap to the session. None: it was closed meanwhile.
  std::optional<errc> take_over(session& s, const open_heap_body& m, const std::shared_ptr<heap>& kept, bool fresh,
                                fabric::answer& out);
  /// heap.mutex, of both. The earlier owner's session speaks for the heap no more; false: its operations still run.
  static bool revoke_owner(heap& h, const char* why);
  void hand_over(heap& h, session& s, std::uint16_t owner_minor);
  [[nodiscard]] open_heap_answer opened_answer(const heap& h) const;
  /// The heap that waits for an owner under that name, or else, unless `only_waiting`, one that has been attached since.
  /// names_mutex_ is held.
  [[nodiscard]] std::shared_ptr<heap> find_detached(const std::string& name, bool only_waiting) const;
  struct id_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& k) const noexcept {
      return k.first ^ (k.second * 0x9e3779b97f4a7c15ull);
    }
  };

  environment& agent_;
  region_pool& regions_;
  std::vector<heap_part*> parts_;

  /// Held while a heap is looked up by its name, or gets one; taken before the mutexes of heaps, and never with the map's.
  std::mutex names_mutex_;
  mutable std::mutex mutex_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<heap>, id_hash> by_id_;
  std::uint64_t expired_ = 0;
};

/// The heap was closed, or taken over by a later session, between the arrival of a message and its turn.
errc not_the_owner(const heap& h, fabric::answer& out, message_type type);
/// One heap as JSON; its mutex is held. Adds to the sums.
std::string heap_json(const heap& h, time_point now, heap_sums& total);

}  // namespace fm::agent
