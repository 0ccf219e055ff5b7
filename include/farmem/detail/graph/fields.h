// The fields of a type as the two ends of a channel compare them: by name, with what stands there. Structs are taken
// apart, so that a field of a nested struct has a name such as "place.x". An array is one field.
//
// Invariant owned here: the code of a field says all that has to agree for its bytes to be copied: kinds, sizes and the
// names of types that are referred to. The alternatives of a one_of are not part of it, because they are listed apart.
// Used by graph/schema.h.
#pragma once

#include <cstring>
#include <farmem/detail/types/describe.h>
#include <farmem/detail/types/field_names.h>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace fm::detail {

/// One field, which is no struct.
struct graph_field {
  std::string name;          ///< with the names of the structs that it is in; empty: the type itself is one value
  std::uint32_t offset = 0;  ///< in the object or element
  std::uint32_t bytes = 0;
  std::string code;  ///< such as "i32", "ref<person>", "f32[3]"
};

/// Text for a reference to a T.
template <class T>
std::string code_of_reference() {
  if constexpr (is_instance<std::remove_const_t<T>, one_of>)
    return "ref to one of several";
  else
    return "ref<" + name_of<T>() + ">";
}

/// Appends the fields of an F, which is at `offset` and called `name`.
template <class F>
void list_fields(std::vector<graph_field>& out, const std::string& name, std::size_t offset, F& f) {
  using type = std::remove_cv_t<F>;
  constexpr field_kind kind = kind_of<type>();
  const auto add = [&](std::string code) {
    out.push_back(
        {name, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(sizeof(type)), std::move(code)});
  };
  const std::string before = name.empty() ? name : name + ".";
  if constexpr (kind == field_kind::ref) {
    add(code_of_reference<typename ref_target<type>::type>());
  } else if constexpr (kind == field_kind::value) {
    add(code_of<type>());
  } else if constexpr (kind == field_kind::bytes) {
    add(name_of<type>());
  } else if constexpr (kind == field_kind::array) {
    if constexpr (std::tuple_size_v<type> != 0) {
      using item = typename type::value_type;
      const std::string count = "[" + std::to_string(std::tuple_size_v<type>) + "]";
      if constexpr (kind_of<item>() == field_kind::ref) {
        add(code_of_reference<typename ref_target<item>::type>() + count);
      } else if constexpr (kind_of<item>() == field_kind::value) {
        add(code_of<item>() + count);
      } else {
        layout_builder b(type_kind::object, name_of<item>(), sizeof(item));
        describe(b, 0, f[0]);
        add(std::move(b).finish().layout + count);
      }
    }
  } else if constexpr (kind == field_kind::pair) {
    list_fields(out, before + "first", offset + offset_in(f.first, std::addressof(f)), f.first);
    list_fields(out, before + "second", offset + offset_in(f.second, std::addressof(f)), f.second);
  } else {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::apply(
          [&](auto&... field) {
            (list_fields(out, before + field_name<type, I>(), offset + offset_in(field, std::addressof(f)), field),
             ...);
          },
          fields_of(f));
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields_of(f))>>{});
  }
}

/// The fields of an object, or of an element of an array, of type T.
template <class T>
std::vector<graph_field> fields_listed() {
  unread_storage<T> storage;
  std::vector<graph_field> out;
  list_fields(out, {}, 0, storage.object());
  return out;
}

/// The bytes of a T as a program makes one: with its default values, and null references.
template <class T>
std::vector<char> default_bytes() {
  std::vector<char> out(sizeof(T));
  if constexpr (std::is_default_constructible_v<T>) {
    const auto give_back = [](char* p) { ::operator delete(p); };
    const std::unique_ptr<char, decltype(give_back)> at(static_cast<char*>(::operator new(sizeof(T))), give_back);
    std::memset(at.get(), 0, sizeof(T));  // so that padding is zero
    new (at.get()) T{};
    std::memcpy(out.data(), at.get(), sizeof(T));
  }
  return out;
}

}  // namespace fm::detail
