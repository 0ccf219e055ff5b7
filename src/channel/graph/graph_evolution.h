// How a receiver takes a graph whose sender has other types: it compares the sender's description with its own schema
// field by field, by name, and each difference becomes a list of copies.
//
//   accepted   a field stands elsewhere; a field that the sender does not have, which gets its default value, or null; an
//              alternative of an fm::one_of in another place, or that the sender does not have
//   refused    a field that only the sender has, because it would be lost; a field of another type; a type or an
//              alternative that is not known here; a description that is not whole
//
// The form of a description, in lines of columns with tabs between them: for each type, and then for each of its fields
//
//   name | hash of the layout | layout | o (object), a (array), c (container) | bytes of the object, or of an element
//        | name | offset | bytes | code | alternatives, of a field that refers to an fm::one_of ...
//
// and at the end ".", the root's name, and its alternatives. Of a class that names its fields itself, a field's name is
// its place.
//
// Invariants owned here
//   - Copies stay inside of the sender's object, as it says how large that is, and inside of the own one.
//   - All that an object has becomes known in the order in which the sender's references stand.
//
// A description comes from a peer: nothing of it is used but what was found in the own schema, and numbers that were
// checked. channel_core makes evolutions, graph_reader goes by them.
#pragma once

#include <farmem/detail/graph/schema.h>
#include <optional>

namespace fm::detail {

/// How an object, or an element, of the sender becomes one of ours.
struct graph_conversion {
  struct copy {
    std::uint32_t from, to, bytes;
  };
  std::uint32_t bytes = 0;  ///< of the sender's
  std::vector<copy> copies;
  std::vector<std::uint32_t> order;  ///< numbers of the own references that the sender has, in its order

  /// `count` of them. References are copied as they are.
  void convert(const char* from, char* to, std::uint64_t count, const graph_type& own) const;
};

struct graph_evolution {
  std::vector<std::optional<graph_conversion>> types;  ///< by number of the own; nothing: they are alike
  std::vector<std::vector<std::uint32_t>> choices;     ///< by number of the own: own types, by the sender's place
};

/// Compares. Throws layout_mismatch, with both layouts of a type that differs and the field that cannot be taken.
/// O(types * fields).
graph_evolution evolve(const graph_schema& mine, std::string_view theirs);

}  // namespace fm::detail
