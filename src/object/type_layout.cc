// Names and descriptions of managed types; farmem/detail/types/type_layout.h has the form of a layout. Called by the walk
// over a type's fields, once a type.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <farmem/detail/types/type_layout.h>

#include "base/base.h"
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <utility>

namespace fm::detail {
namespace {

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  for (std::size_t at = s.find(from); at != std::string::npos; at = s.find(from, at + to.size()))
    s.replace(at, from.size(), to);
}

/// FNV-1a, 64 bits, finished by a multiply-shift round so that similar layouts differ in all bits.
std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

}  // namespace

std::string name_in_tag(const char* mangled_tag) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled_tag, nullptr, nullptr, &status),
                                                    &std::free);
  FM_CHECK(status == 0 && text, "a type name that the C++ runtime made could not be read back");
  std::string name(text.get());
  constexpr std::string_view before = "fm::detail::name_tag<";
  FM_CHECK(name.starts_with(before) && name.ends_with('>'), "a type name has an unexpected form");
  name = name.substr(before.size(), name.size() - before.size() - 1);
  while (name.ends_with(' ')) name.pop_back();
  replace_all(name, " >", ">");
  replace_all(name, " []", "[]");
  replace_all(name, "std::__1::", "std::");  // the inline namespace of libc++
  return name;
}

layout_builder::layout_builder(type_kind kind, std::string name, std::size_t bytes) {
  description_.kind = kind;
  description_.bytes = static_cast<std::uint32_t>(bytes);
  description_.name = kind == type_kind::array ? std::move(name) + "[]" : std::move(name);
  levels_.push_back({.base = 0, .bytes = bytes});
}

void layout_builder::place(std::size_t offset, std::size_t bytes) {
  level& in = levels_.back();
  // Reflection gives the fields in order; only a hand-written fm_fields() can get this wrong.
  if (offset < in.end || bytes > in.bytes || offset > in.bytes - bytes)
    throw error(errc::invalid_argument,
                fmt::format("type '{}': fm_fields() must name each field once, in the order of declaration; the field "
                            "at offset {} does not follow the one that ends at {}",
                            description_.name, in.base + offset, in.base + in.end));
  in.end = offset + bytes;
  std::string& s = description_.layout;
  if (!in.empty) s += ", ";
  in.empty = false;
  if (levels_.size() > 1) fmt::format_to(std::back_inserter(s), "{}: ", offset);
}

void layout_builder::value(std::size_t offset, std::size_t bytes, std::string_view code) {
  place(offset, bytes);
  description_.layout += code;
}

void layout_builder::ref(std::size_t offset, const std::string& target) {
  place(offset, 8);
  description_.ref_offsets.push_back(static_cast<std::uint32_t>(levels_.back().base + offset));
  fmt::format_to(std::back_inserter(description_.layout), "ref<{}>", target);
}

void layout_builder::open(std::size_t offset, std::size_t bytes) {
  place(offset, bytes);
  fmt::format_to(std::back_inserter(description_.layout), "{} bytes {{", bytes);
  levels_.push_back({.base = levels_.back().base + offset, .bytes = bytes});
}

void layout_builder::close() {
  FM_CHECK(levels_.size() > 1, "close() without open()");
  levels_.pop_back();
  description_.layout += '}';
}

void layout_builder::end_repeat(mark from, std::size_t count, std::size_t stride) {
  auto& refs = description_.ref_offsets;
  const std::size_t each = refs.size() - from.refs;
  refs.reserve(from.refs + each * count);
  for (std::size_t i = 1; i < count; ++i)
    for (std::size_t r = 0; r < each; ++r) refs.push_back(static_cast<std::uint32_t>(refs[from.refs + r] + i * stride));
  levels_.back().end = from.offset + count * stride;
  fmt::format_to(std::back_inserter(description_.layout), "[{}]", count);
}

type_descriptor layout_builder::finish() && {
  FM_CHECK(levels_.size() == 1, "finish() inside an open struct");
  FM_ASSERT(std::is_sorted(description_.ref_offsets.begin(), description_.ref_offsets.end()),
            "reference offsets must ascend");
  description_.layout_hash = hash(
      fmt::format("{} {}: {}", static_cast<std::uint32_t>(description_.kind), description_.name, description_.layout));
  return std::move(description_);
}

}  // namespace fm::detail
