// The names of the fields of an aggregate, as the program spells them. A pointer to a field of an object that nobody
// defines is a template argument, and compilers print such an argument with the name of the field.
//
// Invariant owned here: g++ and clang++ give the same names. Of a class that names its fields itself no names are known.
// Used by the schemas of channels only (graph/schema.h).
#pragma once

#include <farmem/detail/types/reflect.h>
#include <memory>
#include <string>
#include <string_view>

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif

namespace fm::detail {

template <class T>
struct only_named {
  T value;
};
/// Nobody defines it, and nobody reads it.
template <class T>
extern const only_named<T> named_object;

/// clang++ takes a pointer to a field in a struct alone.
template <class P>
struct field_pointer {
  P at;
};
template <class P>
field_pointer(P) -> field_pointer<P>;

template <auto Pointer>
consteval std::string_view printed() {
  return __PRETTY_FUNCTION__;
}
template <class T, std::size_t I>
consteval auto pointer_to_field() {
  return field_pointer{std::addressof(boost::pfr::detail::sequence_tuple::get<I>(bind_fields(named_object<T>.value)))};
}

/// The name of field `I` of an aggregate: what stands after the last "::" (g++) or "." (clang++) before the ")}" or "}"
/// that ends the argument.
template <class T, std::size_t I>
consteval std::string_view name_of_field() {
  std::string_view text = printed<pointer_to_field<T, I>()>();
  text = text.substr(0, text.find_last_of('}'));
  if (text.ends_with(')')) text.remove_suffix(1);
  return text.substr(text.find_last_of(":.") + 1);
}

/// The name of field `I`, or "#I" where no names are known.
template <class T, std::size_t I>
std::string field_name() {
  if constexpr (traits_name_fields<T> || names_own_fields<T>)
    return "#" + std::to_string(I);
  else
    return std::string(name_of_field<T, I>());
}

}  // namespace fm::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
