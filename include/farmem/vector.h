// fm::vector<T>: a managed vector that may be larger than local memory. Its handle is a root. Its elements lie in
// chunks, so growing never copies more than one chunk, and an access to an element fetches one chunk.
//
//   fm::vector<int> v(h);                       struct file { fm::ref<fm::vector<posting>> hits; };
//   v.push_back(1);                             f.write()->hits = v;
//   std::accumulate(v.begin(), v.end(), 0);     fm::vector<posting> hits = f->hits;
#pragma once

#include <farmem/detail/vector_iterator.h>
#include <farmem/detail/vector_range.h>
#include <span>

namespace fm {

/// A handle to a managed vector. Copies of the handle name the same vector. T is a trivially copyable managed type
/// without references, or fm::ref<X>. Elements of type fm::ref<X> are read as handles: fm::ptr<X>, or the container X.
///
/// Threads: as std::vector, any number of readers or one writer.
///
/// Costs are given for resident data. Otherwise an access needs at most one fetch each of the header, two levels of
/// directory and the chunk. Iterators, for_each and its kin, and mutable ranges go through the chunks in order, with up
/// to 32 chunks fetched ahead. They pay the barrier once a chunk and then use a plain pointer: the heap/stack invariant
/// of Mako, section 5.1.
///
/// Errors: all members throw as fm::ptr's -> (null_handle, heap_closed, agent_lost, timed_out, cache_full). Members
/// that make room also throw as fm::heap::make. The vector is unchanged then; a member that concerns many elements may
/// have changed some of them. Making room waits for memory: avoid it inside of a scope.
template <class T>
class vector : public ptr<vector<T>> {
  using base = ptr<vector<T>>;
  using place = detail::chunks<T>;
  using header = detail::vector_header<T>;
  using element = detail::element<T>;

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
  explicit vector(heap& h) : base(make(h)) {}
  /// Another handle to the vector of `p`. O(1).
  vector(base p) noexcept : base(std::move(p)) {}
  /// A handle to the vector that a field refers to. O(1).
  vector(const ref<vector<T>>& r) : base(r.root()) {}

  /// Number of elements. O(1).
  [[nodiscard]] size_type size() const { return base::operator->()->size; }
  /// Whether there are no elements. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Number of elements that there is room for. O(1).
  [[nodiscard]] size_type capacity() const { return base::operator->()->capacity; }

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
  /// Appends copies of `values`. O(n), with one barrier a chunk.
  void append(std::span<const T> values) const requires(!detail::is_ref<T>) {
    size_type at = size();
    place::grow(this->slot(), at + values.size());
    while (!values.empty()) {
      const size_type n = std::min<size_type>(values.size(), place::chunk_elements - place::within(at));
      const detail::user_section in_section;
      auto* h = detail::object_to_write<header>(this->slot());
      auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(at)));
      std::memcpy(static_cast<void*>(c->data() + place::within(at)), values.data(), n * sizeof(T));
      h->size = at += n;
      values = values.subspan(n);
    }
  }

  /// Removes the last element. Throws out_of_range if there is none. O(1).
  void pop_back() const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (h->size == 0) place::throw_range(0, 0);
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size - 1)));
    element::clear((*c)[place::within(h->size - 1)]);
    --h->size;
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
    this->write()->size = n;
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
  static base make(heap& h) {
    detail::check_element<T>();
    return base::from_slot(detail::allocate(h.cache(), detail::descriptor_of<header>(), 0, nullptr, 0));
  }
  detail::slot_t chunk_slot(size_type c) const {
    const detail::user_section in_section;
    const auto& h = *detail::object_at<header>(this->slot());
    if (c * place::chunk_elements >= h.capacity) place::throw_range(c * place::chunk_elements, h.size);
    return place::slot_of(h, c);
  }
  bool try_push(const argument& v) const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (h->size >= h->capacity) return false;
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size)));
    element::store((*c)[place::within(h->size)], v);
    ++h->size;
    return true;
  }
};

}  // namespace fm
