// Log lines of the library and of the agent; see farmem/base/log.h for where they go.
//
// Invariant: a line is made only if somebody wants it, and nothing is thrown: without memory there is no line.
//
// Everything above may log. Texts that another process chose go through readable() before.
#pragma once

#include <farmem/base/log.h>
#include <fmt/format.h>

#include <utility>

namespace fm::log {

/// Whether a line of that level goes anywhere. Wait-free but for spdlog's own look.
[[nodiscard]] bool wanted(log_level level) noexcept;
/// Hands a line to the sink.
void write(log_level level, std::string_view text) noexcept;
/// Has what writes lines made before there are threads that log.
void prepare() noexcept;

template <class... A>
void at(log_level level, fmt::format_string<A...> format, A&&... arguments) noexcept {
  if (!wanted(level)) return;
  try {
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), format, std::forward<A>(arguments)...);
    write(level, {line.data(), line.size()});
  } catch (...) {
  }
}
template <class... A>
void debug(fmt::format_string<A...> format, A&&... arguments) noexcept {
  at(log_level::debug, format, std::forward<A>(arguments)...);
}
template <class... A>
void info(fmt::format_string<A...> format, A&&... arguments) noexcept {
  at(log_level::info, format, std::forward<A>(arguments)...);
}
template <class... A>
void warn(fmt::format_string<A...> format, A&&... arguments) noexcept {
  at(log_level::warn, format, std::forward<A>(arguments)...);
}
template <class... A>
void error(fmt::format_string<A...> format, A&&... arguments) noexcept {
  at(log_level::error, format, std::forward<A>(arguments)...);
}

}  // namespace fm::log
