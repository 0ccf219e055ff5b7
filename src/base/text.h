// Text that another process chose, for logs, errors and status.
//
// Invariant: what comes out is one line of printable ASCII. It forges no line of a log, moves no cursor of a terminal,
// and is valid UTF-8 and valid inside of a JSON string.
//
// Whoever takes names or texts out of a message calls it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fm::detail {

/// Every other character as `?`; also quotation marks and backslashes. Ends at the first NUL.
inline std::string readable(std::string_view raw) {
  std::string s(raw.substr(0, raw.find('\0')));
  for (char& c : s)
    if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') c = '?';
  return s;
}
/// A whole text, which may have NULs and quotation marks; with `lines`, line feeds stay.
inline std::string readable_text(std::span<const std::byte> raw, bool lines = false) {
  std::string s(reinterpret_cast<const char*>(raw.data()), raw.size());
  for (char& c : s)
    if ((c < 0x20 || c > 0x7e) && !(lines && c == '\n')) c = '?';
  return s;
}

}  // namespace fm::detail
