// fm::queue<T>: a managed first-in first-out queue that may be larger than local memory: a list of blocks. A block
// between the ends is touched only when it gets to the front, so a long queue needs local memory for two blocks.
// Emptied blocks become garbage.
//
// Invariants: the queue is empty if it has no blocks, or one whose begin equals its end; only the last block has room.
// The last of several blocks may be empty, and none of the others is.
// Code that reads or changes blocks holds the queue's mutex, one of the process's.
#pragma once

#include <algorithm>
#include <array>
#include <farmem/detail/container.h>
#include <farmem/detail/shard_lock.h>
#include <optional>

namespace fm {
namespace detail {

/// Elements begin .. end of `items`, about 1 KiB.
template <class E>
struct queue_block {
  static constexpr std::size_t elements = std::max<std::size_t>(1, 1000 / sizeof(E));
  ref<queue_block> next;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::array<E, elements> items{};
};

/// The object behind a queue: only the queue's own members reach what is in it.
template <class E>
class queue_header {
  friend class fm::queue<E>;
  friend struct managed_traits<queue_header>;

  std::uint64_t size = 0;
  ref<queue_block<E>> front;
  ref<queue_block<E>> back;
};

}  // namespace detail

/// The fields of a queue's header, for reflection.
template <class E>
struct managed_traits<detail::queue_header<E>> {
  /// All of them, in order.
  static auto fields(auto& self) { return std::tie(self.size, self.front, self.back); }
};

/// A handle to a managed first-in first-out queue. Copies of the handle name the same queue. T as for fm::vector.
///
/// Threads: any number of threads may call all members at once. They take turns, and elements that one thread pushed
/// come out in its order. No member waits for an element. Members wait for a lock; scopes are left meanwhile.
/// A call from within a function given to fm::hash_map::update throws scope_misuse.
///
/// Errors: all members throw as fm::ptr's ->, and push as fm::heap::make. The queue is unchanged then.
template <class T>
class queue : public ptr<queue<T>> {
  using base = ptr<queue<T>>;
  using header = detail::queue_header<T>;
  using block = detail::queue_block<T>;
  using element = detail::element<T>;

 public:
  using value_type = typename element::value;   ///< type that comes out
  using argument = typename element::argument;  ///< type that goes in

  /// A null handle.
  constexpr queue() noexcept = default;
  /// A null handle.
  constexpr queue(std::nullptr_t) noexcept {}
  /// Makes an empty queue. O(1). Throws as fm::heap::make.
  explicit queue(heap& h) : base(make(h)) {}
  /// Another handle to the queue of `p`. O(1).
  queue(base p) noexcept : base(std::move(p)) {}
  /// A handle to the queue that a field refers to. O(1).
  queue(const ref<queue<T>>& r) : base(r.root()) {}

  /// Number of elements; may be out of date on return while other threads push and pop. O(1).
  [[nodiscard]] std::uint64_t size() const {
    const detail::user_section in_section;
    return detail::load_shared(detail::object_at<header>(this->slot())->size);
  }
  /// Whether there are no elements. As size. O(1).
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// Appends an element. O(1).
  void push(const argument& v) const {
    const detail::shard_writing lock(this->slot(), 0);
    while (!try_push(v)) add_block();
  }
  /// A copy of the first element, which stays in the queue; const, so that no write to it is lost. Throws out_of_range
  /// if there is none. O(1).
  [[nodiscard]] const value_type front() const {
    const detail::shard_writing lock(this->slot(), 0);
    const detail::user_section in_section;
    const auto& h = *detail::object_at<header>(this->slot());
    if (h.size == 0) throw_empty();
    const block* b = detail::object_at<block>(h.front.slot());
    return element::load(b->items[b->begin]);
  }
  /// Removes the first element and returns it. Throws out_of_range if there is none. O(1).
  value_type pop() const {
    std::optional<value_type> v = try_pop();
    if (!v) throw_empty();
    return std::move(*v);
  }
  /// Removes the first element and returns it, or std::nullopt if there is none. For several consumers. O(1).
  [[nodiscard]] std::optional<value_type> try_pop() const {
    const detail::shard_writing lock(this->slot(), 0);
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (h->size == 0) return std::nullopt;
    block* b = detail::object_to_write<block>(h->front.slot());
    // All that may throw comes before all that changes. The next block may be empty, if a push made it and then threw.
    std::optional<value_type> v = element::load(b->items[b->begin]);
    const ptr<block> next = b->begin + 1 == b->end ? b->next.root() : ptr<block>();
    element::clear(b->items[b->begin]);
    ++b->begin;
    detail::store_shared(h->size, h->size - 1);
    if (next)
      h->front = next;
    else if (b->begin == b->end)
      b->begin = b->end = 0;  // the only block is used again
    return v;
  }

 private:
  static base make(heap& h) {
    detail::check_element<T>();
    return base::from_slot(detail::allocate(h.cache(), detail::descriptor_of<header>(), 0, nullptr, 0));
  }
  [[noreturn, gnu::noinline, gnu::cold]] static void throw_empty() {
    throw error(errc::out_of_range, "the front of an empty queue");
  }
  bool try_push(const argument& v) const {
    const detail::user_section in_section;
    auto* h = detail::object_to_write<header>(this->slot());
    if (!h->back) return false;
    block* b = detail::object_to_write<block>(h->back.slot());
    if (b->end == block::elements) return false;
    element::store(b->items[b->end], v);
    ++b->end;
    detail::store_shared(h->size, h->size + 1);
    return true;
  }
  void add_block() const {
    const ptr<block> added = detail::make_zero<block>(detail::cache_of(this->slot()));
    const write_pin<queue> h(this->slot());
    if (h->back)
      h->back.write()->next = added;
    else
      h->front = added;
    h->back = added;
  }
};

}  // namespace fm
