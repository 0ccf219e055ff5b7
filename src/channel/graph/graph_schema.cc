// The hash of a graph's types, and a text that says how the types of the other end differ. Keeps no state. schema_of
// calls finish_schema once for each type; channel_core calls describe_mismatch when the hashes of both ends are not
// equal.
#include "base/limits.h"
#include <farmem/detail/graph_schema.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fm::detail {
namespace {

/// Text of a peer for a message: short, and nothing in it that a terminal would act on.
std::string quoted(std::string_view text) {
  std::string out(text.substr(0, channel_limits::quoted_bytes_max));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  if (text.size() > channel_limits::quoted_bytes_max) out += "...";
  return out;
}

struct described {
  std::string_view name, hash, layout;
};

/// The next line of a description; false at its end, or where it stops being one.
bool next_line(std::string_view& rest, described& out) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  const std::size_t first = line.find('\t');
  const std::size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
  if (second == std::string_view::npos) return false;
  out = {line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1)};
  return true;
}

}  // namespace

void finish_schema(graph_schema& s) {
  s.root = s.types.front().type->name;
  std::string all;
  for (const graph_type& t : s.types) {
    fmt::format_to(std::back_inserter(s.description), "{}\t{:016x}\t{}\n", t.type->name, t.type->layout_hash,
                   t.type->layout);
    fmt::format_to(std::back_inserter(all), "{} {} {:x} {}:", static_cast<std::uint32_t>(t.type->kind), t.type->name,
                   t.type->layout_hash, t.type->bytes);
    for (const std::uint32_t target : t.targets) fmt::format_to(std::back_inserter(all), " {}", target);
    all += '\n';
  }
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : all) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
  s.hash = h ^ h >> 29;
}

std::string describe_mismatch(const graph_schema& mine, std::string_view theirs) {
  described root;
  std::string_view rest = theirs;
  if (!next_line(rest, root)) return fmt::format("a '{}' is wanted here; what is sent has no description", mine.root);
  rest = theirs;
  for (described d; next_line(rest, d);) {
    const auto here =
        std::find_if(mine.types.begin(), mine.types.end(), [&](const graph_type& t) { return t.type->name == d.name; });
    if (here == mine.types.end() || fmt::format("{:016x}", here->type->layout_hash) == d.hash) continue;
    return fmt::format("type '{}' is {} here and {} at the sender", here->type->name, here->type->layout,
                       quoted(d.layout));
  }
  const type_descriptor& own = *mine.types.front().type;
  if (root.name != own.name)
    return fmt::format("a '{}' is wanted here, {}; what is sent is a '{}', {}", own.name, own.layout, quoted(root.name),
                       quoted(root.layout));
  return fmt::format("'{}' refers to other types here, {}, than at the sender, {}", own.name, own.layout,
                     quoted(root.layout));
}

}  // namespace fm::detail
