// The collection cycles of all heaps: the messages by which their owners begin, feed and end them, and the steps of the
// threads that trace.
//
// Invariants owned here
//   - Everything about a message is checked before anything is applied. A cycle that does not run is refused as stale.
//   - A step holds no heap's mutex while it marks.
// agent/service owns the one object, gives it to heaps::add, and calls step from its threads. Thread-safe.
#pragma once

#include "agent/base/random.h"
#include "agent/heaps/heaps.h"
#include "tracer.h"

namespace fm::agent {

class cycles final : public heap_part {
 public:
  /// `bell` wakes the threads that call step, `peers_bell` who carries remote references to other agents. Both outlive
  /// it.
  cycles(environment& e, heaps& all, trace_bell& bell, trace_bell& peers_bell)
      : agent_(e), heaps_(all), bell_(bell), peers_bell_(peers_bell) {}

  std::optional<errc> message(session& s, heap& h, message_type type, body b, fabric::answer& out) override;
  /// One step of tracing in every heap that traces; true when there is more to do at once. One caller a worker.
  bool step(std::uint32_t worker);

 private:
  errc begin_cycle(session& s, heap& h, body b, fabric::answer& out);
  static errc add_dirty(session& s, heap& h, body b, fabric::answer& out);
  static errc trace(session& s, heap& h, body b, fabric::answer& out);
  static errc read_marks(session& s, heap& h, body b, fabric::answer& out);
  static errc release_slots(session& s, heap& h, body b, fabric::answer& out);
  errc end_cycle(session& s, heap& h, body b, fabric::answer& out);
  /// Of a new cycle; none if this agent does not talk to others.
  trace_ticket new_ticket();

  environment& agent_;
  heaps& heaps_;
  trace_bell& bell_;
  trace_bell& peers_bell_;
  std::mutex tickets_mutex_;
  random_source ticket_random_;  ///< tickets_mutex_
};

/// The cycle of that number that runs, for the heap's owner; null: `out` and `result` say why not. Takes the heap's
/// mutex.
std::shared_ptr<tracer> find_cycle(session& s, heap& h, std::uint64_t cycle, message_type type, fabric::answer& out,
                                   errc& result);

}  // namespace fm::agent
