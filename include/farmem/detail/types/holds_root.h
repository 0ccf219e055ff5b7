// Whether a value keeps an object of some type alive: for notices of deaths, which must not hold their own object. Sees
// handles and pins, what is made of them by templates (std::vector<fm::ptr<T>>), and the fields of aggregates. Does not
// see behind pointers to other types, or into classes that are no aggregates. fm::heap::on_dead asks.
#pragma once

#include <farmem/detail/types/reflect.h>
#include <farmem/handles/ptr.h>

namespace fm::detail {

template <class S, class T>
consteval bool holds_root();

/// Whether a handle to a U may name a T.
template <class U, class T>
inline constexpr bool may_name = std::same_as<std::remove_const_t<U>, std::remove_const_t<T>> ||
                                 covers<std::remove_const_t<T>, std::remove_const_t<U>>;

/// Of a handle or pin: whether it may name a T. Nothing for other types.
template <class T, class U>
std::bool_constant<may_name<U, T>> names(const ptr<U>*);
template <class T, class U>
std::bool_constant<may_name<U, T>> names(const read_pin<U>*);
template <class T, class U>
std::bool_constant<may_name<U, T>> names(const write_pin<U>*);
template <class T, class U, class M>
std::bool_constant<may_name<U, T>> names(const member_pin<U, M>*);
template <class T>
void names(const void*);

template <class T, class... F>
consteval bool any_holds_root(types<F...>) {
  return (holds_root<F, T>() || ...);
}
template <class T, template <class...> class Template, class... A>
consteval bool argument_holds_root(const Template<A...>*) {
  return (holds_root<std::remove_cv_t<A>, T>() || ...);
}
template <class T>
consteval bool argument_holds_root(const void*) {
  return false;
}

template <class S, class T>
consteval bool holds_root() {
  if constexpr (!std::is_class_v<S> || is_weak<S> || is_ref<S>) {
    return false;
  } else if constexpr (!requires { sizeof(S); }) {
    return false;
  } else if constexpr (std::is_empty_v<S>) {
    return false;
  } else {
    using handle = decltype(names<T>(static_cast<const S*>(nullptr)));
    if constexpr (!std::is_void_v<handle>)
      return handle::value;
    else if constexpr (is_std_array<S>)
      return holds_root<typename S::value_type, T>();
    else if constexpr (argument_holds_root<T>(static_cast<const S*>(nullptr)))
      return true;
    else if constexpr (std::is_aggregate_v<S>) {
      if constexpr (judge_shape<S>().what == verdict::ok)
        return any_holds_root<T>(field_types<S>());
      else
        return false;
    } else
      return false;
  }
}

}  // namespace fm::detail
