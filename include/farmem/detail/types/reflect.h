// Takes managed types apart: the fields of a struct by Boost.PFR, of a class by the function that names them. Owns the
// judgement of a type (which rule it breaks, at which field) and the traits over it. The only file that includes PFR.
//
// PFR counts a C array as its elements, cannot see a base class without failing to compile, and reports a bit-field as
// its declared type. So these are told apart first, and the sizes of the fields must add up to the struct's size. A
// reference's target is never looked into, so types may refer to themselves and to incomplete types.
//
// Fields are counted here and not by PFR. It begins with as many as the struct has bits, each an argument, and halves
// that until they fit: a struct of some KiB took a second to compile. Here no more are tried than PFR can bind.
#pragma once

#include <boost/pfr/core.hpp>
#include <farmem/detail/types/fields.h>

namespace fm::detail {

/// What is wrong with a type, and at which of its fields (`nowhere`: with the type as a whole).
struct judgement {
  static constexpr std::size_t nowhere = ~std::size_t{0};
  verdict what = verdict::ok;
  std::size_t field = nowhere;
};

template <class T>
consteval judgement judge();
/// Judged once for each type.
template <class T>
inline constexpr judgement judgement_of = judge<T>();

/// Converts to anything: stands for an initialiser of an unknown field.
struct any_value {
  template <class T>
  constexpr operator T() const noexcept;
};
template <std::size_t>
using any_at = any_value;

/// Converts to a base of T only.
template <class T>
struct any_base {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>) constexpr operator B() const noexcept;
};

/// `{}` initialises a whole field, or swallows all elements of a C array, after which the rest are too many.
template <class T, std::size_t... Before, std::size_t... After>
consteval bool takes_braces(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires { T{any_at<Before>{}..., {}, any_at<After>{}...}; };
}

constexpr std::size_t most_fields = 100;  // what PFR 1.81 can bind

/// Whether T, an aggregate that is default constructible, is initialised by so many values; then it is by fewer, too.
template <class T, std::size_t... I>
consteval bool takes_values(std::index_sequence<I...>) {
  return requires { T{any_at<I>{}...}; };
}
/// The largest number of values that T takes, which is in [Taken, Refused). O(log(Refused - Taken)) instantiations.
template <class T, std::size_t Taken, std::size_t Refused>
consteval std::size_t values_between() {
  if constexpr (Taken + 1 == Refused)
    return Taken;
  else if constexpr (constexpr std::size_t middle = Taken + (Refused - Taken) / 2;
                     takes_values<T>(std::make_index_sequence<middle>{}))
    return values_between<T, middle, Refused>();
  else
    return values_between<T, Taken, middle>();
}
/// The fields of T, a C array being as many as it has elements; `most_fields + 1` for all that are more.
template <class T>
inline constexpr std::size_t field_count = values_between<T, 0, most_fields + 2>();

/// References to the fields of an aggregate with that number of them; they are to const if `t` is.
template <class T>
constexpr auto bind_fields(T& t) {
  return boost::pfr::detail::tie_as_tuple(t, boost::pfr::detail::size_t_<field_count<std::remove_const_t<T>>>{});
}
template <class T>
using bound_fields = decltype(bind_fields(std::declval<T&>()));
template <class... F>
constexpr std::tuple<F...> as_tuple(const boost::pfr::detail::sequence_tuple::tuple<F...>& t) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple<F...>(boost::pfr::detail::sequence_tuple::get<I>(t)...);
  }
  (std::index_sequence_for<F...>{});
}

/// The first field of T that is a C array of two or more, or `nowhere`.
template <class T, std::size_t N, std::size_t I = 0>
consteval std::size_t first_c_array() {
  if constexpr (I == N)
    return judgement::nowhere;
  else if constexpr (!takes_braces<T>(std::make_index_sequence<I>{}, std::make_index_sequence<N - 1 - I>{}))
    return I;
  else
    return first_c_array<T, N, I + 1>();
}

/// The fields of `t`, as a tuple of lvalue references.
template <class T>
constexpr auto fields_of(T& t) {
  if constexpr (traits_name_fields<T>)
    return managed_traits<T>::fields(t);
  else if constexpr (names_own_fields<T>)
    return T::fm_fields(t);
  else
    return as_tuple(bind_fields(t));
}

/// A list of types.
template <class... F>
struct types {};
template <class... F>
types<std::remove_cvref_t<F>...> as_types(const std::tuple<F...>&);
template <class... F>
types<std::remove_cvref_t<F>...> as_types(const boost::pfr::detail::sequence_tuple::tuple<F...>&);

