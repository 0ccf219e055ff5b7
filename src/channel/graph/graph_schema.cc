// The hash of a graph's types, and a text that says how the types of the other end differ. Keeps no state. schema_of
// calls finish_schema once for each type; channel_core calls describe_mismatch when the hashes of both ends are not
// equal.
#include "base/channel_limits.h"
#include <farmem/detail/graph/schema.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fm::detail {
namespace {

struct described {
  std::string_view name, hash, layout;
};

/// The next line of a description that is of a type; false at its end, or where it stops being one.
bool next_type(std::string_view& rest, described& out) {
  for (;;) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return false;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.starts_with('\t')) continue;  // a field
    const std::size_t first = line.find('\t');
    const std::size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) return false;
    const std::size_t third = std::min(line.size(), line.find('\t', second + 1));
    out = {line.substr(0, first), line.substr(first + 1, second - first - 1),
           line.substr(second + 1, third - second - 1)};
    return true;
  }
}

/// Names of what the references in a field can be, if they are to an fm::one_of.
void put_choice(std::string& to, const graph_schema& s, graph_target t) {
  if (!is_choice(t)) return;
  for (const std::string& name : s.choices[t & ~choice_bit].names) fmt::format_to(std::back_inserter(to), "\t{}", name);
}

void describe_type(std::string& to, const graph_schema& s, const graph_type& t) {
  const auto out = std::back_inserter(to);
  if (t.container != nullptr) {
    fmt::format_to(out, "{}\t{:016x}\ta container of '{}'\tc\t0\n", t.name, 0, s.types[t.entries].name);
    return;
  }
  fmt::format_to(out, "{}\t{:016x}\t{}\t{}\t{}\n", t.name, t.type->layout_hash, t.type->layout,
                 t.is_array() ? 'a' : 'o', t.type->bytes);
  for (const graph_field& f : t.fields) {
    fmt::format_to(out, "\t{}\t{}\t{}\t{}", f.name, f.offset, f.bytes, f.code);
    const auto refs = refs_in(t, f);
    if (!refs.empty()) put_choice(to, s, t.targets[refs.front()]);
    to += '\n';
  }
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out(text.substr(0, channel_limits::quoted_bytes_max));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  if (text.size() > channel_limits::quoted_bytes_max) out += "...";
  return out;
}

std::vector<std::uint32_t> refs_in(const graph_type& t, const graph_field& f) {
  std::vector<std::uint32_t> out;
  const std::vector<std::uint32_t>& offsets = t.type->ref_offsets;
  for (auto at = std::lower_bound(offsets.begin(), offsets.end(), f.offset); at != offsets.end(); ++at) {
    if (*at >= f.offset + f.bytes) break;
    out.push_back(static_cast<std::uint32_t>(at - offsets.begin()));
  }
  return out;
}

std::pair<std::uint32_t, bool> number_in_schema(graph_schema& s, const type_descriptor& type) {
  for (std::uint32_t i = 0; i < s.types.size(); ++i)
    if (s.types[i].type == &type) return {i, false};
  s.types.emplace_back().type = &type;
  return {static_cast<std::uint32_t>(s.types.size() - 1), true};
}

void finish_schema(graph_schema& s) {
  if (is_choice(s.root_target)) {
    s.root = "one of";
    for (const std::string& name : s.choices[s.root_target & ~choice_bit].names) s.root += " " + name;
  } else {
    s.root = s.types[s.root_target].name;
  }
  for (const graph_type& t : s.types) describe_type(s.description, s, t);
  s.description += ".\t" + s.root;
  put_choice(s.description, s, s.root_target);
  s.description += '\n';
  std::string all = s.description;
  for (const graph_type& t : s.types) {
    fmt::format_to(std::back_inserter(all), "{}:", t.entries);
    for (const graph_target target : t.targets) fmt::format_to(std::back_inserter(all), " {}", target);
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
  if (!next_type(rest, root)) return fmt::format("a '{}' is wanted here; what is sent has no description", mine.root);
  rest = theirs;
  for (described d; next_type(rest, d);) {
    const auto here =
        std::find_if(mine.types.begin(), mine.types.end(), [&](const graph_type& t) { return t.name == d.name; });
    if (here == mine.types.end() || here->container != nullptr ||
        fmt::format("{:016x}", here->type->layout_hash) == d.hash)
      continue;
    return fmt::format("type '{}' is {} here and {} at the sender", here->name, here->type->layout, quoted(d.layout));
  }
  const graph_type& own = mine.types.front();
  const std::string_view layout = own.container != nullptr ? "a container" : std::string_view(own.type->layout);
  if (root.name != own.name)
    return fmt::format("a '{}' is wanted here, {}; what is sent is a '{}', {}", own.name, layout, quoted(root.name),
                       quoted(root.layout));
  return fmt::format("'{}' refers to other types here, {}, than at the sender, {}", own.name, layout,
                     quoted(root.layout));
}

}  // namespace fm::detail
