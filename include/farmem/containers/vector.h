// fm::vector<T>: a managed vector that may be larger than local memory. Its handle is a root. Its elements lie in
// chunks, so growing never copies more than one chunk, and an access to an element fetches one chunk.
//
//   fm::vector<int> v(h);                       struct file { fm::ref<fm::vector<posting>> hits; };
//   v.push_back(1);                             f.write()->hits = v;
//   std::accumulate(v.begin(), v.end(), 0);     fm::vector<posting> hits = f->hits;
#pragma once

#include <algorithm>
#include <compare>
#include <farmem/detail/vector/elements.h>
#include <farmem/detail/vector/erase_if.h>
#include <farmem/detail/vector/iterator.h>
#include <farmem/detail/vector/range.h>
#include <initializer_list>
#include <iterator>
#include <span>

namespace fm {

/// A handle to a managed vector. Copies of the handle name the same vector, and == asks whether two handles do; clone
/// copies the elements, and equal_elements compares them. T is a trivially copyable managed type without references, or
/// fm::ref<X>. Elements of type fm::ref<X> are read as handles: fm::ptr<X>, or the container X.
///
/// Threads: as std::vector, any number of readers or one writer.
///
/// Costs are given for resident data. Otherwise an access needs at most one fetch each of the header, two levels of
/// directory and the chunk. Iterators, for_each and its kin, and mutable ranges go through the chunks in order, with up
/// to 32 chunks fetched ahead. They pay the barrier once a chunk and then use a plain pointer: the heap/stack invariant
/// of Mako, section 5.1.
///
/// Errors: all members throw as fm::ptr's -> (null_handle, heap_closed, agent_lost, timed_out, cache_full). Members
/// that make room also throw as fm::heap::make, and too_large for more than 2^63 - 1 elements. Making room waits for
/// memory: avoid it inside of a scope. Room is made before an element changes, and stays.
///
/// If a member throws, the elements and the size are as before (strong), unless its comment states what is left
/// (basic). Members that append are strong if the end of the vector can still be reached: otherwise the first of the new
/// elements stay.
template <class T>
class vector : public ptr<vector<T>> {
  using base = ptr<vector<T>>;
  using place = detail::chunks<T>;
  using header = detail::vector_header<T>;
  using element = detail::element<T>;
  using moves = detail::elements<T>;

 public:
  using value_type = typename element::value;  ///< type that reading an element gives
  using element_copy =
      typename element::copy;  ///< value_type, const where it is a class: what is written to it is lost
  using argument = typename element::argument;  ///< type that is stored in an element
  using size_type = std::uint64_t;              ///< type of sizes and indices
  using difference_type = std::ptrdiff_t;       ///< type of distances between iterators
  using iterator = vector_iterator<T>;          ///< iterator that gives elements by value
  using const_iterator = iterator;              ///< the same: iterators do not write

  /// A null handle.
  constexpr vector() noexcept = default;
  /// A null handle.
  constexpr vector(std::nullptr_t) noexcept {}
  /// Makes an empty vector: one object of 32 bytes. O(1). Throws as fm::heap::make.
  explicit vector(heap& h) : base(make(h.cache())) {}
  /// Makes a vector of `values`. O(n). Throws as fm::heap::make.
  vector(heap& h, std::initializer_list<argument> values) : vector(h) { append(values); }
  /// Makes a vector of the elements of a range. O(n). Throws as fm::heap::make, and as reading the range.
  template <std::ranges::input_range R>
  requires std::convertible_to<std::ranges::range_reference_t<R>, argument> vector(heap& h, R&& values) : vector(h) {
    append(std::forward<R>(values));
  }
  /// Another handle to the vector of `p`. O(1).
  vector(base p) noexcept : base(std::move(p)) {}
  /// A handle to the vector that a field refers to. O(1).
  vector(const ref<vector<T>>& r) : base(r.root()) {}

  /// Number of elements. O(1).
  [[nodiscard]] size_type size() const { return base::operator->()->size(); }
  /// Whether there are no elements. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Number of elements that there is room for. O(1).
  [[nodiscard]] size_type capacity() const { return base::operator->()->capacity(); }

