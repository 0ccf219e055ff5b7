// The messages for types that a heap cannot hold, and the check that prints them. fm::heap::make and the containers
// call check_managed.
// Invariant: a type that breaks a rule fails to compile with one static_assert line, which states what to use instead.
// The arguments of managed_type_rule, which the compiler prints beside it, name the type, the number of the field (from
// 0) and its type. test/compile_fail holds the messages.
#pragma once

#include <farmem/detail/types/reflect.h>

namespace fm::detail {

template <class Type, std::size_t Field, class FieldType, verdict V>
struct managed_type_rule {
  static_assert(V != verdict::raw_pointer, "farmem: a managed type cannot hold a raw pointer: use fm::ref<T>");
  static_assert(V != verdict::function_pointer, "farmem: a managed type cannot hold a function pointer: use an enum");
  static_assert(V != verdict::member_pointer, "farmem: a managed type cannot hold a pointer to member: use an enum");
  static_assert(V != verdict::root_handle, "farmem: fm::ptr is a root and stays outside the heap: use fm::ref<T>");
  static_assert(V != verdict::std_string,
                "farmem: std::string keeps its text outside the heap: use fm::ref<fm::string>");
  static_assert(V != verdict::string_view, "farmem: a string view points outside the heap: use fm::ref<fm::string>");
  static_assert(V != verdict::span, "farmem: a span points outside the heap: use fm::ref<T[]>");
  static_assert(V != verdict::container,
                "farmem: a standard container keeps its elements outside the heap: use fm::ref<fm::vector<T>>, "
                "fm::ref<fm::hash_map<K, V>>, fm::ref<fm::map<K, V>>, or std::array for a fixed number");
  static_assert(V != verdict::smart_pointer, "farmem: a smart pointer owns memory outside the heap: use fm::ref<T>");
  static_assert(V != verdict::function, "farmem: a managed type cannot hold a callable: use an enum");
  static_assert(V != verdict::tuple, "farmem: std::tuple has no agreed layout: use a struct or std::pair");
  static_assert(V != verdict::sum_type,
                "farmem: std::optional, variant and any are not managed: use fm::optional, fm::variant or fm::one_of");
  static_assert(V != verdict::long_double, "farmem: long double is wider than 8 bytes: use double");
  static_assert(V != verdict::atomic, "farmem: only a lock-free std::atomic of an arithmetic type is managed");
  static_assert(V != verdict::c_array, "farmem: a C array cannot be seen by reflection: use std::array");
  static_assert(V != verdict::union_type,
                "farmem: a union hides which member is alive: use a struct, or specialise fm::managed_traits as bytes");
  static_assert(V != verdict::not_a_value,
                "farmem: a managed type is an unqualified object type: no reference, "
                "no top-level const, no void, no function");
  static_assert(V != verdict::mutable_field,
                "farmem: a mutable field is changed through readers, and the heap would not write that home: change it "
                "through write()");
  static_assert(V != verdict::polymorphic, "farmem: a managed type has no virtual functions: use an enum as a tag");
  static_assert(V != verdict::base_class,
                "farmem: reflection does not see a base class: make it the first field, or "
                "name all fields in a static fm_fields(auto& self)");
  static_assert(V != verdict::destructor, "farmem: destructors do not run in a managed heap: remove the destructor");
  static_assert(V != verdict::alignment, "farmem: managed objects are aligned to 8 bytes: remove the larger alignas");
  static_assert(V != verdict::not_default_constructible,
                "farmem: each field of a managed struct must be default-constructible; for a C++ reference use "
                "fm::ref<T>");
  static_assert(V != verdict::no_fields_named,
                "farmem: a managed class is an aggregate or has a public static auto fm_fields(auto& self) that "
                "returns std::tie of its fields");
  static_assert(V != verdict::not_bytes, "farmem: only a trivially copyable type can be fm::managed_bytes");
  static_assert(V != verdict::layout_gap,
                "farmem: the fields do not add up to the size of the type: fm_fields() must name all of them in order; "
                "bit-fields, packed structs and alignas are not managed");
  static_assert(V != verdict::too_many_fields, "farmem: more than 100 fields: group them in nested structs");
  static_assert(V != verdict::too_large, "farmem: a managed type is at most 1 GiB: use an array");
};

/// Fails to compile, with one line that says why, when T is not managed. Descends to the struct whose field it is.
/// Does nothing at run time, and is not asked for a value, so that nothing else fails with it.
template <class T>
constexpr void check_managed() {
  constexpr judgement found = judgement_of<T>;
  if constexpr (found.what == verdict::ok) {
  } else if constexpr (is_std_array<T>) {
    check_managed<typename T::value_type>();
  } else if constexpr (is_instance<T, std::pair>) {
    check_managed<typename T::first_type>();
    check_managed<typename T::second_type>();
  } else if constexpr (found.field == judgement::nowhere) {
    managed_type_rule<T, found.field, T, found.what>();
  } else if constexpr (judge_shape<T>().what != verdict::ok) {
    managed_type_rule<T, found.field, void, found.what>();  // the field's type cannot be asked for
  } else {
    using field = field_t<T, found.field>;
    constexpr bool inside = judgement_of<field>.field != judgement::nowhere;
    if constexpr (inside || is_std_array<field> || is_instance<field, std::pair>)
      check_managed<field>();
    else
      managed_type_rule<T, found.field, field, found.what>();
  }
}

}  // namespace fm::detail
