// Moving, copying and filling the elements of a vector, a run of one chunk at a time: the work behind fm::vector's
// insert, erase, append and assign.
//
// Invariants
//   - A step changes one chunk, and the size. What it needs is resident and dirty before it changes anything, so a step
//     is done as a whole or not at all.
//   - An element that moves is copied before its old place is overwritten, from the far end of the move on. So between
//     any two steps every element is in one place at least: an error loses none, and a collection that begins there
//     finds every reference. One that is marking finds what is overwritten in the log (deletion_barrier.h).
//   - The size grows before elements move up, and shrinks after they moved down: no element is ever beyond it.
#pragma once

#include <farmem/detail/vector/chunks.h>

namespace fm::detail {

template <class E>
struct elements {
  using place = chunks<E>;
  using header = typename place::header;
  using chunk = typename place::chunk;
  using argument = typename element<E>::argument;

  /// Copies `n` elements within memory; the two may overlap.
  static void move(E* to, const E* from, std::uint64_t n) noexcept {
    if constexpr (!is_ref<E>) {
      std::memmove(static_cast<void*>(to), from, n * sizeof(E));
    } else if (reinterpret_cast<std::uintptr_t>(to) < reinterpret_cast<std::uintptr_t>(from)) {
      for (std::uint64_t i = 0; i < n; ++i) element<E>::move(to[i], from[i]);
    } else {
      for (std::uint64_t i = n; i > 0; --i) element<E>::move(to[i - 1], from[i - 1]);
    }
  }
  static void fill(E* to, std::uint64_t n, const argument& v) noexcept {
    for (std::uint64_t i = 0; i < n; ++i) element<E>::store(to[i], v);
  }

  /// Appends the first `n` elements of `source`, which may be the vector itself. There is room for them. The size grows
  /// with every step. O(n), with one barrier for each run that lies in one chunk of both.
  static void append(slot_t vector, slot_t source, std::uint64_t n) {
    for (std::uint64_t from = 0; from < n;) {
      if (place::within(from) == 0) place::fetch_ahead(source, place::chunk_of(from));
      const user_section in_section;
      auto* h = object_to_write<header>(vector);
      const std::uint64_t run = std::min({n - from, rest(from), rest(h->size_)});
      E* to = to_write(*h, h->size_, run);
      move(to, to_read(*object_at<header>(source), from, run), run);
      h->size_ += run;
      from += run;
    }
  }
  /// The same for elements that lie in memory.
  static void append(slot_t vector, const E* from, std::uint64_t n) {
    while (n != 0) {
      const user_section in_section;
      auto* h = object_to_write<header>(vector);
      const std::uint64_t run = std::min(n, rest(h->size_));
      std::memcpy(static_cast<void*>(to_write(*h, h->size_, run)), from, run * sizeof(E));
      h->size_ += run;
      from += run;
      n -= run;
    }
  }

  /// Moves the elements from `at` on up by `n`, for which there is room. The elements at `at` are older ones or zeros
  /// then. If it throws, the vector is longer by `n`, and has every element that it had, in order.
  static void open(slot_t vector, std::uint64_t at, std::uint64_t n) {
    std::uint64_t left = 0;
    {
      const user_section in_section;
      auto* h = object_to_write<header>(vector);
      if (at > h->size_ || n > h->capacity_ - h->size_) place::throw_range(at, h->size_);
      left = h->size_ - at;
      h->size_ += n;
    }
    while (left != 0) {
      const std::uint64_t from = at + left;
      if (place::within(from) == 0) place::fetch_behind(vector, place::chunk_of(from - 1));
      const std::uint64_t run = std::min({left, place::within(from - 1) + 1, place::within(from - 1 + n) + 1});
      step(vector, from + n - run, vector, from - run, run);
      left -= run;
    }
  }
  /// Moves the elements from `at + n` up to `size` down by `n`; the last `n` are still there then. If it throws, the
  /// vector has every element that it had, in order, except some of those from `at` on.
  static void close(slot_t vector, std::uint64_t at, std::uint64_t n, std::uint64_t size) {
    copy(vector, at, vector, at + n, size - at - n);
  }

  /// Copies elements [from, from + n) of `source` over those at `to`. Within one vector, `to` is less than `from`, or
  /// the two do not overlap.
  static void copy(slot_t vector, std::uint64_t to, slot_t source, std::uint64_t from, std::uint64_t n) {
    while (n != 0) {
      if (place::within(from) == 0) place::fetch_ahead(source, place::chunk_of(from));
      const std::uint64_t run = std::min({n, rest(from), rest(to)});
      step(vector, to, source, from, run);
      from += run;
      to += run;
      n -= run;
    }
  }
  /// Stores `v` in the `n` elements at `at`.
  static void fill(slot_t vector, std::uint64_t at, std::uint64_t n, const argument& v) {
    while (n != 0) {
      const std::uint64_t run = std::min(n, rest(at));
      const user_section in_section;
      fill(to_write(*object_at<header>(vector), at, run), run, v);
      at += run;
      n -= run;
    }
  }

  /// Inserts `n` elements at `at`, where `put` stores them, if only one chunk changes and it has room. Otherwise false,
  /// and nothing has changed; nor if it throws. Throws out_of_range.
  template <class Put>
  static bool insert_in_chunk(slot_t vector, std::uint64_t at, std::uint64_t n, Put&& put) {
    const user_section in_section;
    auto* h = object_to_write<header>(vector);
    const std::uint64_t size = h->size_;
    if (at > size) place::throw_range(at, size);
    if (n > h->capacity_ - size || place::chunk_of(at) != place::chunk_of(size + n - 1)) return false;
    E* gap = to_write(*h, at, size - at + n);
    move(gap + n, gap, size - at);
    put(gap);
    h->size_ = size + n;
    return true;
  }
  /// Removes the `n` elements at `at`, if all that follow are in the same chunk. As insert_in_chunk.
  static bool erase_in_chunk(slot_t vector, std::uint64_t at, std::uint64_t n) {
    const user_section in_section;
    auto* h = object_to_write<header>(vector);
    const std::uint64_t size = h->size_;
    if (at > size || n > size - at) place::throw_range(at + n, size);
    if (place::chunk_of(at) != place::chunk_of(size - 1)) return false;
    E* gap = to_write(*h, at, size - at);
    move(gap, gap + n, size - at - n);
    for (std::uint64_t i = size - at - n; i < size - at; ++i) element<E>::clear(gap[i]);
    h->size_ = size - n;
    return true;
  }

 private:
  /// Elements from `i` to the end of its chunk.
  static std::uint64_t rest(std::uint64_t i) { return place::chunk_elements - place::within(i); }

  static void step(slot_t vector, std::uint64_t to, slot_t source, std::uint64_t from, std::uint64_t n) {
    const user_section in_section;
    E* e = to_write(*object_at<header>(vector), to, n);
    move(e, to_read(*object_at<header>(source), from, n), n);
  }
  // Checked, because a size that another thread changes against the rules must not lead outside of the chunks.
  static E* to_write(const header& h, std::uint64_t i, std::uint64_t n) {
    if (n > h.capacity_ || i > h.capacity_ - n) place::throw_range(i + n, h.size_);
    return object_to_write<chunk>(place::slot_of(h, place::chunk_of(i)))->data() + place::within(i);
  }
  static const E* to_read(const header& h, std::uint64_t i, std::uint64_t n) {
    if (n > h.capacity_ || i > h.capacity_ - n) place::throw_range(i + n, h.size_);
    return object_at<chunk>(place::slot_of(h, place::chunk_of(i)))->data() + place::within(i);
  }
};

}  // namespace fm::detail
