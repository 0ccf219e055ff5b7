// References whose type is found at run time: fm::object and fm::one_of as the type argument of handles and fields.
//
//   ptr<object>, ref<object>             any managed object
//   ptr<one_of<A, B>>, ref<one_of<A, B>> an A or a B
//   type_of(p)        what it is: name, bytes, array or not
//   cast<A>(p)        a ptr<A>, null if it is something else
//   as<A>(p)          the same, throws if it is something else
//   visit(f, p)       calls f with the ptr<A> or ptr<B> that it is
//   upcast<B>(p)      a ptr<B> to the B that the object of p begins with
//
// Every object says its type in its header, so nothing is stored twice, and the collector follows such a reference as any
// other. A typed handle converts to one that covers its type.
//
// Channels send one_of, and with each object the place of its type among the alternatives. They do not send fm::object:
// the receiver must know what can come (farmem/detail/graph/schema.h).
#pragma once

#include <concepts>
#include <farmem/detail/types/describe.h>
#include <farmem/handles/ptr.h>
#include <functional>
#include <string>
#include <string_view>

namespace fm {

/// What a managed object is.
struct object_type {
  std::string_view
      name;  ///< of the struct, or of an array's elements, as the program spells it; as long as the process
  std::uint64_t bytes = 0;  ///< of the struct, or of one element
  bool is_array = false;    ///< of elements of that type
  /// Whether both are the same type.
  friend bool operator==(const object_type&, const object_type&) = default;
};

namespace detail {

/// The descriptor of objects that a handle to a T names.
template <class T>
const type_descriptor& descriptor_behind() {
  using object_type = std::remove_const_t<object_t<T>>;
  if constexpr (is_instance<object_type, array_object>)
    return []<class E>(const array_object<E>*) -> const type_descriptor& {
      return array_descriptor_of<E>();
    }(static_cast<const object_type*>(nullptr));
  else
    return descriptor_of<object_type>();
}

/// The type number in the header of an object, which is fetched if it is remote. Throws as fm::ptr's ->.
inline std::uint32_t type_number(slot_t slot) {
  const user_section in_section;
  const char* const payload = read_barrier(slot);
  return header::type(frame::prefix(const_cast<char*>(payload)).header.load(std::memory_order_relaxed));
}

template <class T, class U>
using cast_to = std::conditional_t<std::is_const_v<U>, const T, T>;

template <class T, class Tag>
inline constexpr bool may_be = std::same_as<std::remove_const_t<Tag>, object>;
template <class T, class... Ts>
inline constexpr bool may_be<T, one_of<Ts...>> = (std::same_as<T, Ts> || ...);
template <class T, class... Ts>
inline constexpr bool may_be<T, const one_of<Ts...>> = (std::same_as<T, Ts> || ...);

/// Whether the first field of a T is a B, or begins with one: then they have one address. Only of structs whose fields
/// reflection finds, because they are in order.
template <class T, class B>
consteval bool begins_with() {
  if constexpr (!std::is_class_v<T> || !std::is_aggregate_v<T> || traits_name_fields<T> || names_own_fields<T> ||
                is_std_array<T>) {
    return false;
  } else if constexpr (!managed<T> || !std::is_standard_layout_v<T>) {
    return false;
  } else if constexpr (std::same_as<field_types_t<T>, types<>>) {
    return false;
  } else {
    using start = field_t<T, 0>;
    return std::same_as<start, B> || begins_with<start, B>();
  }
}
/// Whether what a handle to a U names may be a T that begins with the U.
template <class T, class U>
consteval bool may_begin_as() {
  if constexpr (!std::is_class_v<T> || !std::is_class_v<U> || is_instance<U, one_of> || std::same_as<U, object>)
    return false;
  else
    return begins_with<T, U>();
}

template <class R, class U, class F, class T, class... Rest>
R visit_as(F&& f, slot_t slot, std::uint32_t type) {
  if (type == descriptor_behind<T>().id) return std::invoke(std::forward<F>(f), ptr<cast_to<T, U>>::from_slot(slot));
  if constexpr (sizeof...(Rest) != 0)
    return visit_as<R, U, F, Rest...>(std::forward<F>(f), slot, type);
  else
    throw_wrong_type(type, "one of the types of a one_of");
}

}  // namespace detail

/// What the object is. Fetches it if it is remote. O(1). Throws as fm::ptr's ->.
template <class U>
[[nodiscard]] object_type type_of(const ptr<U>& p) {
  const detail::type_descriptor* const d = detail::find_type(detail::type_number(p.slot()));
  if (d == nullptr) return {};
  return {d->name, d->bytes, d->kind == detail::type_kind::array};
}

/// A handle to the B that the object of `p` begins with; null if `p` is. B is the type of the first field of T, or of the
/// first field of that, and so on. The object stays a T: type_of() says so, and cast<T>() and as<T>() of the handle lead
/// back. O(1), fetches nothing. There is no implicit conversion, because T must be complete for it. A channel does not
/// send the handle, nor a field of its type that refers to a T: it fails with errc::corrupt, because an object that is
/// sent is of its field's type.
template <class B, class T>
[[nodiscard]] ptr<detail::cast_to<B, T>> upcast(const ptr<T>& p) {
  static_assert(detail::begins_with<std::remove_const_t<T>, B>(),
                "farmem: an upcast leads to the type of the first field, of a managed struct whose fields are public: "
                "make that type the first field, or use fm::one_of");
  return ptr<detail::cast_to<B, T>>::from_slot(p.slot());
}
/// The same of what a field refers to.
template <class B, class T>
[[nodiscard]] ptr<B> upcast(const ref<T>& r) {
  return upcast<B>(r.root());
}

/// A handle to the object as a T; null if it is of another type, or `p` is null. Fetches the object if it is remote. O(1).
/// Does not compile if `p` cannot name a T. Throws as fm::ptr's ->, but null_handle.
template <class T, class U>
[[nodiscard]] ptr<detail::cast_to<T, U>> cast(const ptr<U>& p) {
  static_assert(detail::may_be<T, U> || detail::may_begin_as<T, std::remove_const_t<U>>(),
                "this handle never names an object of that type");
  if (!p || detail::type_number(p.slot()) != detail::descriptor_behind<T>().id) return {};
  return ptr<detail::cast_to<T, U>>::from_slot(p.slot());
}
/// The same of what a field refers to.
template <class T, class U>
[[nodiscard]] ptr<T> cast(const ref<U>& r) {
  return cast<T>(r.root());
}

/// A handle to the object as a T. Fetches the object if it is remote. O(1). Does not compile if `p` cannot name a T.
/// Throws wrong_type, naming both types, if it is of another one, and as fm::ptr's ->.
template <class T, class U>
[[nodiscard]] ptr<detail::cast_to<T, U>> as(const ptr<U>& p) {
  static_assert(detail::may_be<T, U> || detail::may_begin_as<T, std::remove_const_t<U>>(),
                "this handle never names an object of that type");
  const std::uint32_t type = detail::type_number(p.slot());
  if (type != detail::descriptor_behind<T>().id) detail::throw_wrong_type(type, detail::descriptor_behind<T>().name);
  return ptr<detail::cast_to<T, U>>::from_slot(p.slot());
}
/// The same of what a field refers to.
template <class T, class U>
[[nodiscard]] ptr<T> as(const ref<U>& r) {
  return as<T>(r.root());
}

/// Calls `f` with a handle of the type that the object is of, and returns what that returns. All calls of `f` return
/// what the one for the first type does, or what converts to it. Fetches the object if it is remote. O(types). Throws as
/// fm::ptr's ->, and what `f` throws.
template <class F, class... Ts>
decltype(auto) visit(F&& f, const ptr<one_of<Ts...>>& p) {
  using first = std::tuple_element_t<0, std::tuple<Ts...>>;
  using result = std::invoke_result_t<F, ptr<first>>;
  return detail::visit_as<result, one_of<Ts...>, F, Ts...>(std::forward<F>(f), p.slot(), detail::type_number(p.slot()));
}
/// The same for reading alone.
template <class F, class... Ts>
decltype(auto) visit(F&& f, const ptr<const one_of<Ts...>>& p) {
  using first = std::tuple_element_t<0, std::tuple<Ts...>>;
  using result = std::invoke_result_t<F, ptr<const first>>;
  return detail::visit_as<result, const one_of<Ts...>, F, Ts...>(std::forward<F>(f), p.slot(),
                                                                 detail::type_number(p.slot()));
}
/// The same of what a field refers to.
template <class F, class... Ts>
decltype(auto) visit(F&& f, const ref<one_of<Ts...>>& r) {
  return visit(std::forward<F>(f), r.root());
}

}  // namespace fm
