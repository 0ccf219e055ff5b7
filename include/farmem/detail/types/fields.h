// The kinds of fields that a managed type may have, by the field's type alone; how an aggregate is taken apart is in
// reflect.h. Owns the names that a user meets: fm_fields, fm::managed_traits and fm::managed_bytes.
//
//   arithmetic types (not long double), enums, lock-free std::atomic of those      a value
//   fm::ref<T>                                                                     a reference
//   fm::weak<T>                                                                    bytes that no collector looks at
//   std::array<F, N>, std::pair<F, G>                                              of allowed fields
//   a struct without bases, constructors, virtual functions or a destructor        its fields, found by reflection
//   a class with `static auto fm_fields(auto& self) { return std::tie(self.a_, self.b_); }`, public, naming all of its
//     fields in the order of declaration                                           those fields
//   a type for which fm::managed_traits<T> is specialised                          as that says
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <farmem/fwd.h>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fm {

/// Describes a type that cannot name its fields itself. Specialise it with a function that names the fields,
///   template <> struct fm::managed_traits<X> { static auto fields(auto& self) { return std::tie(self.a, self.b); } };
/// or derive the specialisation from fm::managed_bytes.
template <class T>
struct managed_traits {};

/// Marks a trivially copyable type as bytes that farmem stores and moves without interpreting them:
///   template <> struct fm::managed_traits<in6_addr> : fm::managed_bytes {};
/// The type must hold neither references nor addresses.
struct managed_bytes {
  static constexpr bool bytes = true;  ///< the mark
};

/// Durations are bytes.
template <class Rep, class Period>
struct managed_traits<std::chrono::duration<Rep, Period>> : managed_bytes {};
/// Time points are bytes.
template <class Clock, class Duration>
struct managed_traits<std::chrono::time_point<Clock, Duration>> : managed_bytes {};

namespace detail {

template <class T, template <class...> class Template>
inline constexpr bool is_instance = false;
template <class... A, template <class...> class Template>
inline constexpr bool is_instance<Template<A...>, Template> = true;

template <class T>
inline constexpr bool is_ref = is_instance<T, ref>;

template <class T>
inline constexpr bool is_weak = is_instance<T, weak>;

/// The type of the objects that a reference, or a weak handle, refers to.
template <class T>
struct ref_target;
template <class T>
struct ref_target<ref<T>> {
  using type = T;
};
template <class T>
struct ref_target<weak<T>> {
  using type = T;
};

template <class T>
inline constexpr bool is_std_array = false;
template <class E, std::size_t N>
inline constexpr bool is_std_array<std::array<E, N>> = true;

template <class T>
concept names_own_fields = requires(T& t) {
  T::fm_fields(t);
};
template <class T>
concept traits_name_fields = requires(T& t) {
  managed_traits<T>::fields(t);
};
template <class T>
concept traits_say_bytes = requires {
  requires managed_traits<T>::bytes;
};

/// What a field is, once it is known to be allowed.
enum class field_kind { value, bytes, ref, weak, array, pair, structure };

template <class F>
consteval field_kind kind_of() {
  if constexpr (is_ref<F>)
    return field_kind::ref;
  else if constexpr (is_weak<F>)
    return field_kind::weak;
  else if constexpr (std::is_arithmetic_v<F> || std::is_enum_v<F> || is_instance<F, std::atomic>)
    return field_kind::value;
  else if constexpr (is_std_array<F>)
    return field_kind::array;
  else if constexpr (is_instance<F, std::pair>)
    return field_kind::pair;
  else if constexpr (traits_say_bytes<F>)
    return field_kind::bytes;
  else
    return field_kind::structure;
}

/// What is wrong with a type, or nothing. One enumerator for one message (farmem/object/managed.h).
enum class verdict {
  ok,
  raw_pointer,
  function_pointer,
  member_pointer,
  root_handle,
  std_string,
  string_view,
  span,
  container,
  smart_pointer,
  function,
  tuple,
  sum_type,
  long_double,
  atomic,
  c_array,
  union_type,
  not_a_value,
  mutable_field,
  polymorphic,
  base_class,
  destructor,
  alignment,
  not_default_constructible,
  no_fields_named,
  not_bytes,
  layout_gap,
  too_many_fields,
  too_large,
};

/// A class that is neither an aggregate nor names its fields: told by what it offers, so that the library needs none
/// of the headers, and so that look-alikes of the standard types are told the same.
template <class C>
consteval verdict foreign_class() {
  if constexpr (
      requires { typename C::traits_type; } && requires(C & c) { c.c_str(); })
    return verdict::std_string;
  else if constexpr (
      requires { typename C::traits_type; } && requires(C & c) { c.remove_prefix(1); })
    return verdict::string_view;
  else if constexpr (requires(C & c) {
                       c.size_bytes();
                       c.subspan(0);
                     })
    return verdict::span;
  else if constexpr (requires(C & c) {
                       typename C::value_type;
                       c.begin();
                       c.end();
                     })
    return verdict::container;
  else if constexpr (requires(C & c) {
                       typename C::container_type;
                       c.pop();
                     })
    return verdict::container;
  else if constexpr (requires(C & c) {
                       typename C::element_type;
                       c.reset();
                     })
    return verdict::smart_pointer;
  else if constexpr (requires(C & c) { c.target_type(); })
    return verdict::function;
  else if constexpr (requires(C & c) { c.valueless_by_exception(); })
    return verdict::sum_type;
  else if constexpr (requires(C & c) {
                       c.has_value();
                       c.reset();
                     })
    return verdict::sum_type;
  else if constexpr (requires { std::tuple_size<C>::value; })
    return verdict::tuple;
  else
    return verdict::no_fields_named;
}

/// A std::atomic as a field. Its operations act on the frame, so it must be plain memory: no lock beside it.
template <class A>
consteval verdict judge_atomic() {
  using value = typename A::value_type;
  if constexpr (std::is_pointer_v<value>)
    return verdict::raw_pointer;
  else if constexpr (!(std::is_arithmetic_v<value> || std::is_enum_v<value>) || sizeof(A) > 8)
    return verdict::atomic;
  else
    return A::is_always_lock_free ? verdict::ok : verdict::atomic;
}

/// The name of a value's representation in a layout. Enums and atomics are called what they hold.
template <class V>
consteval const char* code_of() {
  if constexpr (std::is_enum_v<V>)
    return code_of<std::underlying_type_t<V>>();
  else if constexpr (is_instance<V, std::atomic>)
    return code_of<typename V::value_type>();
  else if constexpr (std::is_same_v<V, bool>)
    return "bool";
  else if constexpr (std::is_floating_point_v<V>)
    return sizeof(V) == 4 ? "f32" : "f64";
  else {
    constexpr int log2 = sizeof(V) == 1 ? 0 : sizeof(V) == 2 ? 1 : sizeof(V) == 4 ? 2 : 3;
    constexpr std::array<const char*, 4> with_sign{"i8", "i16", "i32", "i64"}, without{"u8", "u16", "u32", "u64"};
    // Plain char has a name of its own: its sign is the machine's.
    if constexpr (std::is_same_v<V, char>)
      return "char";
    else
      return std::is_signed_v<V> ? with_sign[log2] : without[log2];
  }
}

}  // namespace detail
}  // namespace fm
