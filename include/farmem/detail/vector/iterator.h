// The iterator of fm::vector for reading: random access, with the barrier hoisted out of the chunk. It keeps the chunk
// that it read last pinned. Stepping changes a number; reading compares it with what the pinned chunk covers. Elements
// come out by value (references as handles), so nothing that it gives dangles.
//
// Invariant: elements first_ .. first_ + count_ are in the chunk that is pinned (none when count_ is 0). Slow paths
// take and give values, never the iterator's address: so a loop over one keeps it in registers.
#pragma once

#include <farmem/detail/random_access.h>
#include <farmem/detail/vector/chunks.h>

namespace fm {
namespace detail {

/// A chunk that is pinned, and what it covers: element i lies at base + i * sizeof(E) for first <= i < first + count.
template <class E>
struct chunk_view {
  std::uintptr_t base = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  char* pinned = nullptr;

  static void drop(char* pinned) noexcept {
    if (pinned) unpin_frame(pinned);
  }
  /// The chunk that holds element `index`, instead of the one pinned as `old`, which ends before element `old_end`.
  /// Throws out_of_range, and as fm::ptr's ->: then `old` stays pinned.
  [[gnu::noinline]] static chunk_view load(slot_t vector, std::uint64_t index, char* old, std::uint64_t old_end) {
    using place = chunks<E>;
    if (old && index == old_end) place::fetch_ahead(vector, place::chunk_of(index));
    const user_section in_section;
    const std::uint64_t size = object_at<typename place::header>(vector)->size();
    const auto* c = object_at<typename place::chunk>(place::locate(vector, index));
    char* const payload = reinterpret_cast<char*>(const_cast<typename place::chunk*>(c));
    pin_frame(payload);
    drop(old);
    const std::uint64_t first = index - place::within(index);
    // Of the chunk's elements, those of the vector: whoever reads beyond them comes here again, and is refused.
    return {reinterpret_cast<std::uintptr_t>(c->data()) - first * sizeof(E), first, std::min(c->size(), size - first),
            payload};
  }
};

}  // namespace detail

/// A random-access iterator that gives elements by value; fm::vector::begin and end make it. It pins the chunk that it
/// read last. Valid while the vector lives and does not change its size. For one thread at a time; copies are
/// independent. Copying one that has read costs two atomic additions.
template <class T>
class vector_iterator : public detail::random_access<vector_iterator<T>> {
  using base = detail::random_access<vector_iterator<T>>;
  using element = detail::element<T>;
  using view = detail::chunk_view<T>;

 public:
  using value_type = typename element::value;  ///< type that reading an element gives
  using reference = typename element::copy;    ///< elements come by value, which a program cannot change by mistake
  /// Result of ->: a copy of the element that lives until the full expression ends.
  class pointer {
   public:
    /// Holds `v`.
    explicit pointer(value_type v) : value_(std::move(v)) {}
    /// A member of the copy.
    const value_type* operator->() const noexcept { return &value_; }

   private:
    value_type value_;
  };

  /// An iterator of no vector.
  vector_iterator() noexcept = default;
  /// For fm::vector.
  vector_iterator(detail::slot_t vector, std::uint64_t index) noexcept : base(index), vector_(vector) {}
  /// A copy at the same element, with a pin of its own.
  vector_iterator(const vector_iterator& o) noexcept
      : base(o), vector_(o.vector_), base_(o.base_), first_(o.first_), count_(o.count_), pinned_(o.pinned_) {
    if (pinned_) detail::pin_frame(pinned_);  // pinned already, so it stays where it is
  }
  /// Takes over the pin of `o`.
  vector_iterator(vector_iterator&& o) noexcept
      : base(o), vector_(o.vector_), base_(o.base_), first_(o.first_), count_(o.count_), pinned_(o.pinned_) {
    o.count_ = 0;
    o.pinned_ = nullptr;
  }
  /// Moves to the element of `o`.
  vector_iterator& operator=(vector_iterator o) noexcept {
    std::swap(index_, o.index_);
    std::swap(vector_, o.vector_);
    std::swap(base_, o.base_);
    std::swap(first_, o.first_);
    std::swap(count_, o.count_);
    std::swap(pinned_, o.pinned_);
    return *this;
  }
  ~vector_iterator() { view::drop(pinned_); }

  /// The element, by value. Throws out_of_range past the end, and as fm::ptr's ->. O(1), with one barrier a chunk.
  reference operator*() const {
    if (__builtin_expect(index_ - first_ >= count_, 0)) {
      const view v = view::load(vector_, index_, pinned_, first_ + count_);
      base_ = v.base;
      first_ = v.first;
      count_ = v.count;
      pinned_ = v.pinned;
    }
    return element::load(*reinterpret_cast<const T*>(base_ + index_ * sizeof(T)));
  }
  /// A member of the element. As operator*.
  pointer operator->() const { return pointer(**this); }

 private:
  friend class vector<T>;  // asks which vector and which element it names
  using base::index_;
  detail::slot_t vector_ = 0;
  // Reading an element may pin the chunk that it is in, which does not change what the iterator names.
  mutable std::uintptr_t base_ = 0;
  mutable std::uint64_t first_ = 0;
  mutable std::uint64_t count_ = 0;
  mutable char* pinned_ = nullptr;
};

}  // namespace fm
