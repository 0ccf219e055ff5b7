// A collection of young objects: those that no agent can know of, because neither they nor anything that refers to them was
// ever copied out (cache/frame.h). They die without a message, without having been written home, and their slots are used again
// at once. Its steps are a cycle's (cycle.h), with what differs here.
//
// Soundness: a young object that is reachable at the snapshot is reached from a root, a pin, or a thread that waits, over
// objects; the last one on that way that is not young refers to a young one, so it was newer than its home copy in the
// snapshot's pause. The scan finds it newer still, and takes what it refers to for roots; or it was copied out meanwhile, and
// what ceased to be young thereby was logged, as what was copied out itself (young_objects::grew_up); or the reference was
// overwritten since, and logged. From there on the way leads over young objects, whose frames are here.
//
// Work: words of pages whose cards are dirty (page_info), and what lives of the young.
#include "cycle.h"

namespace fm::detail {

void cycle::scan_young() {
  find_roots();
  cache_.collections().scan_cards(marks_->tablets(), *this);
  marks_->only_dirty();
  tracing_elsewhere* const nobody = this;
  near_ = std::make_unique<compute_tracer>(cache_, *marks_, compute_tracer::near_stack_slots, nobody);
  add_found();
}

}  // namespace fm::detail
