// The collector's half of the SATB log, the snapshot-at-the-beginning deletion barrier
// (farmem/detail/deletion_barrier.h): taking what the threads have logged. Called by one collection at a time, on the
// collector's thread.
#pragma once

#include <farmem/detail/barrier.h>
#include <vector>

namespace fm::detail {

namespace satb {

/// Empties all logs and sets `marking`; in a pause.
void begin() noexcept;
/// Ends marking: in a pause, or when the cycle is given up, and what was not logged does not matter any more.
void end() noexcept;
/// Takes the logs that are full. Any time.
void take_full(std::vector<slot_t>& out);
/// Takes all that is logged; in a pause.
void take_all(std::vector<slot_t>& out);

}  // namespace satb
}  // namespace fm::detail
