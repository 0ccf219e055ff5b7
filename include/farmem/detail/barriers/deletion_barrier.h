// The deletion barrier. While a cycle marks, the old value of every overwritten reference is logged, and so are
// overwritten and dropped roots and pins that are given back. So whatever was reachable at the snapshot is traced
// (snapshot at the beginning; Mako, section 5.2).
//
// Invariant, and why it holds. `marking` changes only inside a pause, so a section sees one value of it throughout.
//   - A reference is exchanged and its old value logged in one section.
//   - A root is logged first and overwritten then, and only the logging is a section. If it read `marking` as 0, and
//     the snapshot came before the store, then every copy that the thread made of the root's value was made before the
//     snapshot, where the scan finds it. Nobody else can have copied it later, since a handle is one thread's at a
//     time.
//   - A reference is loaded and rooted in one section, so that no snapshot, and no end of a cycle, lies in between. The
//     same holds for one that is loaded and stored elsewhere. Its old place names it until that is overwritten, which
//     is logged, so a snapshot before or after the section finds it in one of the two.
//   - A copy of a root is not logged: the original is rooted while it is copied.
//
// A thread's log is a buffer of its own, written only inside sections: in a pause it is whole and nobody writes.
// Handles and barriers log; src/collector/roots/satb_log.cc keeps the buffers and the collector takes them.
#pragma once

#include <atomic>
#include <farmem/detail/barriers/epoch.h>
#include <farmem/detail/barriers/indirection_table.h>
#include <farmem/detail/barriers/word.h>

namespace fm::detail {

/// Not 0 while a heap of this process marks; one does at a time. Changes in pauses only.
extern std::atomic<std::uint32_t> marking;

/// Logs a slot that is, or is about to be, overwritten or dropped. A section of its own if there is none.
void log_overwritten(slot_t slot) noexcept;
/// The same of an object whose pin is about to be given back.
void log_unpinned(slot_t slot) noexcept;

/// The test that stands in the barriers' fast paths.
inline bool is_marking() noexcept { return __builtin_expect(marking.load(std::memory_order_relaxed) != 0, 0); }

}  // namespace fm::detail
