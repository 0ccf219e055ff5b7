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
#include <optional>

namespace fm::detail {

template <class E>
struct vector_header {
  using chunk_ref = ref<E[]>;
  using leaf_ref = ref<chunk_ref[]>;

  std::uint64_t size = 0;
  std::uint64_t capacity = 0;
  chunk_ref first;
  ref<leaf_ref[]> directory;
};

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
  static constexpr std::uint64_t leaf_refs = 512;  ///< chunks that one leaf of the directory names
  static constexpr std::uint64_t ahead_max = 32;   ///< chunks that a scan has fetched ahead, at the most
  static constexpr std::uint64_t ahead_step = 16;  ///< it looks every so many chunks

  static constexpr std::uint64_t chunk_of(std::uint64_t i) { return i / chunk_elements; }
  static constexpr std::uint64_t within(std::uint64_t i) { return i % chunk_elements; }

  /// The slot of chunk `c`, which the header's capacity covers. In a section.
  static slot_t slot_of(const header& h, std::uint64_t c) {
    if (c == 0) return h.first.slot();
    const auto& directory = *object_at<array_object<leaf_ref>>(h.directory.slot());
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
    if (i >= h.size) throw_range(i, h.size);
    return slot_of(h, chunk_of(i));
  }

  /// For a scan that has come to chunk `c`: now and then starts fetching what comes next, so that it waits for a round
  /// trip once and not at every chunk. Looks at a few words where all is resident. Throws as reading the directory
  /// does.
  static void fetch_ahead(slot_t vector, std::uint64_t c) {
    if (c % ahead_step != 1) return;
    std::array<slot_t, ahead_max> remote;
    std::size_t n = 0;
    {
      const user_section in_section;
      const auto& h = *object_at<header>(vector);
      const std::uint64_t room = capacity_bytes(cache_of(vector)) / 8 / (chunk_elements * sizeof(E));
      const std::uint64_t end = std::min(c + 1 + std::min(ahead_max, room), chunk_of(h.size + chunk_elements - 1));
      for (std::uint64_t k = c + 1; k < end; ++k) {
        const slot_t s = slot_of(h, k);
        if (!word::is_resident(word_at(s).load(std::memory_order_relaxed))) remote[n++] = s;
      }
    }
    if (n != 0) prefetch_slots({remote.data(), n});
  }

  /// Makes the capacity at least `n`. Outside of sections; what was added stays when a later step throws.
  static void grow(slot_t vector, std::uint64_t n) {
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
    h->size = 0;
    h->first = nullptr;
    h->directory = nullptr;
    h->capacity = 0;
  }

  /// Keeps the first `n` elements, at least one and not more than there are, and the chunks that they are in. If it
  /// throws, nothing has changed: all that changes is pinned before the first change. O(leaves of the directory).
  static void cut(slot_t vector, std::uint64_t n) {
    const write_pin<fm::vector<E>> h(vector);
    const std::uint64_t last = chunk_of(n - 1), kept = last + 1;
    const write_pin<E[]> c(chunk_slot(vector, last));
    std::optional<write_pin<leaf_ref[]>> directory;
    std::optional<write_pin<chunk_ref[]>> leaf;
    if (h->capacity > kept * chunk_elements) {
      directory.emplace(h->directory.slot());
      if (kept % leaf_refs != 0) leaf.emplace((**directory)[kept / leaf_refs].slot());
    }

    if (h->size != n) h->size = n;  // readers of a hash table load it meanwhile
    for (std::uint64_t i = within(n - 1) + 1; i < c->size(); ++i) element<E>::clear((*c)[i]);
    if (!directory) return;
    h->capacity = kept * chunk_elements;
    if (leaf)
      for (std::uint64_t i = kept % leaf_refs; i < leaf_refs; ++i) (**leaf)[i] = nullptr;
    for (std::uint64_t i = (kept + leaf_refs - 1) / leaf_refs; i < (*directory)->size(); ++i)
      (**directory)[i] = nullptr;
  }

 private:
  static slot_t chunk_slot(slot_t vector, std::uint64_t c) {
    const user_section in_section;
    return slot_of(*object_at<header>(vector), c);
  }

  static std::uint64_t capacity_of(slot_t vector) {
    const user_section in_section;
    return object_at<header>(vector)->capacity;
  }

  static void grow_first(object_cache& cache, slot_t vector, std::uint64_t n) {
    const std::uint64_t length =
        n >= chunk_elements ? chunk_elements : std::min(chunk_elements, std::max(first_elements, std::bit_ceil(n)));
    const ptr<E[]> grown = make_zero_array<E>(cache, length);
    const write_pin<fm::vector<E>> h(vector);
    if (h->size != 0) {
      const write_pin<E[]> to(grown.slot());
      const read_pin<E[]> from(h->first.slot());
      for (std::uint64_t i = 0; i < h->size; ++i) element<E>::move((*to)[i], (*from)[i]);
    }
    h->first = grown;
    h->capacity = length;
  }

  static void add_chunk(object_cache& cache, slot_t vector, std::uint64_t c) {
    const ptr<E[]> added = make_zero_array<E>(cache, chunk_elements);
    const write_pin<fm::vector<E>> h(vector);
    const std::uint64_t at = c / leaf_refs;
    std::uint64_t leaves = 0;
    if (h->directory) leaves = (*read_pin<leaf_ref[]>(h->directory.slot()).get()).size();
    if (at >= leaves) {
      const ptr<leaf_ref[]> grown = make_zero_array<leaf_ref>(cache, std::max<std::uint64_t>(2, leaves * 2));
      if (leaves != 0) {
        const write_pin<leaf_ref[]> to(grown.slot());
        const read_pin<leaf_ref[]> from(h->directory.slot());
        for (std::uint64_t i = 0; i < leaves; ++i) element<leaf_ref>::move((*to)[i], (*from)[i]);
      }
      h->directory = grown;
    }
    const write_pin<leaf_ref[]> directory(h->directory.slot());
    if (!(*directory)[at]) (*directory)[at] = make_zero_array<chunk_ref>(cache, leaf_refs);
    const write_pin<chunk_ref[]> leaf((*directory)[at].slot());
    (*leaf)[c % leaf_refs] = added;
    h->capacity = (c + 1) * chunk_elements;
  }
};

}  // namespace fm::detail
