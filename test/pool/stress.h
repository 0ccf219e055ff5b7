// Readers and writers of self-checking values against compaction that never ends, on any agent: a program part without assertions, so
// that whoever has an agent behind another transport can run it there.
#pragma once

#include "base/base.h"
#include <farmem/pool/pool.h>

#include <string>

namespace pool_test {

enum class stress_mode : std::uint8_t {
  checksums,  ///< objects of less than a line
  versions,
  checksums_over_lines,  ///< objects of several lines
  versions_over_lines,
  versions_large,  ///< more than a transport copies at once
  random_ids,
};
inline constexpr std::array stress_modes{
    stress_mode::checksums,           stress_mode::versions,       stress_mode::checksums_over_lines,
    stress_mode::versions_over_lines, stress_mode::versions_large, stress_mode::random_ids};
const char* name_of(stress_mode m) noexcept;

struct stress_report {
  std::uint64_t reads = 0, writes = 0, compactions = 0, merges = 0, objects_moved = 0;
  std::uint64_t torn = 0, corrected = 0, rpc_reads = 0;  ///< as the pool counts them: retries, not faults
  std::string faults;                                    ///< empty: nobody saw a wrong byte, an old value or an error
  [[nodiscard]] bool good() const noexcept { return faults.empty(); }
  [[nodiscard]] std::string text() const;
};

/// Rounds of two readers, two writers, and one that frees, releases and compacts; as many as begin within `run_for`, one at least.
/// `base` names one agent (or a service in this process), and a name and tenant that nobody else uses, with deadlines that fit the
/// machine. Throws fm::error when the pool cannot be opened, or has no room.
stress_report stress(fm::pool_options base, stress_mode mode, fm::duration run_for);

}  // namespace pool_test