  /// Element `i`, by value. Throws out_of_range. O(1).
  [[nodiscard]] element_copy operator[](size_type i) const {
    const detail::user_section in_section;
    return element::load((*detail::object_at<typename place::chunk>(place::locate(this->slot(), i)))[place::within(i)]);
  }
  /// Element `i`, as operator[]: access is always checked.
  [[nodiscard]] element_copy at(size_type i) const { return (*this)[i]; }
  /// The first element. Throws out_of_range if there is none. O(1).
  [[nodiscard]] element_copy front() const { return (*this)[0]; }
  /// The last element. Throws out_of_range if there is none. O(1).
  [[nodiscard]] element_copy back() const { return (*this)[size() - 1]; }

  /// Replaces element `i`. Throws out_of_range. O(1).
  void set(size_type i, const argument& v) const {
    const detail::user_section in_section;
    auto* c = detail::object_to_write<typename place::chunk>(place::locate(this->slot(), i));
    element::store((*c)[place::within(i)], v);
  }

  /// Appends an element. O(1), amortised while the vector has one chunk.
  void push_back(const argument& v) const {
    while (!try_push(v)) place::grow(this->slot(), size() + 1);
  }
  /// Appends an element made of `a...`: `v.emplace_back(1, 2)`. Returns nothing, since a reference to an element needs a
  /// pin. O(1), as push_back.
  template <class... A>
  void emplace_back(A&&... a) const {
    push_back(argument{std::forward<A>(a)...});
  }
  /// Appends copies of `values`. O(n), with one barrier a chunk.
  void append(std::span<const T> values) const requires(!detail::is_ref<T>) {
    make_room(values.size());
    all_or_none([&] { moves::append(this->slot(), values.data(), values.size()); });
  }
  /// The same.
  void append(std::initializer_list<argument> values) const { append(values.begin(), values.end()); }
  /// Appends the elements of another vector, or of this one once more. O(n), with one barrier a chunk of each. Throws
  /// invalid_argument if T is fm::ref<X> and the other vector is of another heap.
  void append(const vector& o) const {
    check_heap_of(o);
    const size_type n = o.size();
    make_room(n);
    all_or_none([&] { moves::append(this->slot(), o.slot(), n); });
  }
  /// Appends the elements of any range whose elements convert to an element. O(n), with one barrier a chunk if it is
  /// contiguous memory of T, and as push_back otherwise. Throws as reading the range.
  template <std::ranges::input_range R>
  requires(!std::is_same_v<std::remove_cvref_t<R>, vector> &&
           std::convertible_to<std::ranges::range_reference_t<R>, argument>) void append(R&& values) const {
    if constexpr (std::convertible_to<R, std::span<const T>> && !detail::is_ref<T>)
      append(std::span<const T>(values));
    else
      append(std::ranges::begin(values), std::ranges::end(values));
  }
  /// Appends the elements from `first` to `last`. As append of a range.
  template <std::input_iterator I, std::sentinel_for<I> S>
  requires std::convertible_to<std::iter_reference_t<I>, argument>
  void append(I first, S last) const {
    if constexpr (std::contiguous_iterator<I> && std::sized_sentinel_for<S, I> && !detail::is_ref<T> &&
                  std::is_same_v<std::iter_value_t<I>, T>) {
      append(std::span<const T>(std::to_address(first), static_cast<std::size_t>(last - first)));
    } else {
      if constexpr (std::sized_sentinel_for<S, I>) make_room(static_cast<size_type>(last - first));
      all_or_none([&] {
        for (; first != last; ++first) push_back(*first);
      });
    }
  }

