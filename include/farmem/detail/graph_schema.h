// The schema of a graph: all types that fm::ref fields reach from the root's type, and which type each field refers to.
// Both ends of a channel work it out from their own program and compare a hash.
//
// Invariant, and why no type travels with an object. An fm::ref<X> refers to an X and to nothing else. So the receiver
// knows the type of every object from the field that it was reached through. No class number travels that a sender
// could forge, and no hint that could be wrong. If a frame's header is not of the field's type, the sender refuses the
// frame.
//
// schema_of makes a schema once for each type; the reader and the writer of graphs (src/channel/graph) walk by it.
#pragma once

#include <atomic>
#include <farmem/array.h>
#include <farmem/detail/check.h>
#include <farmem/detail/describe.h>
#include <memory>
#include <string>
#include <vector>

namespace fm::detail {

/// One type of a graph.
struct graph_type {
  const type_descriptor* type = nullptr;
  std::vector<std::uint32_t> targets;  ///< for each of its ref_offsets: which of the schema's types the field refers to

  [[nodiscard]] bool is_array() const noexcept { return type->kind == type_kind::array; }
  [[nodiscard]] bool has_refs() const noexcept { return !targets.empty(); }
  /// Where reference number `r` of an object stands in its payload; the elements of an array are numbered through.
  [[nodiscard]] std::uint64_t ref_at(std::uint64_t r) const noexcept {
    if (!is_array()) return type->ref_offsets[r];
    return 8 + r / targets.size() * type->bytes + type->ref_offsets[r % targets.size()];
  }
};

/// The types of the graphs with one type of root, the root's first, in the order of a depth-first walk over the fields.
struct graph_schema {
  std::vector<graph_type> types;
  std::uint64_t hash = 0;  ///< equal at both ends exactly when all names, layouts and targets are
  std::string root;        ///< name of the root's type
  std::string
      description;  ///< "name\thash\tlayout\n" for each type, for the message when the other end has other types
};

/// Fills in hash, root and description.
void finish_schema(graph_schema& s);

/// What keeps a graph described by `theirs` from being a `mine`: the first type whose layouts differ, with both layouts.
/// `theirs` comes from a peer and is only compared and quoted. O(types).
std::string describe_mismatch(const graph_schema& mine, std::string_view theirs);

/// What may be the target of a reference in a graph that is sent.
template <class T>
consteval bool may_be_sent() {
  using object = std::remove_const_t<object_t<T>>;
  return std::is_same_v<object, T> || is_instance<object, array_object>;
}

template <class A>
struct array_element;
template <class E>
struct array_element<array_object<E>> {
  using type = E;
};
template <class A>
using element_of = typename array_element<A>::type;

template <class T>
std::uint32_t schema_type(graph_schema& s);

/// Appends what each reference in an F refers to, in the order of their offsets.
template <class F>
void schema_targets(graph_schema& s, std::vector<std::uint32_t>& out) {
  if constexpr (has_refs<F>) {
    constexpr field_kind kind = kind_of<F>();
    if constexpr (kind == field_kind::ref) {
      out.push_back(schema_type<typename ref_target<F>::type>(s));
    } else if constexpr (kind == field_kind::array) {
      const std::size_t from = out.size();
      schema_targets<typename F::value_type>(s, out);
      const std::size_t each = out.size() - from;
      for (std::size_t i = each; i < each * std::tuple_size_v<F>; ++i) out.push_back(out[from + i % each]);
    } else if constexpr (kind == field_kind::pair) {
      schema_targets<typename F::first_type>(s, out);
      schema_targets<typename F::second_type>(s, out);
    } else {
      [&]<class... Fields>(types<Fields...>) { (schema_targets<Fields>(s, out), ...); }(field_types_t<F>{});
    }
  }
}

/// The number of the type that stands behind a reference to T; adds it, and what it refers to, when it is new.
template <class T>
std::uint32_t schema_type(graph_schema& s) {
  static_assert(!std::same_as<T, object> && !is_instance<T, one_of>,
                "farmem: a channel cannot send a reference whose type is found at run time: the receiver knows the "
                "type of an object from the field alone. Send fields of one type each");
  static_assert(
      requires { sizeof(object_t<T>); }, "farmem: a type that a sent graph refers to must be complete here");
  static_assert(
      may_be_sent<T>(),
      "farmem: a container's header says what its other objects must be like, which a channel cannot check when it "
      "comes from outside: send arrays, fm::string and structs, and fill the container from them");
  using object = std::remove_const_t<object_t<T>>;
  constexpr bool is_array = is_instance<object, array_object>;
  const type_descriptor* type = nullptr;
  if constexpr (is_array)
    type = &array_descriptor_of<element_of<object>>();
  else
    type = &descriptor_of<T>();
  for (std::uint32_t i = 0; i < s.types.size(); ++i)
    if (s.types[i].type == type) return i;
  const auto number = static_cast<std::uint32_t>(s.types.size());
  s.types.push_back({type, {}});
  std::vector<std::uint32_t> targets;
  if constexpr (is_array)
    schema_targets<element_of<object>>(s, targets);
  else
    schema_targets<T>(s, targets);
  FM_CHECK(targets.size() == type->ref_offsets.size(), "the walk for a schema and the descriptor disagree");
  s.types[number].targets = std::move(targets);
  return number;
}

/// The schema of graphs whose root is a T. Made on first use, perhaps by several threads, of whom one is the first; so a
/// child that is forked meanwhile waits for nobody. Thread-safe. Throws as descriptor_of.
template <class T>
const graph_schema& schema_of() {
  static std::atomic<const graph_schema*> made{nullptr};
  if (const graph_schema* s = made.load(std::memory_order_acquire)) return *s;
  auto mine = std::make_unique<graph_schema>();
  schema_type<T>(*mine);
  finish_schema(*mine);
  const graph_schema* first = nullptr;
  return made.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel) ? *mine.release() : *first;
}

}  // namespace fm::detail
