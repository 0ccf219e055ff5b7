// The collector's half of the SATB log, the snapshot-at-the-beginning deletion barrier
// (farmem/detail/barriers/deletion_barrier.h): taking what the threads have logged. Called by one collection at a time, on the
// collector's thread.
//
// Threads append to chunks, and hand full ones over. When there is no chunk for a thread, and when the collector sets
// chunks aside, slots are noted as bits instead, one for each slot of the table. So the log is bounded: by
// limits::log_chunks_max, and by a bit for each slot of the heap.
#pragma once

#include <cstdint>
#include <farmem/detail/barriers/barrier.h>
#include <span>

namespace fm::detail {

namespace satb {

/// What is told of each logged slot; a slot may be told more than once.
using visit_slot = void (*)(slot_t, void*);

/// Reserves what begin() needs. Throws out_of_memory. Any time.
void prepare();
/// Empties all logs and sets `marking`; in a pause. After prepare().
void begin() noexcept;
/// Ends marking: in a pause, or when the cycle is given up, and what was not logged does not matter any more.
void end() noexcept;
/// Gives the memory of bits back; after end(). Not in a pause.
void discard() noexcept;
/// Turns the chunks that are full into bits, so that threads have room. Any time. O(slots in them).
void set_aside() noexcept;
/// Takes the chunks that are full, and the bits of these tablets, which are all of the heap's. How many slots that was.
/// Any time. If `visit` throws, the rest of a chunk is lost: then the collection is given up.
std::uint64_t take(std::span<const std::uint32_t> tablets, visit_slot visit, void* context);
/// Takes all that is logged; in a pause. Slots for which `keep` says so become bits, for the next take(); whether there
/// were any. Allocates nothing.
bool take_rest(std::span<const std::uint32_t> tablets, bool (*keep)(slot_t, void*), void* context) noexcept;
/// Slots that were noted as bits because a thread had no chunk, since the process began. For tests and benchmarks.
std::uint64_t overflowed() noexcept;

}  // namespace satb
}  // namespace fm::detail
