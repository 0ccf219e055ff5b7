// fm::variant<Ts...>: one of some values and references, as a field of a managed type.
//
//   using constant = fm::variant<std::int64_t, double, fm::ref<fm::string>>;
//   struct token { constant value; };                 h.make<token>({.value = 3.5});
//   t->value.get<double>();  t->value.get<fm::ref<fm::string>>() == "text";   t.write()->value = h.str("text");
//
// Invariant: a type's references are at fixed places, where collectors and agents look without asking which alternative
// is there. So all alternatives that are references share one place, which is null while a value is held, and all values
// share another. A variant is thus 8 bytes larger than a union would be if both kinds are among its alternatives.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <farmem/detail/container.h>
#include <farmem/object/object.h>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

namespace fm {

template <class... Ts>
class variant;

namespace detail {

/// The bytes of the alternatives that are values. `Ts` stand in the name, and so in the layout.
template <class... Ts>
struct variant_storage {
  static constexpr std::size_t size = std::max({std::size_t{1}, (is_ref<Ts> ? 0 : sizeof(Ts))...});
  alignas(std::max({std::size_t{1}, (is_ref<Ts> ? 1 : alignof(Ts))...})) std::array<std::byte, size> bytes{};
};

/// The target of the one reference that stands for all alternatives that are references; void if there are none.
template <class Targets>
struct variant_target;
template <>
struct variant_target<types<>> {
  using type = void;
};
template <class X>
struct variant_target<types<X>> {
  using type = X;
};
template <class X, class Y, class... Rest>
struct variant_target<types<X, Y, Rest...>> {
  using type = one_of<X, Y, Rest...>;
};
template <class... Lists>
struct joined;
template <class... A>
struct joined<types<A...>> {
  using type = types<A...>;
};
template <class... A, class... B, class... Rest>
struct joined<types<A...>, types<B...>, Rest...> : joined<types<A..., B...>, Rest...> {};
template <class T>
struct targets_of {
  using type = types<>;
};
template <class X>
struct targets_of<ref<X>> {
  using type = types<X>;
};

template <class Target, class Storage>
struct variant_fields {
  ref<Target> reference;
  Storage values;
  std::uint8_t which = 0;
};
template <class Storage>
struct variant_fields<void, Storage> {
  Storage values;
  std::uint8_t which = 0;
};

/// How an alternative is given out: a value as it is, a reference as a handle.
template <class T>
struct alternative {
  using type = T;
};
template <class X>
struct alternative<ref<X>> {
  using type = handle_to<X>;
};

template <class T, class... Ts>
inline constexpr std::size_t times_in = (std::size_t{std::same_as<T, Ts>} + ... + 0);
template <class T, class... Ts>
consteval std::size_t position_in() {
  std::size_t at = 0;
  (void)((std::same_as<T, Ts> || (++at, false)) || ...);
  return at;
}

}  // namespace detail

/// The bytes of a variant's values, for reflection.
template <class... Ts>
struct managed_traits<detail::variant_storage<Ts...>> : managed_bytes {};

/// One of `Ts`, where std::variant cannot be: in the heap. Each is a trivially copyable managed type without references,
/// or an fm::ref<X>; no two are the same. Without any fm::ref among them it is trivially copyable. It holds the first of
/// them by default, as zeros in arrays that are made of zeros.
///
/// All members are O(1), and fetch nothing. Threads synchronise as for plain values: changing a variant is several
/// stores. A channel sends variants with at most one fm::ref among the alternatives.
template <class... Ts>
class variant {
  static_assert(sizeof...(Ts) > 0 && sizeof...(Ts) < 256, "farmem: fm::variant has 1 to 255 alternatives");
  static_assert(((detail::times_in<Ts, Ts...> == 1) && ...), "farmem: two alternatives of an fm::variant are the same");
  template <class T>
  static constexpr bool is_value = [] {
    if constexpr (detail::is_ref<T>)
      return false;
    else
      return managed_plain<T> && std::is_trivially_copyable_v<T>;
  }();
  template <class T>
  static constexpr bool is_strong = [] {
    if constexpr (is_value<T>)
      return !detail::contains_weak<T>();
    else
      return true;
  }();
  static_assert(((detail::is_ref<Ts> || is_value<Ts>)&&...),
                "farmem: an alternative of fm::variant is a trivially copyable managed type without references, or an "
                "fm::ref<X>: put a struct that holds references behind fm::ref");
  static_assert((is_strong<Ts> && ...), "farmem: fm::weak is no alternative of fm::variant: put it beside the variant");

