// fm::mutable_range: the elements of an fm::vector for writing, as a random-access range that standard algorithms may
// change:
//
//   auto m = v.mutate();                      // a T& for every element; for fm::ref<X> something that assigns like one
//   std::sort(m.begin(), m.end());            // of any length: also larger than the cache
//   for (posting& p : v.mutate()) p.count += 1;
//
// The range pins the few chunks that it touched last. An iterator is an index and a guess at which of them its chunk
// is. So copying one is cheap, and dereferencing it is a compare and an addition while its chunk is pinned.
//
// Invariant: a chunk that leaves its place in the table stays pinned until `displaced` further chunks have been brought
// in. So references to elements of displaced + 1 chunks may be used together, whichever were touched before. Comparing
// and swapping need two.
#pragma once

#include <array>
#include <compare>
#include <farmem/detail/random_access.h>
#include <farmem/detail/vector/chunks.h>
#include <utility>

namespace fm {
namespace detail {

/// The chunks that a mutable range has pinned. For one thread.
template <class E>
class pinned_chunks {
  using place = chunks<E>;

 public:
  static constexpr std::uint32_t ways =
      4;  ///< chunks that are found without the barrier: as many streams go side by side
  static constexpr std::uint32_t displaced = 2;  ///< chunks that stay pinned only for references given out

  pinned_chunks(slot_t vector, std::uint64_t size) noexcept : vector_(vector), size_(size) {}
  ~pinned_chunks() {
    for (const way& w : ways_) drop(w.pinned);
    for (char* p : displaced_) drop(p);
  }
  pinned_chunks(const pinned_chunks&) = delete;
  pinned_chunks& operator=(const pinned_chunks&) = delete;

  /// Where element `index` is. `guess`: the way that its chunk was in, corrected here. Throws out_of_range, and as
  /// fm::ptr's write; then everything stays as it was.
  E* at(std::uint64_t index, std::uint32_t& guess) {
    if (__builtin_expect(index - ways_[guess].first >= ways_[guess].count, 0)) guess = find(index);
    return reinterpret_cast<E*>(ways_[guess].pinned + first_element) + (index - ways_[guess].first);
  }

 private:
  static constexpr std::size_t first_element = sizeof(array_object<E>);  ///< from the start of a chunk's payload
  struct way {
    std::uint64_t first = 0, count = 0;  ///< of the vector's elements
    char* pinned = nullptr;
  };

  static void drop(char* pinned) noexcept {
    if (pinned) unpin_frame(pinned);
  }
  [[gnu::noinline]] std::uint32_t find(std::uint64_t index) {
    for (std::uint32_t w = 0; w < ways; ++w)
      if (index - ways_[w].first < ways_[w].count) return w;
    if (index >= size_) place::throw_range(index, size_);
    const std::uint64_t first = index - place::within(index);
    for (const way& w : ways_)  // the chunk before is there: somebody scans
      if (w.count != 0 && w.first + place::chunk_elements == first) place::fetch_ahead(vector_, place::chunk_of(first));
    char* payload = nullptr;
    {
      const user_section in_section;
      payload = write_barrier(place::locate(vector_, index));
      pin_frame(payload);
    }
    const std::uint32_t victim = next_++ % ways;
    drop(displaced_[line_ % displaced]);
    displaced_[line_++ % displaced] = ways_[victim].pinned;
    ways_[victim] = {first, std::min(place::chunk_elements, size_ - first), payload};
    return victim;
  }

  slot_t vector_;
  std::uint64_t size_;
  std::array<way, ways> ways_{};
  std::array<char*, displaced> displaced_{};
  std::uint32_t next_ = 0;
  std::uint32_t line_ = 0;
};

}  // namespace detail

/// An element of a vector of fm::ref<X> that is being changed. It reads as a handle to the object (fm::ptr<X>, or the
/// container X), and any fm::ptr<X> can be assigned to it. A reference is never copied out of the heap: algorithms hold
/// a root meanwhile, and every store goes through the write barrier. Valid as long as a reference from its range.
template <class X>
class mutable_ref {
 public:
  using value = typename detail::element<ref<X>>::value;  ///< type of the handle that it reads as

