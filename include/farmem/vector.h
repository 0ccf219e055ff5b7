// fm::vector<T>: a managed vector that may be larger than local memory. Its handle is a root (containers/handle.h), its
// elements are in chunks (containers/chunks.h), so growing never copies more than one chunk and touching an element
// brings one chunk in.
//
//   fm::vector<int> v(h);                       struct file { fm::ref<fm::vector<posting>> hits; };
//   v.push_back(1);                             f.write()->hits = v;
//   std::accumulate(v.begin(), v.end(), 0);     fm::vector<posting> hits = f->hits;
#pragma once

#include <farmem/detail/vector_iterator.h>
#include <farmem/detail/vector_range.h>
#include <span>

namespace fm {

/// A handle to a managed vector. Copies of the handle name the same vector, as pointers do. T is a trivially copyable
/// managed type without references, or fm::ref<X>: then elements come out as handles (fm::ptr<X>, or the container X).
/// Threads: as std::vector, any number of readers or one writer. Costs are with everything resident; beyond that an access
/// is at most one fetch each of the header, two levels of directory and the chunk, and whatever goes through the chunks in order
/// (iterators, for_each and its kin, mutable ranges) has up to 32 of them fetched ahead. Errors: all members throw as fm::ptr's -> does
/// (null_handle, heap_closed, agent_lost, timed_out, cache_full), and those that make room as fm::heap::make does; a
/// vector is unchanged or, where many elements are concerned, changed in part then. Not to be grown inside a scope where
/// avoidable: making room waits for memory. That the barrier is paid once a chunk, and what is used then is a plain pointer, is the
/// heap/stack invariant of Mako, section 5.1.
template <class T>
class vector : public ptr<vector<T>> {
  using base = ptr<vector<T>>;
  using place = detail::chunks<T>;
  using header = detail::vector_header<T>;
  using element = detail::element<T>;

 public:
  using value_type = typename element::value;   ///< what reading an element gives
  using argument = typename element::argument;  ///< what is stored
  using size_type = std::uint64_t;
  using difference_type = std::ptrdiff_t;
  using iterator = vector_iterator<T>;
  using const_iterator = iterator;

  /// A null handle.
  constexpr vector() noexcept = default;
  constexpr vector(std::nullptr_t) noexcept {}
  /// Makes an empty vector: one object of 32 bytes. O(1).
  explicit vector(heap& h) : base(make(h)) {}
  /// Another handle to a vector.
  vector(base p) noexcept : base(std::move(p)) {}
  vector(const ref<vector<T>>& r) : base(r.root()) {}

  /// Elements. O(1).
  [[nodiscard]] size_type size() const { return base::operator->()->size; }
  /// Whether there are no elements. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Elements that there is room for. O(1).
  [[nodiscard]] size_type capacity() const { return base::operator->()->capacity; }

  /// Element `i`, by value. Throws out_of_range. O(1).
  [[nodiscard]] value_type operator[](size_type i) const {
    const detail::user_section in_section;
    return element::load((*detail::object_at<typename place::chunk>(place::locate(this->slot(), i)))[place::within(i)]);
  }
  /// The same: access is always checked.
  [[nodiscard]] value_type at(size_type i) const { return (*this)[i]; }
  /// The first and the last element. Throw out_of_range when there is none. O(1).
  [[nodiscard]] value_type front() const { return (*this)[0]; }
  [[nodiscard]] value_type back() const { return (*this)[size() - 1]; }

  /// Replaces element `i`. Throws out_of_range. O(1).
  void set(size_type i, const argument& v) const {
    const detail::user_section in_section;
    auto* c = detail::object_to_write<typename place::chunk>(place::locate(this->slot(), i));
    element::store((*c)[place::within(i)], v);
  }

