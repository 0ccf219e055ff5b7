// Where a vector's elements are: a header, and chunks of a fixed number of elements. Chunk 0 hangs in the header and
// doubles until it is full-sized, so a vector of three elements costs two small objects. The others hang in a directory
// of two levels, so growing copies one small directory at most.
//
//   header  size | capacity | first -> chunk 0 | directory -> [leaf] -> [chunk 1 ...]
//
// Invariants owned here: capacity is the length of chunk 0 while that is below chunk_elements, and a multiple of
// chunk_elements afterwards; elements at and beyond size are zero. Used by fm::vector and its iterators only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <farmem/detail/container.h>
#include <limits>
#include <optional>

namespace fm {
namespace detail {

template <class E>
struct chunks;
template <class E>
struct elements;  // vector/elements.h

template <class C>
struct graph_container;  // graph/containers.h

/// The object behind a vector. Programs may ask it for its size in place, through a field that refers to the vector;
/// only the vector's own members change it.
template <class E>
class vector_header {
 public:
  using chunk_ref = ref<E[]>;
  using leaf_ref = ref<chunk_ref[]>;

  /// Number of elements. O(1).
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Whether there are no elements. O(1).
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Number of elements that there is room for. O(1).
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  friend struct chunks<E>;
  friend struct elements<E>;
  friend class fm::vector<E>;
  template <class>
  friend struct graph_container;
  friend struct managed_traits<vector_header>;

  std::uint64_t size_ = 0;
  std::uint64_t capacity_ = 0;
  chunk_ref first_;
  ref<leaf_ref[]> directory_;
};

}  // namespace detail

/// The fields of a vector's header, for reflection.
template <class E>
struct managed_traits<detail::vector_header<E>> {
  /// All of them, in order.
  static auto fields(auto& self) { return std::tie(self.size_, self.capacity_, self.first_, self.directory_); }
};

namespace detail {

template <class E>
struct chunks {
  using header = vector_header<E>;
  using chunk = array_object<E>;
  using chunk_ref = typename header::chunk_ref;
  using leaf_ref = typename header::leaf_ref;

  static constexpr std::uint64_t chunk_bytes = 8192;
  static constexpr std::uint64_t chunk_elements = std::max<std::uint64_t>(1, std::bit_floor(chunk_bytes / sizeof(E)));
  static constexpr std::uint64_t first_elements =
      std::min(chunk_elements, std::max<std::uint64_t>(2, std::bit_floor(32 / std::min<std::uint64_t>(32, sizeof(E)))));
  /// Iterators must be able to count them.
  static constexpr std::uint64_t elements_max = std::numeric_limits<std::ptrdiff_t>::max();
  static constexpr std::uint64_t leaf_refs = 512;  ///< chunks that one leaf of the directory names
  static constexpr std::uint64_t ahead_max = 32;   ///< chunks that a scan has fetched ahead, at the most
  static constexpr std::uint64_t ahead_step = 16;  ///< it looks every so many chunks

  static constexpr std::uint64_t chunk_of(std::uint64_t i) { return i / chunk_elements; }
  static constexpr std::uint64_t within(std::uint64_t i) { return i % chunk_elements; }

  /// The slot of chunk `c`, which the header's capacity covers. In a section.
  static slot_t slot_of(const header& h, std::uint64_t c) {
    if (c == 0) return h.first_.slot();
    const auto& directory = *object_at<array_object<leaf_ref>>(h.directory_.slot());
    const auto& leaf = *object_at<array_object<chunk_ref>>(directory[c / leaf_refs].slot());
    return leaf[c % leaf_refs].slot();
  }

  [[noreturn, gnu::noinline, gnu::cold]] static void throw_range(std::uint64_t i, std::uint64_t size) {
    throw error(errc::out_of_range, "index " + std::to_string(i) + " of a vector of " + std::to_string(size));
  }

  /// The header and the slot of the chunk that holds element `i`; throws out_of_range. In a section without other
  /// pointers.
  static slot_t locate(slot_t vector, std::uint64_t i) {
    const auto& h = *object_at<header>(vector);
    if (i >= h.size_) throw_range(i, h.size_);
    return slot_of(h, chunk_of(i));
  }

  /// For a scan that has come to chunk `c`: now and then starts fetching what comes next, so that it waits for a round
  /// trip once and not at every chunk. Looks at a few words where all is resident. Throws as reading the directory
  /// does.
  static void fetch_ahead(slot_t vector, std::uint64_t c) {
    if (c % ahead_step == 1) fetch_next(vector, c, 1);
  }
  /// The same for a scan from the end to the beginning.
  static void fetch_behind(slot_t vector, std::uint64_t c) {
    if (c % ahead_step == 1) fetch_next(vector, c, -1);
  }

  /// The size of a vector of `size` elements and `n` more. Throws too_large.
  static std::uint64_t sum(std::uint64_t size, std::uint64_t n) {
    if (n > elements_max - size)
      throw error(errc::too_large, std::to_string(n) + " more elements for a vector of " + std::to_string(size));
    return size + n;
  }

  /// Makes the capacity at least `n`. Outside of sections; what was added stays when a later step throws.
  static void grow(slot_t vector, std::uint64_t n) {
    if (n > elements_max) throw error(errc::too_large, "a vector of " + std::to_string(n) + " elements");
    object_cache& cache = cache_of(vector);
    for (;;) {
      const std::uint64_t capacity = capacity_of(vector);
      if (capacity >= n) return;
      if (capacity < chunk_elements)
        grow_first(cache, vector, n);
      else
        add_chunk(cache, vector, capacity / chunk_elements);
    }
  }