  /// For fm::mutable_range.
  explicit mutable_ref(ref<X>& at) noexcept : at_(&at) {}
  /// Names the same element.
  mutable_ref(const mutable_ref&) noexcept = default;
  // A proxy, as std::vector<bool>::reference is one: assigning changes the element and not this object.
  // NOLINTBEGIN(misc-unconventional-assign-operator, bugprone-unhandled-self-assignment)
  /// Makes this element refer to the object of the other element.
  mutable_ref& operator=(const mutable_ref& o) {
    std::as_const(*this) = o;
    return *this;
  }
  /// The same. It is const, as for a T&.
  const mutable_ref& operator=(const mutable_ref& o) const { return *this = o.at_->root(); }
  /// Makes this element refer to the object of `p`.
  const mutable_ref& operator=(const ptr<X>& p) const {
    *at_ = p;
    return *this;
  }
  // NOLINTEND(misc-unconventional-assign-operator, bugprone-unhandled-self-assignment)
  /// A handle to the object.
  operator value() const { return value(at_->root()); }
  /// Reads the object in place until the full expression ends. Throws as fm::ptr's ->.
  detail::arrow<X> operator->() const { return at_->operator->(); }
  /// A pin for writing to the object. Throws as fm::ptr's write.
  [[nodiscard]] write_pin<X> write() const { return at_->write(); }
  /// Whether the element is not null.
  explicit operator bool() const noexcept { return static_cast<bool>(*at_); }
  /// Whether the element is null.
  friend bool operator==(const mutable_ref& a, std::nullptr_t) noexcept { return !a; }
  /// Whether both elements refer to the same object; for fm::string, whether their texts are equal.
  friend bool operator==(const mutable_ref& a, const mutable_ref& b) {
    if constexpr (is_text)
      return value(a) == value(b);
    else
      return *a.at_ == *b.at_;
  }
  /// Whether the element refers to the object of `b`; for fm::string, whether the texts are equal.
  friend bool operator==(const mutable_ref& a, const value& b) {
    if constexpr (is_text)
      return value(a) == b;
    else
      return *a.at_ == b;
  }
  /// The order of the handles that the elements read as.
  friend std::strong_ordering operator<=>(const mutable_ref& a, const mutable_ref& b) { return value(a) <=> value(b); }
  /// The same.
  friend std::strong_ordering operator<=>(const mutable_ref& a, const value& b) { return value(a) <=> b; }
  /// Exchanges the objects that two elements refer to.
  friend void swap(const mutable_ref& a, const mutable_ref& b) { a = b.at_->exchange(a.at_->root()); }

 private:
  static constexpr bool is_text = std::is_same_v<X, string>;
  ref<X>* at_;
};

/// The random-access iterator of a mutable range. Copying it copies three words. Valid while its range lives.
template <class T>
class mutable_iterator : public detail::random_access<mutable_iterator<T>> {
  using base = detail::random_access<mutable_iterator<T>>;
  using base::index_;
  template <class E>
  struct reference_to {
    using type = E&;
    using arrow = E*;
    static type make(E& e) noexcept { return e; }
    static arrow arrow_of(E& e) noexcept { return &e; }
  };
  template <class X>
  struct reference_to<ref<X>> {
    using type = mutable_ref<X>;
    using arrow = type;
    static type make(ref<X>& e) noexcept { return type(e); }
    static arrow arrow_of(ref<X>& e) noexcept { return type(e); }
  };

 public:
  using value_type = typename detail::element<T>::value;  ///< type that reading an element gives
  using reference = typename reference_to<T>::type;       ///< T&, or fm::mutable_ref
  using pointer = typename reference_to<T>::arrow;        ///< T*, or fm::mutable_ref

  /// An iterator of no range.
  mutable_iterator() noexcept = default;
  /// For fm::mutable_range.
  mutable_iterator(detail::pinned_chunks<T>& chunks, std::uint64_t index) noexcept : base(index), chunks_(&chunks) {}

  /// The element in place. Valid until elements of three other chunks have been dereferenced. Throws out_of_range past
  /// the end, and as fm::ptr::write. O(1).
  reference operator*() const { return reference_to<T>::make(*chunks_->at(index_, guess_)); }
  /// A member of the element. As operator*.
  pointer operator->() const { return reference_to<T>::arrow_of(*chunks_->at(index_, guess_)); }

 private:
  detail::pinned_chunks<T>* chunks_ = nullptr;
  mutable std::uint32_t guess_ = 0;  ///< changes nothing that can be seen
};

/// The elements of a vector for writing; fm::vector::mutate makes it. For one thread at a time; two ranges of one
/// vector are two writers. Not movable, since iterators point to it. Valid while the vector does not change its size.
/// It pins at most six chunks, each of which may keep a segment of the cache. Dereferenced chunks become dirty.
template <class T>
class mutable_range {
 public:
  using iterator = mutable_iterator<T>;            ///< iterator that gives elements in place
  using reference = typename iterator::reference;  ///< T&, or fm::mutable_ref

  /// The elements that `v` has now. Throws as fm::ptr's ->.
  explicit mutable_range(const ptr<vector<T>>& v) : vector_(v), size_(v->size()), chunks_(v.slot(), size_) {}
  /// Not copyable.
  mutable_range(const mutable_range&) = delete;
  mutable_range& operator=(const mutable_range&) = delete;

  /// An iterator at the first element. O(1).
  [[nodiscard]] iterator begin() noexcept { return iterator(chunks_, 0); }
  /// An iterator past the last element. O(1).
  [[nodiscard]] iterator end() noexcept { return iterator(chunks_, size_); }
  /// Number of elements when the range was made. O(1).
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Whether there were no elements when the range was made. O(1).
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Element `i` in place, as by dereferencing an iterator.
  reference operator[](std::uint64_t i) { return *iterator(chunks_, i); }

 private:
  ptr<vector<T>> vector_;  // keeps what is pinned alive
  std::uint64_t size_;
  detail::pinned_chunks<T> chunks_;
};

}  // namespace fm
