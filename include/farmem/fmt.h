// fmt::formatter for fm::string, fm::errc and handles, for programs that use the fmt library. Not part of farmem.h: it
// includes <fmt/format.h>, which farmem's headers do not need.
//
//   fmt::print("{:>20}", name);       an fm::string as its text, with every option of text; fetches it if it is remote
//   fmt::print("{}", e.code());       an fm::errc as its name
//   fmt::print("{}", p);              an fm::ptr as "slot 0x2a", or "null"; fetches nothing
#pragma once

#include <farmem/base/error.h>
#include <farmem/containers/string.h>
#include <farmem/handles/ptr.h>
#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace fmt {

/// The text of a string, or "null" for a null handle, with the options of text. O(length). Throws as fm::string::str.
template <>
struct formatter<fm::string> : formatter<std::string_view> {
  template <class Context>
  auto format(const fm::string& s, Context& to) const {
    if (!s) return formatter<std::string_view>::format("null", to);
    const fm::read_pin<fm::string> text = s.read();
    return formatter<std::string_view>::format({text->data(), text->size()}, to);
  }
};

/// The name of an error code, with the options of text. O(1).
template <>
struct formatter<fm::errc> : formatter<std::string_view> {
  template <class Context>
  auto format(fm::errc code, Context& to) const {
    return formatter<std::string_view>::format(fm::to_string(code), to);
  }
};

/// The number of the object that a handle names, or "null", with the options of text. O(1), fetches nothing.
template <class T>
struct formatter<fm::ptr<T>> : formatter<std::string_view> {
  template <class Context>
  auto format(const fm::ptr<T>& p, Context& to) const {
    if (!p) return formatter<std::string_view>::format("null", to);
    char text[24];
    const auto end = format_to_n(text, sizeof text, "slot {:#x}", p.slot()).out;
    return formatter<std::string_view>::format({text, static_cast<std::size_t>(end - text)}, to);
  }
};

}  // namespace fmt
