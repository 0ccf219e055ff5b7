// fm::set_log_sink and fm::set_log_level: where the library's log lines go, and which of them.
//
// The library says little: what it does when something outside of the program fails, comes back or is refused, and
// mistakes of the program that it survives. Everything else is a statistic or an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace fm {

/// How much a line matters.
enum class log_level : std::uint8_t {
  debug,  ///< for those who work on the library
  info,   ///< something outside changed, and the library goes on
  warn,   ///< something failed, and the library goes on with less
  error,  ///< data is lost, or the program has made a mistake
  off,    ///< no line has it; as a level for set_log_level
};

/// What gets the lines: a level and a text of one line, without a time and without a line end, valid during the call.
/// It is called on any thread, by several at once, and perhaps under locks of the library. It returns soon, throws
/// nothing, and does not use the library.
using log_sink = std::function<void(log_level, std::string_view)>;

/// Sends the library's lines to `sink` from now on, instead of to the default logger of spdlog; an empty one sends them
/// there again. Lines that are being written may still go to the sink before. A sink is kept until the process ends,
/// so set it once. Thread-safe. O(1).
void set_log_sink(log_sink sink);

/// Makes no lines below `least` from now on. At first all are made, and spdlog's own level decides about them, which is
/// info unless the program has set it. Thread-safe. O(1).
void set_log_level(log_level least) noexcept;

}  // namespace fm
