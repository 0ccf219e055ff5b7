// The schema of a graph: all types that fm::ref fields reach from the root's type, and which type each field refers to.
// Both ends of a channel work it out from their own program and compare a hash.
//
// Invariant, and why no type travels with an object. An fm::ref<X> that is sent refers to an X and to nothing else, not
// even to what begins with an X (fm::upcast). So the receiver
// knows the type of every object from the field that it was reached through. No class number travels that a sender
// could forge, and no hint that could be wrong. If a frame's header is not of the field's type, the sender refuses the
// frame. An fm::ref<fm::one_of<A, B>> leaves a choice. There the place of the type among the alternatives travels with
// the object, and nothing else can be chosen.
//
// If the hashes differ, the receiver compares the descriptions field by field (src/channel/graph/graph_evolution.h).
//
// schema_of makes a schema once for each type; the reader and the writer of graphs (src/channel/graph) walk by it.
#pragma once

#include <atomic>
#include <farmem/detail/check.h>
#include <farmem/detail/graph/containers.h>
#include <farmem/detail/graph/fields.h>
#include <farmem/detail/types/describe.h>
#include <farmem/object/array.h>
#include <memory>
#include <string>
#include <vector>

namespace fm::detail {

/// The target of a reference: the number of a type of the schema; or, with this bit, of a choice.
using graph_target = std::uint32_t;
constexpr graph_target choice_bit = 1u << 31;
constexpr bool is_choice(graph_target t) noexcept { return (t & choice_bit) != 0; }

/// One type of a graph.
struct graph_type {
  const type_descriptor* type = nullptr;
  std::vector<graph_target> targets;               ///< for each of its ref_offsets; none of a container
  const graph_container_ops* container = nullptr;  ///< of a container: how it travels, ...
  std::uint32_t entries = 0;                       ///< ... and which of the types is an array of its entries
  std::string name;                                ///< as the program spells it; of an array, that of its elements
  std::vector<graph_field> fields;                 ///< of the object, or of an element; none of a container
  std::vector<char> defaults;                      ///< of the object, or of an element

  [[nodiscard]] bool is_array() const noexcept { return type->kind == type_kind::array; }
  [[nodiscard]] bool has_refs() const noexcept { return !targets.empty(); }
  /// Where reference number `r` of an object stands in its payload; the elements of an array are numbered through.
  [[nodiscard]] std::uint64_t ref_at(std::uint64_t r) const noexcept {
    if (!is_array()) return type->ref_offsets[r];
    return 8 + r / targets.size() * type->bytes + type->ref_offsets[r % targets.size()];
  }
};

/// The types that an fm::one_of can be. Each field that refers to one has its own.
struct graph_choice {
  std::vector<std::uint32_t> types;
  std::vector<std::string> names;  ///< as the program spells them
};

/// The types of the graphs with one type of root, in the order of a depth-first walk over the fields.
struct graph_schema {
  std::vector<graph_type> types;
  std::vector<graph_choice> choices;
  graph_target root_target = 0;
  std::uint64_t hash = 0;   ///< equal at both ends exactly when all names, layouts, fields and targets are
  std::string root;         ///< name of the root's type
  std::string description;  ///< of all types, for a receiver that has others; graph_evolution.h has the form

