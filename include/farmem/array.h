// What stands behind a handle's type argument. ptr<T> names a struct T; ptr<E[]> names an array; for handle types of the
// containers (fm::vector<E>, fm::string) it is the object that holds their state. Those specialise object_of before they are
// defined: their base ptr<vector<E>> asks while vector<E> is still incomplete.
#pragma once

#include <cstddef>
#include <farmem/error.h>
#include <farmem/units.h>
#include <stdexcept>
#include <string>

namespace fm {

/// An array in the managed heap, as a pin or a scope shows it: its length, then its elements. Never made by hand.
template <class E>
class array_object {
 public:
  array_object(const array_object&) = delete;
  array_object& operator=(const array_object&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return length_; }
  [[nodiscard]] const E* data() const noexcept { return reinterpret_cast<const E*>(this + 1); }
  [[nodiscard]] E* data() noexcept { return reinterpret_cast<E*>(this + 1); }
  [[nodiscard]] const E* begin() const noexcept { return data(); }
  [[nodiscard]] const E* end() const noexcept { return data() + length_; }
  [[nodiscard]] E* begin() noexcept { return data(); }
  [[nodiscard]] E* end() noexcept { return data() + length_; }
  [[nodiscard]] const E& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] E& operator[](std::size_t i) { return data()[i]; }
  /// Checked access; throws fm::errc::out_of_range naming index and length.
  [[nodiscard]] const E& at(std::size_t i) const {
    check(i);
    return data()[i];
  }
  [[nodiscard]] E& at(std::size_t i) {
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