/// The types of the fields of T, which is an aggregate that passed judge_shape() or names its fields. An aggregate is
/// bound as const: only a reference to const can bind a bit-field or a packed field, and adds_up() has to be reached to
/// say what is wrong with one.
template <class T>
consteval auto field_types() {
  if constexpr (traits_name_fields<T> || names_own_fields<T>)
    return decltype(as_types(fields_of(std::declval<T&>()))){};
  else
    return decltype(as_types(std::declval<bound_fields<const T>>())){};
}
template <class T>
using field_types_t = decltype(field_types<T>());
template <std::size_t I, class List>
struct type_at;
template <std::size_t I, class... F>
struct type_at<I, types<F...>> : std::tuple_element<I, std::tuple<F...>> {};
template <class T, std::size_t I>
using field_t = typename type_at<I, field_types_t<T>>::type;

/// The first field that can be changed in a const T: the one that is mutable, or `nowhere`.
template <class... F>
consteval std::size_t first_not_const(const std::tuple<F...>*) {
  std::size_t at = 0;
  return ((std::is_const_v<std::remove_reference_t<F>> && (++at, true)) && ...) ? judgement::nowhere : at;
}
template <class... F>
consteval std::size_t first_not_const(const boost::pfr::detail::sequence_tuple::tuple<F...>*) {
  return first_not_const(static_cast<const std::tuple<F...>*>(nullptr));
}
template <class T>
consteval std::size_t first_mutable() {
  if constexpr (traits_name_fields<T>) {
    if constexpr (requires(const T& t) { managed_traits<T>::fields(t); })
      return first_not_const(static_cast<decltype(managed_traits<T>::fields(std::declval<const T&>()))*>(nullptr));
  } else if constexpr (names_own_fields<T>) {
    if constexpr (requires(const T& t) { T::fm_fields(t); })
      return first_not_const(static_cast<decltype(T::fm_fields(std::declval<const T&>()))*>(nullptr));
  } else {
    return first_not_const(static_cast<bound_fields<const T>*>(nullptr));
  }
  return judgement::nowhere;  // they are named for objects that are not const alone
}

/// Whether fields of these types, one after the other, make exactly T: false when fields were not named, and for
/// bit-fields, packed structs and over-aligned fields. As a reference is 8 bytes aligned to 8, and nothing is aligned
/// to more, no reference can be missing or elsewhere when the sizes agree.
template <class T, class... F>
consteval bool adds_up(types<F...>) {
  std::size_t end = 0;
  ((end = (end + alignof(F) - 1) / alignof(F) * alignof(F) + sizeof(F)), ...);
  const std::size_t rounded = (end + alignof(T) - 1) / alignof(T) * alignof(T);
  return sizeof(T) == (end == 0 ? 1 : rounded);
}

/// What keeps T from being taken apart at all.
template <class T>
consteval judgement judge_shape() {
  if constexpr (traits_name_fields<T> || names_own_fields<T>)
    return {};
  else if constexpr (!std::is_default_constructible_v<T>)
    return {verdict::not_default_constructible};
  else if constexpr (requires { T{any_base<T>{}}; })
    return {verdict::base_class};
  else if constexpr (constexpr std::size_t at = first_c_array<T, field_count<T>>(); at != judgement::nowhere)
    return {verdict::c_array, at};
  else
    return {field_count<T> > most_fields ? verdict::too_many_fields : verdict::ok};
}

/// The first field that is not allowed.
template <class... F>
consteval judgement judge_fields(types<F...>) {
  judgement found;
  std::size_t at = 0;
  (void)((found.what = judgement_of<F>.what, found.what == verdict::ok ? (++at, true) : (found.field = at, false)) &&
         ...);
  return found;
}

template <class T>
consteval judgement judge_struct() {
  if constexpr (std::is_polymorphic_v<T>)
    return {verdict::polymorphic};
  else if constexpr (judge_shape<T>().what != verdict::ok)
    return judge_shape<T>();
  else {
    constexpr judgement fields = judge_fields(field_types<T>());
    if (fields.what != verdict::ok) return fields;
    if (constexpr std::size_t at = first_mutable<T>(); at != judgement::nowhere) return {verdict::mutable_field, at};
    if (!std::is_trivially_destructible_v<T>) return {verdict::destructor};
    if (alignof(T) > 8) return {verdict::alignment};
    if (!adds_up<T>(field_types<T>())) return {verdict::layout_gap};
    if (sizeof(T) > (std::size_t{1} << 30)) return {verdict::too_large};
    return {};
  }
}

