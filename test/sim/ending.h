// How a run of the simulation ends. The code that finds out ends the process with it, so that whoever started the
// process can tell a finding from a crash, and both from a run that was only too long.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fm::sim {

enum class ending : std::uint8_t {
  passed,
  finding,  ///< the oracle disagrees: the shadow, the marks at the end, verify()
  error,    ///< an operation of the heap gave an error that it had no reason for
  check,    ///< the library's own check failed (FM_CHECK, FM_ASSERT, FM_AUDIT)
  crash,    ///< any other end: a signal, std::terminate
  alarm,    ///< too much of the processor's time, of real time or of decisions; or nobody could go on
};

struct named_ending {
  ending is;
  std::string_view name;
};
inline constexpr std::array named_endings = {
    named_ending{ending::passed, "passed"}, named_ending{ending::finding, "finding"},
    named_ending{ending::error, "error"},   named_ending{ending::check, "check"},
    named_ending{ending::crash, "crash"},   named_ending{ending::alarm, "alarm"},
};
constexpr std::string_view name_of(ending e) {
  for (const named_ending& n : named_endings)
    if (n.is == e) return n.name;
  return "unknown";
}
constexpr std::optional<ending> ending_of(std::string_view name) {
  for (const named_ending& n : named_endings)
    if (n.name == name) return n.is;
  return std::nullopt;
}

/// The status that a process ends with; shells and sanitizers use none of these but 0.
constexpr int exit_status(ending e) { return e == ending::passed ? 0 : 100 + static_cast<int>(e); }
constexpr ending ending_of_status(int status) {
  for (const named_ending& n : named_endings)
    if (exit_status(n.is) == status) return n.is;
  return ending::crash;
}

/// The text that a failed check of the library prints.
inline constexpr std::string_view failed_check = "check failed: ";

}  // namespace fm::sim
