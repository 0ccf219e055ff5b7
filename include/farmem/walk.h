// Walks along references: fm::cursor, which holds one object of a long structure at a time, and fm::walk, its range. A
// cursor is a scope that renews itself, so a structure far larger than the cache can be walked, with plain references to
// its elements.
//
// Invariants owned here
//   - The root cell names an object before the section is left or an access may leave it: what is walked stays alive.
//   - Between two steps no more than `renew_every` objects are held in place by the cursor, and only one while some heap of
//     the process is short of memory.
#pragma once

#include <concepts>
#include <farmem/ptr.h>
#include <functional>
#include <iterator>

namespace fm {

/// Holds one object at a time and moves along references. An open scope in disguise: bound to its thread, not movable, and
/// suspending a coroutine while it lives is an error. What it shows is valid until the next move. Inside of another
/// open scope (or cursor) it cannot renew itself: everything walked then stays until that one closes.
template <class T>
class cursor {
 public:
  using object = detail::object_t<T>;
  static constexpr std::uint32_t renew_every = 64;  ///< steps; a renewal costs about as much as two scopes

  /// At `start`, which may be null. Throws as fm::ptr's ->. O(1) when resident, one fetch otherwise.
  explicit cursor(const ptr<T>& start, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : scope_(file, line), at_(start) {
    resolve();
  }
  cursor(const cursor&) = delete;
  cursor& operator=(const cursor&) = delete;

  /// False at the end: the last move followed a null reference.
  explicit operator bool() const noexcept { return object_ != nullptr; }
  const object& operator*() const noexcept { return *object_; }
  const object* operator->() const noexcept { return object_; }
  /// The root: for writing to the object (`c.here().write()`), or for keeping it.
  [[nodiscard]] const ptr<T>& here() const noexcept { return at_; }

  /// Moves to the object that `next` names; `next` may be a field of the object shown now. Throws as fm::ptr's ->; the
  /// cursor is at its end then.
  void move(const ref<T>& next) { move_to(next.slot()); }
  void move(const ptr<T>& next) { move_to(next.slot()); }

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
    // Nothing that this section has shown is valid any more: it may be left to wait for memory.
    object_ = s == 0 ? nullptr : reinterpret_cast<const object*>(detail::read_barrier(s, detail::section_kind::fresh));
  }

  scope scope_;
  ptr<T> at_;
  const object* object_ = nullptr;
  std::uint32_t steps_ = 0;
};

/// A range over the objects of a linked structure; made by fm::walk. Single pass.
template <class T, class Next>
class walk_range {
 public:
  walk_range(const ptr<T>& start, Next next, const char* file, int line)
      : cursor_(start, file, line), next_(std::move(next)) {}

  class iterator {
   public:
    using value_type = detail::object_t<T>;
    using difference_type = std::ptrdiff_t;

    explicit iterator(walk_range& range) noexcept : range_(&range) {}
    /// Valid until the next increment.
    const value_type& operator*() const noexcept { return *range_->cursor_; }
    const value_type* operator->() const noexcept { return &*range_->cursor_; }
    iterator& operator++() {
      range_->cursor_.move(std::invoke(range_->next_, *range_->cursor_));
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const noexcept { return !range_->cursor_; }

   private:
    walk_range* range_;
  };

  iterator begin() noexcept { return iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// The root of the element shown now.
  [[nodiscard]] const ptr<T>& here() const noexcept { return cursor_.here(); }

 private:
  cursor<T> cursor_;
  Next next_;
};

/// Walks from `start` along `next`, a member (`&node::next`) or a function that gives the fm::ref to follow, until it is
/// null: `for (const node& n : fm::walk(list, &node::next)) sum += n.value;`. Each element is valid until the next step.
/// Any length, in constant memory; see fm::cursor. Throws what fm::ptr's -> throws, from the step.
template <class T, class Next>
requires std::convertible_to < std::invoke_result_t < Next&, const detail::object_t<T>
& >, const ref<T>& > walk_range<T, Next> walk(const ptr<T>& start, Next next, const char* file = __builtin_FILE(),
                                              int line = __builtin_LINE()) {
  return walk_range<T, Next>(start, std::move(next), file, line);
}
template <class T, class Next>
requires std::convertible_to < std::invoke_result_t < Next&, const detail::object_t<T>
& >, const ref<T>& > walk_range<T, Next> walk(const ref<T>& start, Next next, const char* file = __builtin_FILE(),
                                              int line = __builtin_LINE()) {
  return walk_range<T, Next>(start.root(), std::move(next), file, line);
}

}  // namespace fm
