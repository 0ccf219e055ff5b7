// Comparing the description of a sender's types with the own schema; see graph_evolution.h. Keeps no state.
#include "graph_evolution.h"
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace fm::detail {
namespace {

struct their_field {
  std::string_view name, code;
  std::uint32_t offset = 0, bytes = 0;
  std::vector<std::string_view> alternatives;
};
struct their_type {
  std::string_view name, kind;
  std::uint32_t bytes = 0;
  std::vector<their_field> fields;
};

/// Why it cannot be taken. Becomes an fm::error in evolve().
struct refusal {
  std::string why;
};

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (;;) {
    const std::size_t end = line.find('\t');
    out.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return out;
    line.remove_prefix(end + 1);
  }
}

std::uint32_t number(std::string_view text) {
  std::uint32_t n = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (wrong != std::errc() || end != text.data() + text.size() || n > (1u << 30))
    throw refusal{fmt::format("the sender's description has '{}' in place of a size", quoted(text))};
  return n;
}

class comparison {
 public:
  explicit comparison(const graph_schema& mine) : mine_(mine), known_(mine.types.size()) {
    out_.types.resize(mine.types.size());
    out_.choices.resize(mine.choices.size());
  }

  graph_evolution compare(std::string_view text) {
    for (;;) {
      const std::size_t end = text.find('\n');
      if (end == std::string_view::npos) throw refusal{"the sender's description is not whole"};
      const std::vector<std::string_view> columns = columns_of(text.substr(0, end));
      text.remove_prefix(end + 1);
      if (columns[0] == ".") {
        finish_type();
        if (!text.empty()) throw refusal{"the sender's description goes on after its end"};
        compare_root(columns);
        return std::move(out_);
      }
      if (columns[0].empty())
        add_field(columns);
      else
        add_type(columns);
    }
  }

 private:
  void add_type(const std::vector<std::string_view>& columns) {
    finish_type();
    if (columns.size() != 5) throw refusal{"the sender's description has a line that is none"};
    theirs_.emplace(their_type{columns[0], columns[3], number(columns[4]), {}});
  }

  void add_field(const std::vector<std::string_view>& columns) {
    if (!theirs_ || columns.size() < 5) throw refusal{"the sender's description has a line that is none"};
    their_field f{columns[1], columns[4], number(columns[2]), number(columns[3]), {columns.begin() + 5, columns.end()}};
    if (std::uint64_t{f.offset} + f.bytes > theirs_->bytes)
      throw refusal{fmt::format("a field of '{}' does not lie in it", quoted(theirs_->name))};
    theirs_->fields.push_back(std::move(f));
  }

  void finish_type() {
    if (!theirs_) return;
    const auto here = std::find_if(mine_.types.begin(), mine_.types.end(), [&](const graph_type& t) {
      const char kind = t.container != nullptr ? 'c' : t.is_array() ? 'a' : 'o';
      return theirs_->kind == std::string_view(&kind, 1) && t.name == theirs_->name;
    });
    if (here == mine_.types.end())
      throw refusal{fmt::format("the sender's type '{}' is not known here", quoted(theirs_->name))};
    const auto n = static_cast<std::size_t>(here - mine_.types.begin());
    if (known_[n]) throw refusal{fmt::format("the sender's type '{}' comes twice", quoted(theirs_->name))};
    known_[n] = true;
    if (here->container == nullptr) compare_fields(*here, out_.types[n]);
    theirs_.reset();
  }

  void compare_fields(const graph_type& own, std::optional<graph_conversion>& to) {
    std::vector<their_field>& fields = theirs_->fields;
    std::stable_sort(fields.begin(), fields.end(),
                     [](const their_field& a, const their_field& b) { return a.offset < b.offset; });
    graph_conversion c;
    c.bytes = theirs_->bytes;
    if (c.bytes == 0) throw refusal{fmt::format("the sender's '{}' has no bytes", own.name)};
    bool alike = c.bytes == own.type->bytes && fields.size() == own.fields.size();
    std::vector<bool> taken(own.fields.size());
    for (const their_field& f : fields) {
      const std::size_t n = find_field(own, f);
      if (taken[n]) throw refusal{fmt::format("the sender's '{}' has two fields '{}'", own.name, own.fields[n].name)};
      taken[n] = true;
      const graph_field& here = own.fields[n];
      alike = alike && here.offset == f.offset;
      c.copies.push_back({f.offset, here.offset, f.bytes});
      const std::vector<std::uint32_t> refs = refs_in(own, here);
      c.order.insert(c.order.end(), refs.begin(), refs.end());
      compare_choice(refs.empty() ? graph_target{0} : own.targets[refs.front()], f.alternatives,
                     fmt::format("field '{}' of '{}'", here.name, own.name));
      take_other_choices(own, refs);
    }
    if (!alike) to = std::move(c);
  }

  std::size_t find_field(const graph_type& own, const their_field& f) {
    const auto here =
        std::find_if(own.fields.begin(), own.fields.end(), [&](const graph_field& o) { return o.name == f.name; });
    if (here == own.fields.end())
      throw refusal{fmt::format("field '{}' of the sender's '{}' is not known here, and would be lost", quoted(f.name),
                                own.name)};
    if (here->code != f.code || here->bytes != f.bytes)
      throw refusal{fmt::format("field '{}' of '{}' is {} here and {} at the sender", here->name, own.name, here->code,
                                quoted(f.code))};
    return static_cast<std::size_t>(here - own.fields.begin());
  }

  /// Each type that the references to `own` can have at the sender is one that they can have here.
  void compare_choice(graph_target own, const std::vector<std::string_view>& theirs, const std::string& where) {
    if (!is_choice(own)) {
      if (!theirs.empty()) throw refusal{fmt::format("{} refers to one type here", where)};
      return;
    }
    if (theirs.empty()) throw refusal{fmt::format("{} refers to one of several types here", where)};
    const graph_choice& here = mine_.choices[own & ~choice_bit];
    std::vector<std::uint32_t>& to = out_.choices[own & ~choice_bit];
    to.clear();
    for (const std::string_view name : theirs) {
      const auto at = std::find(here.names.begin(), here.names.end(), name);
      if (at == here.names.end())
        throw refusal{fmt::format("{} can be a '{}' at the sender, and not here", where, quoted(name))};
      to.push_back(here.types[static_cast<std::size_t>(at - here.names.begin())]);
    }
  }

  /// An array of structs is one field with several references. The alternatives of the first one alone are listed. Those
  /// of the others are in the field's code, which was found equal, so the sender has the own ones.
  void take_other_choices(const graph_type& own, const std::vector<std::uint32_t>& refs) {
    for (const std::uint32_t r : refs) {
      const graph_target t = own.targets[r];
      if (is_choice(t) && t != own.targets[refs.front()])
        out_.choices[t & ~choice_bit] = mine_.choices[t & ~choice_bit].types;
    }
  }

  void compare_root(const std::vector<std::string_view>& columns) {
    if (columns.size() < 2) throw refusal{"the sender's description is not whole"};
    if (is_choice(mine_.root_target))
      compare_choice(mine_.root_target, {columns.begin() + 2, columns.end()}, "the root");
    else if (columns[1] != mine_.root || columns.size() != 2 || !known_[mine_.root_target])
      throw refusal{fmt::format("a '{}' is wanted here, and the root is a '{}'", mine_.root, quoted(columns[1]))};
  }

  const graph_schema& mine_;
  std::vector<bool> known_;
  std::optional<their_type> theirs_;  ///< whose fields are being read
  graph_evolution out_;
};

}  // namespace

void graph_conversion::convert(const char* from, char* to, std::uint64_t count, const graph_type& own) const {
  for (; count != 0; --count, from += bytes, to += own.type->bytes) {
    std::memcpy(to, own.defaults.data(), own.type->bytes);
    for (const copy& c : copies) std::memcpy(to + c.to, from + c.from, c.bytes);
  }
}

graph_evolution evolve(const graph_schema& mine, std::string_view theirs) {
  try {
    return comparison(mine).compare(theirs);
  } catch (const refusal& r) {
    throw error(errc::layout_mismatch, fmt::format("{} ({})", describe_mismatch(mine, theirs), r.why));
  }
}

}  // namespace fm::detail