/// T as a field, an element or a whole object; the rules are the same.
/// An incomplete type is an error even where the question is soft, because the answer would be remembered.
template <class T>
consteval judgement judge() {
  if constexpr (std::is_class_v<T> && !is_ref<T> && !is_weak<T>)
    static_assert(
        requires { sizeof(T); }, "farmem: a managed type must be complete where it is used: define it before");
  if constexpr (!std::is_same_v<T, std::remove_cvref_t<T>> || std::is_void_v<T> || std::is_function_v<T>)
    return {verdict::not_a_value};
  else if constexpr (is_ref<T> || is_weak<T>)
    return {};
  else if constexpr (is_instance<T, ptr>)
    return {verdict::root_handle};
  else if constexpr (std::is_pointer_v<T>)
    return {std::is_function_v<std::remove_pointer_t<T>> ? verdict::function_pointer : verdict::raw_pointer};
  else if constexpr (std::is_null_pointer_v<T>)
    return {verdict::raw_pointer};
  else if constexpr (std::is_member_pointer_v<T>)
    return {verdict::member_pointer};
  else if constexpr (std::is_same_v<T, long double>)
    return {verdict::long_double};
  else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
    return {alignof(T) > 8 || sizeof(T) > 8 ? verdict::alignment : verdict::ok};  // __int128, with extensions
  else if constexpr (std::is_array_v<T>)
    return {verdict::c_array};
  else if constexpr (std::is_union_v<T> && !traits_say_bytes<T>)
    return {verdict::union_type};
  else if constexpr (is_instance<T, std::atomic>)
    return {judge_atomic<T>()};
  else if constexpr (is_std_array<T>)
    return {judgement_of<typename T::value_type>.what};
  else if constexpr (is_instance<T, std::pair>) {
    constexpr verdict first = judgement_of<typename T::first_type>.what;
    return {first != verdict::ok ? first : judgement_of<typename T::second_type>.what};
  } else if constexpr (traits_say_bytes<T>) {
    if (!std::is_trivially_copyable_v<T>) return {verdict::not_bytes};
    return {alignof(T) > 8 ? verdict::alignment : verdict::ok};
  } else if constexpr (!std::is_class_v<T>)
    return {verdict::not_a_value};
  else if constexpr (std::is_aggregate_v<T> || traits_name_fields<T> || names_own_fields<T>)
    return judge_struct<T>();
  else
    return {std::is_polymorphic_v<T> ? verdict::polymorphic : foreign_class<T>()};
}

/// Whether a T is, or has somewhere in its fields, something of that kind.
template <class T, field_kind Sought>
consteval bool contains();
template <field_kind Sought, class... F>
consteval bool any_contains(types<F...>) {
  return (contains<F, Sought>() || ...);
}
template <class T, field_kind Sought>
consteval bool contains() {
  constexpr field_kind kind = kind_of<T>();
  if constexpr (kind == Sought)
    return true;
  else if constexpr (kind == field_kind::array)
    return std::tuple_size_v<T> != 0 && contains<typename T::value_type, Sought>();
  else if constexpr (kind == field_kind::pair)
    return contains<typename T::first_type, Sought>() || contains<typename T::second_type, Sought>();
  else if constexpr (kind == field_kind::structure)
    return any_contains<Sought>(field_types<T>());
  else
    return false;
}
template <class T>
consteval bool contains_refs() {
  return contains<T, field_kind::ref>();
}
/// A weak handle means nothing in another process.
template <class T>
consteval bool contains_weak() {
  return contains<T, field_kind::weak>();
}

}  // namespace fm::detail

namespace fm {

/// T may live in a managed heap: as an object, as the element of an array, or as a field of a managed type. T must be
/// complete. A failed compilation of fm::heap::make explains why a type is not managed.
template <class T>
concept managed = detail::judgement_of<T>
.what == detail::verdict::ok;

/// Whether T contains a reference. The collector scans such a type, and copying it needs the write barrier.
template <managed T>
inline constexpr bool has_refs = detail::contains_refs<T>();

/// T is managed and contains no reference, so it may be copied in bulk as bytes.
template <class T>
concept managed_plain = managed<T> && !has_refs<T>;

}  // namespace fm
