// The common part of all iterators of fm::vector. A position is the number of an element, so moving and comparing are
// arithmetic and need no chunk.
//
// Invariant: elements are reached only through the `*` of the derived class, so a move costs no barrier. Base of
// vector_iterator and mutable_iterator.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace fm::detail {

/// The moving half of a random-access iterator; `Self` derives from it and adds dereferencing.
template <class Self>
class random_access {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using difference_type = std::ptrdiff_t;

  Self& operator++() noexcept { return moved(1); }
  Self& operator--() noexcept { return moved(-1); }
  Self operator++(int) noexcept {
    Self old(self());
    ++index_;
    return old;
  }
  Self operator--(int) noexcept {
    Self old(self());
    --index_;
    return old;
  }
  Self& operator+=(difference_type n) noexcept { return moved(n); }
  Self& operator-=(difference_type n) noexcept { return moved(-n); }
  friend Self operator+(Self i, difference_type n) noexcept { return std::move(i += n); }
  friend Self operator+(difference_type n, Self i) noexcept { return std::move(i += n); }
  friend Self operator-(Self i, difference_type n) noexcept { return std::move(i -= n); }
  friend difference_type operator-(const Self& a, const Self& b) noexcept {
    return static_cast<difference_type>(at(a) - at(b));
  }
  friend bool operator==(const Self& a, const Self& b) noexcept { return at(a) == at(b); }
  friend auto operator<=>(const Self& a, const Self& b) noexcept { return at(a) <=> at(b); }
  /// What [] means for iterators whose elements outlive them, or are values.
  decltype(auto) operator[](difference_type n) const { return *(self() + n); }

 protected:
  random_access() noexcept = default;
  explicit random_access(std::uint64_t index) noexcept : index_(index) {}
  std::uint64_t index_ = 0;

 private:
  Self& moved(difference_type n) noexcept {
    index_ += static_cast<std::uint64_t>(n);
    return static_cast<Self&>(*this);
  }
  static std::uint64_t at(const random_access& i) noexcept { return i.index_; }
  [[nodiscard]] const Self& self() const noexcept { return static_cast<const Self&>(*this); }
};

}  // namespace fm::detail
