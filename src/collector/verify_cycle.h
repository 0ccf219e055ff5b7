// Audits of a heap while the program goes on (heap_options::verify_cycles). heap.verify() needs a heap that nobody
// uses.
//
//   before, after marking, at the end   every agent audits its half under its lock: entries against copies, batches and
//                                       accounts. Outside of cycles no mark is set, and within one as many as were
//                                       counted
//   after marking                       the owner read no more marks of an agent than the agent counted
//   at the end                          no root names a freed slot; every resident frame is its slot's; no live
//                                       object's frame refers to a freed slot
//
// The last ones hold at any moment, since only collections free slots and one runs at a time: an object that was not
// found dead refers to nothing that was found dead. Dead objects that had to stay for a later cycle are passed over. A
// young collection looks at young objects only: the others may be such that had to stay.
//
// Used by full_cycle and young_collection, on the collector's thread.
#pragma once

#include "collector/cycle_agents.h"
#include <string>

namespace fm::detail {

class cycle_verifier {
 public:
  cycle_verifier(object_cache& cache, cycle_report& report) : cache_(cache), report_(report) {}

  void verify_agents(const cycle_agents& agents, const char* when);
  void verify_marks(cycle_agents& agents, slot_marks& marks);
  /// Of young objects, or of all.
  void verify_references(snapshot& of, generation which);
  /// Compares the marks of the two tracers. Throws if they differ.
  void compare_tracers(slot_marks& by_agents, slot_marks& by_this_node);
  /// A cycle that does not add up frees nothing: throws corrupt.
  void check_faults() const;

 private:
  void fault(std::string what);

  object_cache& cache_;
  cycle_report& report_;
};

}  // namespace fm::detail