  /// Inserts `v` before the element that `at` names, and returns an iterator at it. Iterators, mutable ranges and pins
  /// made before show old elements. Throws out_of_range if `at` is past the end, and invalid_argument if it is of
  /// another vector. O(elements after `at`), in chunks: one barrier, or fetch, for each chunk from `at` to the end.
  ///
  /// Strong if `at` is the end, or in the last chunk and that has room. Otherwise basic, once there is room: if a chunk
  /// cannot be reached then, the vector is longer by what was to be inserted, and has all of its elements in order. The
  /// elements in between are copies of some of them, zeros (null references), or new ones.
  iterator insert(const iterator& at, const argument& v) const { return insert(at, size_type{1}, v); }
  /// Inserts `n` times `v`. O(n + elements after `at`). Otherwise as insert of one.
  iterator insert(const iterator& at, size_type n, const argument& v) const {
    const argument copy = v;  // v may be one of the elements that move
    return insert_with(
        at, n, [&](T* gap) { moves::fill(gap, n, copy); }, [&](size_type i) { moves::fill(this->slot(), i, n, copy); });
  }
  /// Inserts the elements from `first` to `last`, which may be elements of this vector. As insert_range.
  template <std::input_iterator I, std::sentinel_for<I> S>
  requires std::convertible_to<std::iter_reference_t<I>, argument> iterator insert(const iterator& at, I first, S last)
  const {
    const vector all = make_beside();
    all.append(std::move(first), std::move(last));
    return insert_range(at, all);
  }
  /// Inserts `values`. As insert_range.
  iterator insert(const iterator& at, std::initializer_list<argument> values) const {
    return insert(at, values.begin(), values.end());
  }
  /// Inserts the elements of any range, which may be this vector. Other ranges than vectors are copied to a vector
  /// first, so reading them changes nothing here. Otherwise as insert of many, and append of a vector.
  template <std::ranges::input_range R>
  requires std::convertible_to<std::ranges::range_reference_t<R>, argument> iterator insert_range(const iterator& at,
                                                                                                  R&& values)
  const {
    if constexpr (std::is_same_v<std::remove_cvref_t<R>, vector>)
      return insert_all(at, values.slot() == this->slot() ? clone() : values);
    else
      return insert(at, std::ranges::begin(values), std::ranges::end(values));
  }
  /// Inserts an element made of `a...`. As insert of one.
  template <class... A>
  iterator emplace(const iterator& at, A&&... a) const {
    return insert(at, argument{std::forward<A>(a)...});
  }

  /// Removes the element that `at` names, and returns an iterator at the one that followed. As erase of many.
  iterator erase(const iterator& at) const {
    const size_type i = index_of(at);
    return erase_at(i, i + 1);
  }
  /// Removes the elements from `first` to `last`, and returns an iterator at the one that followed. Iterators, mutable
  /// ranges and pins made before show old elements. Throws out_of_range and invalid_argument as insert.
  /// O(elements after `first`), in chunks as insert. Chunks that are not needed any more become garbage.
  ///
  /// Strong if `last` is the end, or if `first` is in the last chunk. Otherwise basic: if a chunk cannot be reached, some
  /// of the elements to be erased may still be there, and up to as many others stand twice. All others are in order.
  iterator erase(const iterator& first, const iterator& last) const {
    return erase_at(index_of(first), index_of(last));
  }

  /// Has the elements of a range instead, which may be of this vector. They are appended to a new vector, whose elements
  /// are exchanged for those of this one: strong, with memory for both. O(n). Throws as append.
  template <std::ranges::input_range R>
  requires std::convertible_to<std::ranges::range_reference_t<R>, argument>
  void assign(R&& values) const {
    const vector all = make_beside();
    all.append(std::forward<R>(values));
    swap(all);
  }
  /// The same for the elements from `first` to `last`.
  template <std::input_iterator I, std::sentinel_for<I> S>
  requires std::convertible_to<std::iter_reference_t<I>, argument>
  void assign(I first, S last) const {
    const vector all = make_beside();
    all.append(std::move(first), std::move(last));
    swap(all);
  }
  /// The same for `values`.
  void assign(std::initializer_list<argument> values) const { assign(values.begin(), values.end()); }
  /// The same for `n` times `v`.
  void assign(size_type n, const argument& v) const {
    const vector all = make_beside();
    all.resize(n, v);
    swap(all);
  }

  /// Exchanges the elements of two vectors of one heap: all handles to the one see those of the other. std::swap
  /// exchanges two handles. Throws invalid_argument if the vectors are of different heaps. Strong. O(1).
  void swap(const vector& o) const { place::swap(this->slot(), o.slot()); }
  /// A new vector in the same heap with copies of the elements. References are copied, and the objects that they name are
  /// not. O(n), with one barrier a chunk.
  [[nodiscard]] vector clone() const {
    const vector copy = make_beside();
    copy.append(*this);
    return copy;
  }

