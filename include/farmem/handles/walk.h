// Walks along references: fm::cursor, which holds one object of a long structure at a time, and fm::walk, its range. A
// cursor is a scope that renews itself. So a structure far larger than the cache can be walked, with plain references
// to its elements.
//
// Invariants owned here
//   - The root cell names an object before the section is left or an access may leave it, so the object stays alive.
//   - Between two steps the cursor holds at most `renew_every` objects in place, and only one while some heap of the
//     process is short of memory.
#pragma once

#include <concepts>
#include <farmem/handles/ptr.h>
#include <functional>
#include <iterator>

namespace fm {

/// Holds one object at a time and moves along references. It contains an open scope: it belongs to its thread, is not
/// movable, and suspending a coroutine while it lives throws scope_misuse. The object that it shows is valid until the
/// next move. Inside of another open scope or cursor it cannot renew its scope: all walked objects stay in place until
/// that one closes. A cursor of a const T begins at an fm::ptr<const T>, and shows the objects without leave to change
/// them.
template <class T>
class cursor {
  using value = std::remove_const_t<T>;

 public:
  /// Type of the object in memory: T, or fm::array_object for an array.
  using object = detail::object_t<value>;
  static constexpr std::uint32_t renew_every = 64;  ///< steps between two renewals of the scope

  /// Begins at `start`, which may be null. Throws as fm::ptr's ->. O(1) when resident, one fetch otherwise.
  explicit cursor(const ptr<T>& start, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : scope_(file, line), at_(start) {
    resolve();
  }
  /// Not copyable.
  cursor(const cursor&) = delete;
  cursor& operator=(const cursor&) = delete;

  /// Whether it shows an object; false at the end, after a null reference was followed. O(1).
  explicit operator bool() const noexcept { return object_ != nullptr; }
  /// The object, valid until the next move. Not at the end. O(1).
  const object& operator*() const noexcept { return *object_; }
  /// A member of the object. Not at the end. O(1).
  const object* operator->() const noexcept { return object_; }
  /// The root of the object: for writing to it (`c.here().write()`), or for keeping it. O(1).
  [[nodiscard]] const ptr<T>& here() const noexcept { return at_; }

  /// Moves to the object of `next`, which may be a field of the object shown now. Throws as fm::ptr's ->, and then the
  /// cursor is at its end. O(1) when resident, one fetch otherwise.
  void move(const ref<value>& next) { move_to(next.slot()); }
  /// Moves to the object of `next`. As the other move.
  void move(const ptr<T>& next) { move_to(next.slot()); }
  /// The same of a handle that may change the object.
  void move(const ptr<value>& next) requires(std::is_const_v<T>) { move_to(next.slot()); }

 private:
  void move_to(detail::slot_t next) {
    object_ = nullptr;
    at_.move_to_slot(next);
    const bool short_of_memory =
        (detail::epochs::gate.load(std::memory_order_relaxed) & detail::epochs::gate_memory) != 0;
    if (++steps_ >= renew_every || short_of_memory) {
      steps_ = 0;
      scope_.renew();
    }
    resolve();
  }
  void resolve() {
    const detail::slot_t s = at_.slot();
    detail::epochs::take_back();  // what this section has shown is not valid any more
    object_ = s == 0 ? nullptr : reinterpret_cast<const object*>(detail::read_barrier(s));
  }

  scope scope_;
  ptr<T> at_;
  const object* object_ = nullptr;
  std::uint32_t steps_ = 0;
};

/// A range over the objects of a linked structure; fm::walk makes it. Single pass. It contains an fm::cursor.
template <class T, class Next>
class walk_range {
 public:
  /// Begins at `start`; `next` gives the reference to follow. Throws as fm::ptr's ->.
  walk_range(const ptr<T>& start, Next next, const char* file, int line)
      : cursor_(start, file, line), next_(std::move(next)) {}

  /// An input iterator; all iterators of a range share its cursor.
  class iterator {
   public:
    using value_type = detail::object_t<std::remove_const_t<T>>;  ///< type of the objects
    using difference_type = std::ptrdiff_t;                       ///< required by std::input_iterator

    /// At the object that the range shows.
    explicit iterator(walk_range& range) noexcept : range_(&range) {}
    /// The object, valid until the next increment.
    const value_type& operator*() const noexcept { return *range_->cursor_; }
    /// A member of the object.
    const value_type* operator->() const noexcept { return &*range_->cursor_; }
    /// Moves to the next object. Throws as fm::ptr's ->.
    iterator& operator++() {
      range_->cursor_.move(std::invoke(range_->next_, *range_->cursor_));
      return *this;
    }
    /// Moves to the next object. Throws as fm::ptr's ->.
    void operator++(int) { ++*this; }
    /// Whether the walk is at its end.
    bool operator==(std::default_sentinel_t) const noexcept { return !range_->cursor_; }

   private:
    walk_range* range_;
  };

  /// An iterator at the object that the range shows now.
  iterator begin() noexcept { return iterator(*this); }
  /// The end of the walk.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// The root of the object shown now. O(1).
  [[nodiscard]] const ptr<T>& here() const noexcept { return cursor_.here(); }

 private:
  cursor<T> cursor_;
  Next next_;
};

/// Walks from `start` along `next` until a reference is null: `for (const node& n : fm::walk(list, &node::next)) sum +=
/// n.value;`. `next` is a member or a function that gives the fm::ref to follow. Each object is valid until the next
/// step. A structure of any length needs constant memory; see fm::cursor. Each step throws as fm::ptr's ->. `start` may
/// be an fm::ptr<const T>.
template <class T, class Next>
requires std::convertible_to < std::invoke_result_t < Next&, const detail::object_t<std::remove_const_t<T>>
& >, const ref<std::remove_const_t<T>>& > walk_range<T, Next> walk(const ptr<T>& start, Next next,
                                                                   const char* file = __builtin_FILE(),
                                                                   int line = __builtin_LINE()) {
  return walk_range<T, Next>(start, std::move(next), file, line);
}
/// The same from a field of a managed object.
template <class T, class Next>
requires std::convertible_to < std::invoke_result_t < Next&, const detail::object_t<T>
& >, const ref<T>& > walk_range<T, Next> walk(const ref<T>& start, Next next, const char* file = __builtin_FILE(),
                                              int line = __builtin_LINE()) {
  return walk_range<T, Next>(start.root(), std::move(next), file, line);
}

}  // namespace fm
