// fm::read_pin, fm::write_pin and fm::member_pin: objects, and members of objects, that stay in place while a pin lives.
//
// Invariant: a pin that is not empty holds one count of its object's frame. The frame neither moves nor leaves the cache
// meanwhile, so that addresses in it stay valid.
//
// fm::ptr and fm::ref make them.
#pragma once

#include <cstddef>
#include <farmem/detail/barriers/barrier.h>
#include <farmem/handles/scope.h>
#include <farmem/object/array.h>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace fm {

namespace detail {

/// In builds that check: an empty pin shows nothing.
inline void check_pin([[maybe_unused]] const char* payload) noexcept {
  FM_ASSERT(payload != nullptr, "a pin is used that is empty: it was moved from");
}

}  // namespace detail

/// Keeps one object in place for reading; fm::ptr::read makes it. Movable, also to another thread. A pin keeps its
/// cache segment from being evicted, but does not delay epochs. Where a scope would stay open for long, use a pin. It
/// ends before its heap does.
template <class T>
class read_pin {
 public:
  /// Type of the object in memory: T, or fm::array_object for an array.
  using object = detail::object_t<T>;

  /// Pins the object of a slot, for the library; applications call fm::ptr::read. Throws as fm::ptr's ->.
  explicit read_pin(detail::slot_t slot) {
    const detail::user_section in_section;
    payload_ = const_cast<char*>(detail::read_barrier(slot));
    detail::pin_frame(payload_);
  }
  /// Takes over the pin of `o`, which is empty afterwards. O(1).
  read_pin(read_pin&& o) noexcept : payload_(std::exchange(o.payload_, nullptr)) {}
  /// Ends this pin and takes over that of `o`, which is empty afterwards. O(1).
  read_pin& operator=(read_pin&& o) noexcept {
    char* const mine = std::exchange(payload_, std::exchange(o.payload_, nullptr));
    if (mine) detail::unpin_frame(mine);
    return *this;
  }
  ~read_pin() {
    if (payload_) detail::unpin_frame(payload_);
  }

  /// A member of the object. Only while the pin is not empty. O(1).
  const object* operator->() const noexcept FM_LIFETIMEBOUND {
    detail::check_pin(payload_);
    return get();
  }
  /// The object, valid while the pin lives. Only while the pin is not empty. O(1).
  const object& operator*() const& noexcept FM_LIFETIMEBOUND {
    detail::check_pin(payload_);
    return *get();
  }
  /// Deleted: a reference into a temporary pin would dangle. Name the pin first.
  const object& operator*() const&& = delete;
  /// The object, valid while the pin lives; null if the pin was moved from. O(1).
  [[nodiscard]] const object* get() const noexcept FM_LIFETIMEBOUND {
    return reinterpret_cast<const object*>(payload_);
  }

  /// Whether the pin is empty, because it was moved from.
  friend bool operator==(const read_pin& p, std::nullptr_t) noexcept { return p.payload_ == nullptr; }

  /// Makes a pin of a payload that is pinned already; for awaits.
  static read_pin adopt(char* pinned_payload) noexcept {
    read_pin p;
    p.payload_ = pinned_payload;
    return p;
  }

 private:
  read_pin() noexcept = default;
  char* payload_ = nullptr;
};

/// Keeps one object in place for writing; fm::ptr::write makes it. The object is dirty while the pin lives. Movable,
/// also to another thread. Two threads that write the same fields need a lock, as in plain C++. It ends before its heap
/// does.
template <class T>
class write_pin {
 public:
  /// Type of the object in memory: T, or fm::array_object for an array.
  using object = detail::object_t<T>;

  /// Pins the object of a slot and makes it dirty, for the library; applications call fm::ptr::write. Throws as
  /// fm::ptr's ->.
  explicit write_pin(detail::slot_t slot) {
    const detail::user_section in_section;
    payload_ = detail::write_barrier(slot);
    detail::pin_frame(payload_);
  }
  /// Takes over the pin of `o`, which is empty afterwards. O(1).
  write_pin(write_pin&& o) noexcept : payload_(std::exchange(o.payload_, nullptr)) {}
  /// Ends this pin and takes over that of `o`, which is empty afterwards. O(1).
  write_pin& operator=(write_pin&& o) noexcept {
    char* const mine = std::exchange(payload_, std::exchange(o.payload_, nullptr));
    if (mine) detail::unpin_frame(mine);
    return *this;
  }
  ~write_pin() {
    // Pinned frames are never copied out, so the frame is still dirty here and nothing needs to be marked again.
    if (payload_) detail::unpin_frame(payload_);
  }

  /// A member of the object. Only while the pin is not empty. O(1).
  object* operator->() const noexcept FM_LIFETIMEBOUND {
    detail::check_pin(payload_);
    return get();
  }
  /// The object, valid while the pin lives. Only while the pin is not empty. O(1).
  object& operator*() const& noexcept FM_LIFETIMEBOUND {
    detail::check_pin(payload_);
    return *get();
  }
  /// Deleted: a reference into a temporary pin would dangle. Name the pin first.
  object& operator*() const&& = delete;
  /// The object, valid while the pin lives; null if the pin was moved from. O(1).
  [[nodiscard]] object* get() const noexcept FM_LIFETIMEBOUND { return reinterpret_cast<object*>(payload_); }
  /// Whether the pin is empty, because it was moved from.
  friend bool operator==(const write_pin& p, std::nullptr_t) noexcept { return p.payload_ == nullptr; }

 private:
  char* payload_ = nullptr;
};

/// Keeps one object in place and shows one member of it, of type M, for reading: `p.read(&node::items)`. A range if the
/// member is one, so that `for (int x : p.read(&node::items))` holds the pin until the loop ends, where
/// `for (int x : p->items)` would read from memory that may have gone. Otherwise as fm::read_pin. Shows its member only
/// while it is not empty.
template <class T, class M>
class member_pin {
 public:
  /// Takes `pin` over; for the library, applications call fm::ptr::read. The pin is not empty. O(1).
  template <class C>
  member_pin(read_pin<T>&& pin, M C::*member) noexcept
      : pin_(std::move(pin)), member_(std::addressof((*pin_).*member)) {}

  /// The member, valid while the pin lives. O(1).
  const M& operator*() const& noexcept FM_LIFETIMEBOUND {
    detail::check_pin(reinterpret_cast<const char*>(pin_.get()));
    return *member_;
  }
  /// Deleted: a reference into a temporary pin would dangle. Name the pin first.
  const M& operator*() const&& = delete;
  /// A member of the member. O(1).
  const M* operator->() const noexcept FM_LIFETIMEBOUND { return std::addressof(**this); }
  /// The begin of the member's range, valid while the pin lives. O(1), fetches nothing.
  auto begin() const noexcept FM_LIFETIMEBOUND requires requires(const M& m) { std::begin(m); }
  { return std::begin(**this); }
  /// The end of the member's range, valid while the pin lives. O(1), fetches nothing.
  auto end() const noexcept FM_LIFETIMEBOUND requires requires(const M& m) { std::end(m); }
  { return std::end(**this); }
  /// Number of elements of the member. O(1), fetches nothing.
  [[nodiscard]] auto size() const noexcept requires requires(const M& m) { std::size(m); }
  { return std::size(**this); }
  /// Element `i` of the member, unchecked as the member's own. O(1), fetches nothing.
  decltype(auto) operator[](std::size_t i) const noexcept FM_LIFETIMEBOUND requires
      requires(const M& m, std::size_t at) {
    m[at];
  }
  { return (**this)[i]; }

 private:
  read_pin<T> pin_;
  const M* member_;
};

}  // namespace fm