  /// Whether both have as many elements, and each equals its counterpart. References are equal if they name the same
  /// object, and strings if their text is. O(n).
  [[nodiscard]] bool equal_elements(const vector& o) const requires std::equality_comparable<value_type> {
    return size() == o.size() && std::equal(begin(), end(), o.begin());
  }
  /// The lexicographical order of the elements. O(n).
  [[nodiscard]] auto compare_elements(const vector& o) const requires std::three_way_comparable<value_type> {
    return std::lexicographical_compare_three_way(begin(), end(), o.begin(), o.end());
  }

  /// Removes the last element. Throws out_of_range if there is none. O(1).
  void pop_back() const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (h->size_ == 0) place::throw_range(0, 0);
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size_ - 1)));
    element::clear((*c)[place::within(h->size_ - 1)]);
    --h->size_;
  }
  /// Removes all elements; their chunks become garbage. If it throws, nothing has changed. O(1).
  void clear() const { place::clear(this->slot()); }
  /// Makes room for `n` elements. O(n / elements of a chunk).
  void reserve(size_type n) const { place::grow(this->slot(), n); }
  /// Cuts the vector to `n` elements, or appends zeros (null references) up to `n`. If it throws, the elements and the
  /// size are as before. O(difference / elements of a chunk).
  void resize(size_type n) const {
    const size_type old = size();
    if (n == 0) return clear();
    if (n < old) return place::cut(this->slot(), n);
    place::grow(this->slot(), n);  // beyond the size there are zeros
    this->write()->size_ = n;
  }
  /// Cuts the vector to `n` elements, or appends `v` up to `n`. O(difference).
  void resize(size_type n, const argument& v) const {
    const size_type old = size();
    if (n <= old) return resize(n);
    const argument copy = v;  // v may be in a chunk that is replaced
    place::grow(this->slot(), n);
    all_or_none([&] {
      this->write()->size_ = n;
      moves::fill(this->slot(), old, n - old, copy);
    });
  }
  /// Gives back the chunks that hold no element. O(leaves of the directory).
  void shrink_to_fit() const {
    const size_type n = size();
    return n == 0 ? clear() : place::cut(this->slot(), n);
  }

  /// A random-access iterator at the first element, which gives elements by value. See fm::vector_iterator. O(1).
  [[nodiscard]] iterator begin() const noexcept { return iterator(this->slot(), 0); }
  /// An iterator past the last element. O(1).
  [[nodiscard]] iterator end() const { return iterator(this->slot(), size()); }

  /// The elements for writing, as a range that standard algorithms may sort, fill and change: `auto m = v.mutate();
  /// std::sort(m.begin(), m.end());` or `for (T& e : v.mutate())`. fm::mutable_range states how long its references are
  /// valid. O(1).
  [[nodiscard]] mutable_range<T> mutate() const { return mutable_range<T>(*this); }

  /// Calls f(std::span<const T>) for every chunk in order. The fastest scan: f runs a plain loop over the span, which
  /// compilers vectorise. The elements stay in place during the call. f may allocate, but must not change the size.
  /// Exceptions of f pass through. O(n), with one barrier a chunk.
  template <class F>
  void for_each_chunk(F&& f) const {
    const size_type n = size();
    for (size_type at = 0; at < n; at += place::chunk_elements) {
      place::fetch_ahead(this->slot(), place::chunk_of(at));
      const read_pin<T[]> c(chunk_slot(place::chunk_of(at)));
      f(std::span<const T>(c->data(), std::min<size_type>(n - at, c->size())));
    }
  }
  /// Calls f(std::span<T>) for every chunk in order; all chunks become dirty. Otherwise as for_each_chunk.
  template <class F>
  void for_each_chunk_write(F&& f) const {
    const size_type n = size();
    for (size_type at = 0; at < n; at += place::chunk_elements) {
      place::fetch_ahead(this->slot(), place::chunk_of(at));
      const write_pin<T[]> c(chunk_slot(place::chunk_of(at)));
      f(std::span<T>(c->data(), std::min<size_type>(n - at, c->size())));
    }
  }
  /// Calls f(const T&) for every element in order. Otherwise as for_each_chunk.
  template <class F>
  void for_each(F&& f) const {
    for_each_chunk([&](std::span<const T> c) {
      for (const T& e : c) f(e);
    });
  }
  /// Calls f(T&) for every element in order; all chunks become dirty. Otherwise as for_each_chunk.
  template <class F>
  void for_each_write(F&& f) const {
    for_each_chunk_write([&](std::span<T> c) {
      for (T& e : c) f(e);
    });
  }

 private:
  static base make(detail::object_cache& cache) {
    detail::check_element<T>();
    return base::from_slot(detail::allocate(cache, detail::descriptor_of<header>(), 0, nullptr, 0));
  }
  [[nodiscard]] vector make_beside() const { return make(detail::cache_of(this->slot())); }
  void check_heap_of(const vector& o) const {
    if (detail::is_ref<T> && &detail::cache_of(this->slot()) != &detail::cache_of(o.slot()))
      throw error(errc::invalid_argument, "references of another heap cannot be elements of a vector");
  }
  void make_room(size_type n) const { place::grow(this->slot(), place::sum(size(), n)); }
  /// Runs `f`, which appends; takes back what it did if it throws, as far as the vector can be reached.
  template <class F>
  void all_or_none(F&& f) const {
    const size_type old = size();
    try {
      f();
    } catch (...) {
      try {
        if (size() > old) resize(old);
      } catch (const error&) {
      }
      throw;
    }
  }
  size_type index_of(const iterator& at) const {
    if (at.vector_ != this->slot()) throw error(errc::invalid_argument, "an iterator of another vector");
    return at.index_;
  }
  /// Makes room at `at` for `n` elements and stores them: `in_chunk(T*)` where all lie in one chunk, which cannot throw,
  /// or else `in_chunks(index)`.
  template <class InChunk, class InChunks>
  iterator insert_with(const iterator& at, size_type n, InChunk in_chunk, InChunks in_chunks) const {
    const size_type i = index_of(at), old = size();
    if (i > old) place::throw_range(i, old);
    if (n != 0 && !moves::insert_in_chunk(this->slot(), i, n, in_chunk)) {
      make_room(n);
      if (!moves::insert_in_chunk(this->slot(), i, n, in_chunk)) {
        const auto change = [&] {
          moves::open(this->slot(), i, n);
          in_chunks(i);
        };
        if (i == old)
          all_or_none(change);
        else
          change();
      }
    }
    return iterator(this->slot(), i);
  }
  iterator insert_all(const iterator& at, const vector& o) const {
    check_heap_of(o);
    const size_type n = o.size();
    std::optional<read_pin<T[]>> first;  // pinned before anything changes, if one chunk has all
    if (n != 0 && n <= place::chunk_elements) first.emplace(o.chunk_slot(0));
    return insert_with(
        at, n, [&](T* gap) { moves::move(gap, (*first)->data(), n); },
        [&](size_type i) { moves::copy(this->slot(), i, o.slot(), 0, n); });
  }
  iterator erase_at(size_type from, size_type to) const {
    const size_type n = size();
    if (from > to || to > n) place::throw_range(std::max(from, to), n);
    if (from == to) {
    } else if (to == n) {
      resize(from);
    } else if (!moves::erase_in_chunk(this->slot(), from, to - from)) {
      moves::close(this->slot(), from, to - from, n);
      resize(n - (to - from));
    }
    return iterator(this->slot(), from);
  }
  detail::slot_t chunk_slot(size_type c) const {
    const detail::user_section in_section;
    const auto& h = *detail::object_at<header>(this->slot());
    if (c * place::chunk_elements >= h.capacity_) place::throw_range(c * place::chunk_elements, h.size_);
    return place::slot_of(h, c);
  }
  bool try_push(const argument& v) const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (h->size_ >= h->capacity_) return false;
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size_)));
    element::store((*c)[place::within(h->size_)], v);
    ++h->size_;
    return true;
  }
};

}  // namespace fm
