// From a managed type to its descriptor: walks the fields of an object that is never constructed, taking only their
// addresses, and registers what it saw on first use.
//
// Invariant owned here: after the first call descriptor_of<T> costs one acquire load and a branch, and all threads see
// the same descriptor. Called by whatever makes an object of type T.
#pragma once

#include <atomic>
#include <farmem/detail/check.h>
#include <farmem/detail/types/type_layout.h>
#include <farmem/object/managed.h>
#include <string>

namespace fm::detail {

/// Storage for a T whose fields are only located, never read.
template <class T>
class unread_storage {
 public:
  unread_storage() : bytes_(static_cast<char*>(::operator new(sizeof(T)))) {}
  ~unread_storage() { ::operator delete(bytes_); }
  unread_storage(const unread_storage&) = delete;
  unread_storage& operator=(const unread_storage&) = delete;
  [[nodiscard]] T& object() { return *reinterpret_cast<T*>(bytes_); }

 private:
  char* bytes_;
};

template <class T>
std::size_t offset_in(const T& field, const void* start) {
  return static_cast<std::size_t>(reinterpret_cast<const char*>(std::addressof(field)) -
                                  static_cast<const char*>(start));
}

/// Tells `b` what stands at `f`, which is at `offset` in the innermost open struct.
template <class F>
void describe(layout_builder& b, std::size_t offset, F& f) {
  using type = std::remove_cv_t<F>;
  constexpr field_kind kind = kind_of<type>();
  if constexpr (kind == field_kind::ref) {
    static_assert(sizeof(type) == 8 && alignof(type) == 8 && std::is_trivially_destructible_v<type>,
                  "fm::ref is a slot: 8 bytes, and nothing to destroy");
    b.ref(offset, name_of<typename ref_target<type>::type>());
  } else if constexpr (kind == field_kind::weak) {
    static_assert(sizeof(type) == 8 && std::is_trivially_copyable_v<type>, "fm::weak is bytes");
    b.value(offset, sizeof(type), "weak<" + name_of<typename ref_target<type>::type>() + ">");
  } else if constexpr (kind == field_kind::value) {
    b.value(offset, sizeof(type), code_of<type>());
  } else if constexpr (kind == field_kind::bytes) {
    b.value(offset, sizeof(type), name_of<type>() + " as " + std::to_string(sizeof(type)) + " bytes");
  } else if constexpr (kind == field_kind::array) {
    if constexpr (std::tuple_size_v<type> == 0) {
      b.value(offset, sizeof(type), "nothing");
    } else {
      const auto mark = b.begin_repeat(offset);
      describe(b, offset, f[0]);
      b.end_repeat(mark, std::tuple_size_v<type>, sizeof(typename type::value_type));
    }
  } else {
    b.open(offset, sizeof(type));
    if constexpr (kind == field_kind::pair) {
      describe(b, offset_in(f.first, std::addressof(f)), f.first);
      describe(b, offset_in(f.second, std::addressof(f)), f.second);
    } else {
      std::apply([&](auto&... field) { (describe(b, offset_in(field, std::addressof(f)), field), ...); }, fields_of(f));
    }
    b.close();
  }
}

/// Walks T and registers what it saw. Once for each type and kind, apart from races that all register the same.
template <class T>
[[gnu::noinline]] const type_descriptor& describe_and_register(type_kind kind) {
  unread_storage<T> storage;
  layout_builder b(kind, name_of<T>(), sizeof(T));
  describe(b, 0, storage.object());
  type_descriptor d = std::move(b).finish();
  FM_CHECK(d.ref_offsets.empty() != has_refs<T>, "has_refs and the walk over the fields disagree");
  return register_type(std::move(d));
}

template <class T, type_kind Kind>
inline constinit std::atomic<const type_descriptor*> known_descriptor{nullptr};

template <class T, type_kind Kind>
const type_descriptor& descriptor() {
  check_managed<T>();
  if constexpr (managed<T>) {
    auto& known = known_descriptor<T, Kind>;
    if (const type_descriptor* d = known.load(std::memory_order_acquire)) [[likely]]
      return *d;
    const type_descriptor& d = describe_and_register<T>(Kind);
    known.store(&d, std::memory_order_release);
    return d;
  } else {
    __builtin_unreachable();  // the check above has failed to compile; say no more
  }
}

/// The descriptor of T as an object. Thread-safe; O(fields) on first use, one load afterwards. T must be complete here,
/// and what its references refer to need not be. Throws layout_mismatch when another type of this name, such as one of
/// the same name in another file's unnamed namespace, is registered with another layout.
template <class T>
const type_descriptor& descriptor_of() {
  return descriptor<std::remove_cv_t<T>, type_kind::object>();
}

/// The descriptor of an array with elements of type E. As descriptor_of.
template <class E>
const type_descriptor& array_descriptor_of() {
  return descriptor<std::remove_cv_t<E>, type_kind::array>();
}

}  // namespace fm::detail
