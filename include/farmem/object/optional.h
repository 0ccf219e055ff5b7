// fm::optional<T>: a value or none, as a field of a managed type, an element of an array or a container's value.
#pragma once

#include <concepts>
#include <farmem/base/error.h>
#include <farmem/detail/types/reflect.h>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fm {

/// A T or none, where std::optional cannot be: in the heap. T is a trivially copyable managed type without references,
/// because an fm::ref that is null says none already. It converts from and to std::optional<T>.
///
/// All members are O(1). Threads synchronise as for plain values.
template <class T>
class optional {
  static_assert(!detail::is_ref<T>, "farmem: an fm::ref that is null says none: use the fm::ref itself");
  static_assert(
      managed_plain<T> && std::is_trivially_copyable_v<T>,
      "farmem: fm::optional holds a trivially copyable managed type without references: put references beside "
      "it");

 public:
  using value_type = T;  ///< type of the value

  /// None.
  constexpr optional() noexcept = default;
  /// None.
  constexpr optional(std::nullopt_t) noexcept {}
  /// The value `v`.
  constexpr optional(const T& v) noexcept : value_(v), has_(true) {}
  /// What `o` holds.
  constexpr optional(const std::optional<T>& o) noexcept : value_(o ? *o : T{}), has_(o.has_value()) {}
  /// The same for the standard library.
  constexpr operator std::optional<T>() const noexcept { return has_ ? std::optional<T>(value_) : std::nullopt; }

  /// Whether there is a value.
  [[nodiscard]] constexpr bool has_value() const noexcept { return has_; }
  /// Whether there is a value.
  constexpr explicit operator bool() const noexcept { return has_; }
  /// The value. It is T{} if there is none.
  constexpr const T& operator*() const& noexcept { return value_; }
  /// The value, to be changed. There must be one.
  constexpr T& operator*() & noexcept { return value_; }
  /// The same of a temporary.
  constexpr T operator*() const&& noexcept { return value_; }
  /// A member of the value. There must be one.
  constexpr const T* operator->() const noexcept { return &value_; }
  /// A member of the value, to be changed. There must be one.
  constexpr T* operator->() noexcept { return &value_; }
  /// The value. Throws not_found if there is none.
  [[nodiscard]] constexpr T value() const {
    if (!has_) throw error(errc::not_found, "an fm::optional without a value");
    return value_;
  }
  /// The value, or `otherwise` if there is none.
  [[nodiscard]] constexpr T value_or(const T& otherwise) const noexcept { return has_ ? value_ : otherwise; }
  /// None from now on. The bytes of the value go, too.
  constexpr void reset() noexcept { *this = optional(); }
  /// A value made of `args` from now on.
  template <class... Args>
  constexpr T& emplace(Args&&... args) {
    if constexpr (std::is_constructible_v<T, Args...>)
      *this = optional(T(std::forward<Args>(args)...));
    else
      *this = optional(T{std::forward<Args>(args)...});
    return value_;
  }

  /// Whether both have equal values, or both have none.
  friend constexpr bool operator==(const optional& a, const optional& b) requires std::equality_comparable<T> {
    return a.has_ == b.has_ && (!a.has_ || a.value_ == b.value_);
  }
  /// Whether there is none.
  friend constexpr bool operator==(const optional& a, std::nullopt_t) noexcept { return !a.has_; }

  /// Its fields, for reflection.
  static constexpr auto fm_fields(auto& self) { return std::tie(self.value_, self.has_); }

 private:
  T value_{};
  bool has_ = false;
};

}  // namespace fm
