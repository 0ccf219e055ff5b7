// What a process has of the heaps of its parent after fork, and how it lets go of them.
//
// Nothing of a heap survives a fork: its threads do not exist in the child, its connections and its leases on agents
// are the parent's, and its cache is a copy of a moment. So a child uses no heap of its parent. Until it opens one of
// its own, the gate ends it at the first section (epochs::gate_forked). From then on the parent's heaps are like closed
// ones: handles are null, and a heap's members throw heap_closed. Destroying an inherited heap frees nothing.
//
// Invariant: when the gate lets sections begin, no root cell and no weak handle names a slot of the parent, and no tablet is granted. What
// other modules do at fork stands beside their locks (os/fork.h). heap_core calls it.
#pragma once

namespace fm::detail {

/// In a child after fork that opens its first heap. Otherwise nothing.
void let_go_of_parents();

}  // namespace fm::detail
