// The paged ranges of this process, for what a process has only one of: the handler of SIGBUS, and what happens to a
// child after fork.
//
// Invariants owned here
//   - A lookup takes no lock, because it is made within signal handlers.
//   - A child has no range of its parent's, and its own ranges never lie where those are.
//
// core.cc enters and leaves ranges.
#pragma once

namespace fm::detail {

class paged_core;

/// Makes the range known. `in_place`: its faults come as SIGBUS. Throws fm::error(too_large) when there are 64 already.
void enter_range(paged_core& core, bool in_place);
void leave_range(paged_core& core) noexcept;

}  // namespace fm::detail