  template <class T>
  static constexpr bool is_alternative = detail::times_in<T, Ts...> == 1;
  template <class T>
  static constexpr std::size_t position = detail::position_in<T, Ts...>();
  using first = std::tuple_element_t<0, std::tuple<Ts...>>;

 public:
  /// The first alternative: a value of its default, or a null reference.
  variant() noexcept {
    if constexpr (!detail::is_ref<first>) store(first{});
  }
  /// The value `v`, of exactly that type.
  template <class T>
  requires(is_alternative<T> && !detail::is_ref<T>) variant(const T& v)
  noexcept { store(v); }
  /// A reference to the object of `p`.
  template <class X>
  requires is_alternative<ref<X>> variant(const ptr<X>& p)
  noexcept : variant(refers_to, p, position<ref<X>>) {}
  /// Copies values; deleted if there are references among the alternatives.
  variant(const variant&) = default;
  /// Assigns values; deleted if there are references among the alternatives.
  variant& operator=(const variant&) = default;

  /// Holds `v` from now on.
  template <class T>
  requires(is_alternative<T> && !detail::is_ref<T>) variant& operator=(const T& v) noexcept {
    if constexpr (has_references) fields_.reference = nullptr;
    store(v);
    return *this;
  }
  /// Refers to the object of `p` from now on.
  template <class X>
  requires is_alternative<ref<X>> variant& operator=(const ptr<X>& p) noexcept {
    fields_.reference = p;
    fields_.values = {};
    fields_.which = position<ref<X>>;
    return *this;
  }

  /// The number of the alternative that it holds, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return fields_.which; }
  /// Whether it holds a T.
  template <class T>
  [[nodiscard]] bool holds() const noexcept {
    static_assert(is_alternative<T>, "that is no alternative of this fm::variant");
    return fields_.which == position<T>;
  }
  /// The T that it holds: a copy of a value, or a handle to what an fm::ref refers to, which may be null. Throws
  /// wrong_type if it holds another one.
  template <class T>
  [[nodiscard]] typename detail::alternative<T>::type get() const {
    if (!holds<T>())
      throw error(errc::wrong_type, "an fm::variant holds its alternative " + std::to_string(fields_.which) +
                                        ", not its alternative " + std::to_string(position<T>));
    return load<T>();
  }
  /// The same, and nothing if it holds another one.
  template <class T>
  [[nodiscard]] std::optional<typename detail::alternative<T>::type> get_if() const {
    if (!holds<T>()) return std::nullopt;
    return load<T>();
  }
  /// Calls `f` with what get() returns for the alternative that it holds, and returns what that returns. All calls of
  /// `f` return what the one for the first does, or what converts to it.
  template <class F>
  decltype(auto) visit(F&& f) const {
    using result = std::invoke_result_t<F, typename detail::alternative<first>::type>;
    return visit_from<result, F, Ts...>(std::forward<F>(f));
  }

  /// Its fields, for reflection.
  static auto fm_fields(auto& self) { return std::tie(self.fields_); }

 private:
  using targets = typename detail::joined<detail::types<>, typename detail::targets_of<Ts>::type...>::type;
  using target = typename detail::variant_target<targets>::type;
  static constexpr bool has_references = !std::is_void_v<target>;
  struct refers_to_tag {};
  static constexpr refers_to_tag refers_to{};

  template <class X>
  variant(refers_to_tag, const ptr<X>& p, std::size_t which) noexcept
      : fields_{p, {}, static_cast<std::uint8_t>(which)} {}

  template <class T>
  void store(const T& v) noexcept {
    fields_.values = {};
    std::memcpy(fields_.values.bytes.data(), &v, sizeof v);
    fields_.which = position<T>;
  }
  template <class T>
  typename detail::alternative<T>::type load() const {
    if constexpr (detail::is_ref<T>) {
      using handle = typename detail::alternative<T>::type;
      using referred = typename detail::ref_target<T>::type;
      return handle(ptr<referred>::from_slot(fields_.reference.root().slot()));
    } else {
      T v{};
      std::memcpy(&v, fields_.values.bytes.data(), sizeof v);
      return v;
    }
  }
  template <class R, class F, class T, class... Rest>
  R visit_from(F&& f) const {
    if constexpr (sizeof...(Rest) == 0)
      return std::invoke(std::forward<F>(f), load<T>());
    else
      return fields_.which == position<T> ? static_cast<R>(std::invoke(std::forward<F>(f), load<T>()))
                                          : visit_from<R, F, Rest...>(std::forward<F>(f));
  }

  detail::variant_fields<target, detail::variant_storage<Ts...>> fields_;
};

}  // namespace fm