  /// Drops all chunks, with the elements in them. If it throws, nothing has changed.
  static void clear(slot_t vector) {
    const write_pin<fm::vector<E>> h(vector);
    h->size_ = 0;
    h->first_ = nullptr;
    h->directory_ = nullptr;
    h->capacity_ = 0;
  }

  /// Keeps the first `n` elements, at least one and not more than there are, and the chunks that they are in. If it
  /// throws, nothing has changed: all that changes is pinned before the first change. O(leaves of the directory).
  static void cut(slot_t vector, std::uint64_t n) {
    const write_pin<fm::vector<E>> h(vector);
    const std::uint64_t last = chunk_of(n - 1), kept = last + 1;
    const write_pin<E[]> c(chunk_slot(vector, last));
    std::optional<write_pin<leaf_ref[]>> directory;
    std::optional<write_pin<chunk_ref[]>> leaf;
    if (h->capacity_ > kept * chunk_elements) {
      directory.emplace(h->directory_.slot());
      if (kept % leaf_refs != 0) leaf.emplace((**directory)[kept / leaf_refs].slot());
    }

    h->size_ = n;
    for (std::uint64_t i = within(n - 1) + 1; i < c->size(); ++i) element<E>::clear((*c)[i]);
    if (!directory) return;
    h->capacity_ = kept * chunk_elements;
    if (leaf)
      for (std::uint64_t i = kept % leaf_refs; i < leaf_refs; ++i) (**leaf)[i] = nullptr;
    for (std::uint64_t i = (kept + leaf_refs - 1) / leaf_refs; i < (*directory)->size(); ++i)
      (**directory)[i] = nullptr;
  }

  /// Exchanges all that two vectors of one heap have. If it throws, nothing has changed. O(1).
  static void swap(slot_t a, slot_t b) {
    if (&cache_of(a) != &cache_of(b))
      throw error(errc::invalid_argument, "two vectors of different heaps cannot exchange their elements");
    const write_pin<fm::vector<E>> x(a);
    const write_pin<fm::vector<E>> y(b);
    std::swap(x->size_, y->size_);
    std::swap(x->capacity_, y->capacity_);
    element<chunk_ref>::swap(x->first_, y->first_);
    element<ref<leaf_ref[]>>::swap(x->directory_, y->directory_);
  }

 private:
  static void fetch_next(slot_t vector, std::uint64_t c, std::int64_t step) {
    std::array<slot_t, ahead_max> remote;
    std::size_t n = 0;
    {
      const user_section in_section;
      const auto& h = *object_at<header>(vector);
      const std::uint64_t room = capacity_bytes(cache_of(vector)) / 8 / (chunk_elements * sizeof(E));
      const std::uint64_t end = chunk_of(h.size_ + chunk_elements - 1);
      const std::uint64_t left = c >= end ? 0 : step < 0 ? c : end - c - 1;
      for (std::uint64_t k = std::min({ahead_max, room, left}); k > 0; --k) {
        c += static_cast<std::uint64_t>(step);
        const slot_t s = slot_of(h, c);
        if (!word::is_resident(word_at(s).load(std::memory_order_relaxed))) remote[n++] = s;
      }
    }
    if (n != 0) prefetch_slots({remote.data(), n});
  }

  static slot_t chunk_slot(slot_t vector, std::uint64_t c) {
    const user_section in_section;
    return slot_of(*object_at<header>(vector), c);
  }

  static std::uint64_t capacity_of(slot_t vector) {
    const user_section in_section;
    return object_at<header>(vector)->capacity_;
  }

  static void grow_first(object_cache& cache, slot_t vector, std::uint64_t n) {
    const std::uint64_t length =
        n >= chunk_elements ? chunk_elements : std::min(chunk_elements, std::max(first_elements, std::bit_ceil(n)));
    const ptr<E[]> grown = make_zero_array<E>(cache, length);
    const write_pin<fm::vector<E>> h(vector);
    if (h->size_ != 0) {
      const write_pin<E[]> to(grown.slot());
      const read_pin<E[]> from(h->first_.slot());
      for (std::uint64_t i = 0; i < h->size_; ++i) element<E>::move((*to)[i], (*from)[i]);
    }
    h->first_ = grown;
    h->capacity_ = length;
  }

  static void add_chunk(object_cache& cache, slot_t vector, std::uint64_t c) {
    const ptr<E[]> added = make_zero_array<E>(cache, chunk_elements);
    const write_pin<fm::vector<E>> h(vector);
    const std::uint64_t at = c / leaf_refs;
    std::uint64_t leaves = 0;
    if (h->directory_) leaves = (*read_pin<leaf_ref[]>(h->directory_.slot()).get()).size();
    if (at >= leaves) {
      const ptr<leaf_ref[]> grown = make_zero_array<leaf_ref>(cache, std::max<std::uint64_t>(2, leaves * 2));
      if (leaves != 0) {
        const write_pin<leaf_ref[]> to(grown.slot());
        const read_pin<leaf_ref[]> from(h->directory_.slot());
        for (std::uint64_t i = 0; i < leaves; ++i) element<leaf_ref>::move((*to)[i], (*from)[i]);
      }
      h->directory_ = grown;
    }
    const write_pin<leaf_ref[]> directory(h->directory_.slot());
    if (!(*directory)[at]) (*directory)[at] = make_zero_array<chunk_ref>(cache, leaf_refs);
    const write_pin<chunk_ref[]> leaf((*directory)[at].slot());
    (*leaf)[c % leaf_refs] = added;
    h->capacity_ = (c + 1) * chunk_elements;
  }
};

}  // namespace detail
}  // namespace fm
