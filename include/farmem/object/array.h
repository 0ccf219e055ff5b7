// fm::array_object, and the type of object behind a handle's type argument (detail::object_of). ptr<T> names a struct
// T, ptr<E[]> an array. For containers (fm::vector<E>, fm::string) it is the object that holds their state. They
// specialise object_of before they are defined, because their base ptr<vector<E>> asks while vector<E> is incomplete.
#pragma once

#include <cstddef>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <farmem/detail/check.h>
#include <stdexcept>
#include <string>

namespace fm {

/// An array in the managed heap, as a pin or a scope shows it: its length, followed by its elements. fm::heap::array
/// makes it. All members are O(1) and fetch nothing.
template <class E>
class array_object {
 public:
  /// Not copyable.
  array_object(const array_object&) = delete;
  array_object& operator=(const array_object&) = delete;

  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return length_; }
  /// The first element.
  [[nodiscard]] const E* data() const noexcept FM_LIFETIMEBOUND { return reinterpret_cast<const E*>(this + 1); }
  /// The first element, for writing.
  [[nodiscard]] E* data() noexcept FM_LIFETIMEBOUND { return reinterpret_cast<E*>(this + 1); }
  /// The first element.
  [[nodiscard]] const E* begin() const noexcept FM_LIFETIMEBOUND { return data(); }
  /// One past the last element.
  [[nodiscard]] const E* end() const noexcept FM_LIFETIMEBOUND { return data() + length_; }
  /// The first element, for writing.
  [[nodiscard]] E* begin() noexcept FM_LIFETIMEBOUND { return data(); }
  /// One past the last element, for writing.
  [[nodiscard]] E* end() noexcept FM_LIFETIMEBOUND { return data() + length_; }
  /// Element `i`, unchecked, as of std::array: loops over a pinned array cost what loops over plain memory do. Checked
  /// builds end the program if there is no such element. fm::vector checks its [], which reads the size anyway.
  [[nodiscard]] const E& operator[](std::size_t i) const FM_LIFETIMEBOUND {
    FM_ASSERT(i < length_, "an index is past the end of an array: at() throws instead");
    return data()[i];
  }
  /// Element `i`, for writing. As the other [].
  [[nodiscard]] E& operator[](std::size_t i) FM_LIFETIMEBOUND {
    FM_ASSERT(i < length_, "an index is past the end of an array: at() throws instead");
    return data()[i];
  }
  /// Element `i`. Throws out_of_range, naming index and length.
  [[nodiscard]] const E& at(std::size_t i) const FM_LIFETIMEBOUND {
    check(i);
    return data()[i];
  }
  /// Element `i`, for writing. Throws out_of_range, naming index and length.
  [[nodiscard]] E& at(std::size_t i) FM_LIFETIMEBOUND {
    check(i);
    return data()[i];
  }

 private:
  void check(std::size_t i) const {
    if (i >= length_) throw error(errc::out_of_range, "index " + std::to_string(i) + " of " + std::to_string(length_));
  }
  std::uint64_t length_;
};

namespace detail {

template <class T>
struct object_of {
  using type = T;
};
template <class E>
struct object_of<E[]> {
  using type = array_object<E>;
};
template <class T>
using object_t = typename object_of<T>::type;

}  // namespace detail
}  // namespace fm