  /// Appends. O(1), amortised while the vector has one chunk.
  void push_back(const argument& v) const {
    while (!try_push(v)) place::grow(this->slot(), size() + 1);
  }
  /// Appends copies. O(n), the barrier once a chunk.
  void append(std::span<const T> values) const requires(!detail::is_ref<T>) {
    size_type at = size();
    place::grow(this->slot(), at + values.size());
    while (!values.empty()) {
      const size_type n = std::min<size_type>(values.size(), place::chunk_elements - place::within(at));
      const detail::user_section in_section;
      auto* h = detail::object_to_write<header>(this->slot(), detail::section_kind::fresh);
      auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(at)));
      std::memcpy(static_cast<void*>(c->data() + place::within(at)), values.data(), n * sizeof(T));
      h->size = at += n;
      values = values.subspan(n);
    }
  }

  /// Removes the last element. Throws out_of_range when there is none. O(1).
  void pop_back() const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot(), detail::section_kind::fresh);
    if (h->size == 0) place::throw_range(0, 0);
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size - 1)));
    element::clear((*c)[place::within(h->size - 1)]);
    --h->size;
  }
  /// Removes all elements and lets their memory go. O(1).
  void clear() const {
    this->write()->size = 0;
    place::drop_chunks(this->slot(), 0);
  }
  /// Makes room for `n` elements. O(n / chunk).
  void reserve(size_type n) const { place::grow(this->slot(), n); }
  /// Cuts, or appends zeros (null references). O(difference).
  void resize(size_type n) const {
    const size_type old = size();
    if (n == 0) return clear();
    if (n > old) {
      place::grow(this->slot(), n);  // beyond the size there are zeros
      this->write()->size = n;
      return;
    }
    this->write()->size = n;
    const size_type last = place::chunk_of(n - 1);
    const write_pin<T[]> c(chunk_slot(last));
    for (size_type i = place::within(n - 1) + 1; i < c->size(); ++i) element::clear((*c)[i]);
    place::drop_chunks(this->slot(), last + 1);
  }

  /// Random-access iterators that give elements by value; see fm::vector_iterator. O(1).
  [[nodiscard]] iterator begin() const noexcept { return iterator(this->slot(), 0); }
  [[nodiscard]] iterator end() const { return iterator(this->slot(), size()); }

  /// The elements for writing, as a range that standard algorithms may sort, fill and change: `auto m = v.mutate();
  /// std::sort(m.begin(), m.end());` or `for (T& e : v.mutate())`. See fm::mutable_range for how long references are good. O(1).
  [[nodiscard]] mutable_range<T> mutate() const { return mutable_range<T>(*this); }

  /// Calls f(std::span<const T>) for every chunk in order: the fastest scan, since what f does with a span is a plain loop, which
  /// compilers vectorise. The elements stay in place during the call; f may allocate, and must not change the size. What f
  /// throws passes through. O(n), the barrier once a chunk.
  template <class F>
  void for_each_chunk(F&& f) const {
    const size_type n = size();
    for (size_type at = 0; at < n; at += place::chunk_elements) {
      place::fetch_ahead(this->slot(), place::chunk_of(at));
      const read_pin<T[]> c(chunk_slot(place::chunk_of(at)));
      f(std::span<const T>(c->data(), std::min<size_type>(n - at, c->size())));
    }
  }
  /// Calls f(std::span<T>) for every chunk in order; all of them become dirty. Otherwise as for_each_chunk.
  template <class F>
  void for_each_chunk_write(F&& f) const {
    const size_type n = size();
    for (size_type at = 0; at < n; at += place::chunk_elements) {
      place::fetch_ahead(this->slot(), place::chunk_of(at));
      const write_pin<T[]> c(chunk_slot(place::chunk_of(at)));
      f(std::span<T>(c->data(), std::min<size_type>(n - at, c->size())));
    }
  }
  /// Calls f(const T&) for every element in order; as for_each_chunk.
  template <class F>
  void for_each(F&& f) const {
    for_each_chunk([&](std::span<const T> c) {
      for (const T& e : c) f(e);
    });
  }
  /// Calls f(T&) for every element in order; all of them become dirty.
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
    const auto& h = *detail::object_at<header>(this->slot(), detail::section_kind::fresh);
    if (c * place::chunk_elements >= h.capacity) place::throw_range(c * place::chunk_elements, h.size);
    return place::slot_of(h, c);
  }
  bool try_push(const argument& v) const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot(), detail::section_kind::fresh);
    if (h->size >= h->capacity) return false;
    auto* c = detail::object_to_write<typename place::chunk>(place::slot_of(*h, place::chunk_of(h->size)));
    element::store((*c)[place::within(h->size)], v);
    ++h->size;
    return true;
  }
};

}  // namespace fm