  /// A type by which messages call a target: of a choice, the first one.
  [[nodiscard]] const std::string& name_of_target(graph_target t) const noexcept {
    return types[is_choice(t) ? choices[t & ~choice_bit].types.front() : t].name;
  }
};

/// Fills in hash, root and description.
void finish_schema(graph_schema& s);

/// What keeps a graph described by `theirs` from being a `mine`: the first type whose layouts differ, with both layouts.
/// `theirs` comes from a peer and is only compared and quoted. O(types).
std::string describe_mismatch(const graph_schema& mine, std::string_view theirs);
/// Text of a peer for a message: short, and nothing in it that a terminal would act on.
std::string quoted(std::string_view text);
/// The numbers of the references that stand in a field.
std::vector<std::uint32_t> refs_in(const graph_type& t, const graph_field& f);

/// What may be the target of a reference in a graph that is sent.
template <class T>
consteval bool may_be_sent() {
  using object = std::remove_const_t<object_t<T>>;
  return std::is_same_v<object, T> || is_instance<object, array_object> || graph_container_type<T>;
}

template <class A>
struct array_element;
template <class E>
struct array_element<array_object<E>> {
  using type = E;
};
template <class A>
using element_of = typename array_element<A>::type;

/// The object whose fields travel for a T: of a container, an array of its entries.
template <class T>
struct sent_object {
  using type = std::remove_const_t<object_t<T>>;
};
template <graph_container_type T>
struct sent_object<T> {
  using type = array_object<typename graph_container<T>::entry>;
};

template <class Object>
consteval bool has_weak() {
  if constexpr (is_instance<Object, array_object>)
    return contains_weak<element_of<Object>>();
  else
    return contains_weak<Object>();
}
template <class Object>
constexpr void check_strong() {
  static_assert(!has_weak<Object>(),
                "farmem: a channel cannot send an fm::weak: it names an object of this process. Send a struct without "
                "it, and set the handles at the receiver");
}

template <class T>
graph_target schema_target(graph_schema& s);

/// Appends what each reference in an F refers to, in the order of their offsets.
template <class F>
void schema_targets(graph_schema& s, std::vector<graph_target>& out) {
  if constexpr (has_refs<F>) {
    constexpr field_kind kind = kind_of<F>();
    if constexpr (kind == field_kind::ref) {
      out.push_back(schema_target<typename ref_target<F>::type>(s));
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

/// The number of a type that is in the schema from here on, and whether it is new.
std::pair<std::uint32_t, bool> number_in_schema(graph_schema& s, const type_descriptor& type);

/// Fills in what objects, or elements, of type E are.
template <class E>
void schema_fields(graph_schema& s, std::uint32_t number) {
  s.types[number].fields = fields_listed<E>();
  s.types[number].defaults = default_bytes<E>();
  std::vector<graph_target> targets;
  schema_targets<E>(s, targets);
  FM_CHECK(targets.size() == s.types[number].type->ref_offsets.size(),
           "the walk for a schema and the descriptor disagree");
  s.types[number].targets = std::move(targets);
}

/// The number of the type of arrays with elements of type E; adds it, and what it refers to, when it is new.
template <class E>
std::uint32_t schema_array(graph_schema& s) {
  const auto [number, added] = number_in_schema(s, array_descriptor_of<E>());
  if (!added) return number;
  s.types[number].name = s.types[number].type->name;
  schema_fields<E>(s, number);
  return number;
}

/// The number of the type that stands behind a reference to T; adds it, and what it refers to, when it is new.
template <class T>
std::uint32_t schema_type(graph_schema& s) {
  static_assert(!std::same_as<T, object>,
                "farmem: a channel cannot send an fm::object, whose type can be any: the receiver must know what may "
                "come. Use fm::one_of, which names the types");
  static_assert(
      requires { sizeof(object_t<T>); }, "farmem: a type that a sent graph refers to must be complete here");
  static_assert(
      may_be_sent<T>(),
      "farmem: a channel cannot send this container: it sends fm::vector, fm::hash_map, fm::hash_set, fm::map, "
      "fm::set and fm::string. Copy the elements to one of these");
  using object = std::remove_const_t<object_t<T>>;
  using sent = typename sent_object<T>::type;
  check_strong<sent>();
  if constexpr (has_weak<sent>()) {
    return 0;  // the message above is the one that helps
  } else if constexpr (is_instance<object, array_object>) {
    return schema_array<element_of<object>>(s);
  } else if constexpr (graph_container_type<T>) {
    const auto [number, added] = number_in_schema(s, descriptor_of<object>());
    if (!added) return number;
    s.types[number].name = name_of<T>();
    s.types[number].container = &graph_container<T>::ops;
    const std::uint32_t entries = schema_array<typename graph_container<T>::entry>(s);
    s.types[number].entries = entries;
    return number;
  } else {
    const auto [number, added] = number_in_schema(s, descriptor_of<T>());
    if (!added) return number;
    s.types[number].name = s.types[number].type->name;
    schema_fields<T>(s, number);
    return number;
  }
}

template <class T>
struct schema_choice;
template <class... Ts>
struct schema_choice<one_of<Ts...>> {
  static graph_target add(graph_schema& s) {
    static_assert(sizeof...(Ts) <= 250, "farmem: a channel sends a one_of of at most 250 types");
    const std::size_t number = s.choices.size();
    s.choices.push_back({{}, {name_of<Ts>()...}});
    // Not in place: the types that are added may add choices.
    const std::vector<std::uint32_t> types{schema_type<Ts>(s)...};
    s.choices[number].types = types;
    return choice_bit | static_cast<graph_target>(number);
  }
};

/// The target, in the schema, of a reference to a T.
template <class T>
graph_target schema_target(graph_schema& s) {
  using type = std::remove_const_t<T>;
  if constexpr (is_instance<type, one_of>)
    return schema_choice<type>::add(s);
  else
    return schema_type<type>(s);
}

/// The schema of graphs whose root is a T. Made on first use, perhaps by several threads, of whom one is the first; so a
/// child that is forked meanwhile waits for nobody. Thread-safe. Throws as descriptor_of.
template <class T>
const graph_schema& schema_of() {
  static std::atomic<const graph_schema*> made{nullptr};
  if (const graph_schema* s = made.load(std::memory_order_acquire)) return *s;
  auto mine = std::make_unique<graph_schema>();
  mine->root_target = schema_target<T>(*mine);
  finish_schema(*mine);
  const graph_schema* first = nullptr;
  return made.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel) ? *mine.release() : *first;
}

}  // namespace fm::detail
