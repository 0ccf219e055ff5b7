// The common part of all containers. A container handle is a root: fm::vector<T> derives from fm::ptr<fm::vector<T>>,
// and the object behind it is the container's header, a managed struct. So fm::ref<fm::vector<T>> is a field like any
// other.
//
// Invariant owned here: the type of object behind a container's handle is decided before the handle's class is
// complete, because its base already asks. Used by the containers of the library only.
#pragma once

#include <farmem/handles/prefetch.h>
#include <farmem/handles/ptr.h>
#include <farmem/handles/scope.h>
#include <farmem/heap/heap.h>
#include <functional>
#include <type_traits>

namespace fm {

template <class T>
class vector;
class string;
template <class K, class V, class Hash = std::hash<K>, class Equal = std::equal_to<K>>
class hash_map;
template <class K, class Hash = std::hash<K>, class Equal = std::equal_to<K>>
class hash_set;
template <class K, class V, class Compare = std::less<K>>
class map;
template <class K, class Compare = std::less<K>>
class set;
template <class T>
class queue;

namespace detail {

template <class E>
class vector_header;
template <class K, class V, class Hash, class Equal>
class hash_table_header;
template <class K, class V, class Compare>
class tree_header;
enum class no_value : std::uint8_t;
template <class E>
class queue_header;

template <class E>
struct object_of<vector<E>> {
  using type = vector_header<E>;
};
template <>
struct object_of<string> {
  using type = const array_object<char>;  // the text never changes, so write() cannot change it either
};
template <class K, class V, class Hash, class Equal>
struct object_of<hash_map<K, V, Hash, Equal>> {
  using type = hash_table_header<K, V, Hash, Equal>;
};
template <class K, class Hash, class Equal>
struct object_of<hash_set<K, Hash, Equal>> {
  using type = hash_table_header<K, no_value, Hash, Equal>;
};
template <class K, class V, class Compare>
struct object_of<map<K, V, Compare>> {
  using type = tree_header<K, V, Compare>;
};
template <class K, class Compare>
struct object_of<set<K, Compare>> {
  using type = tree_header<K, no_value, Compare>;
};
template <class E>
struct object_of<queue<E>> {
  using type = queue_header<E>;
};

template <class T>
constexpr bool is_container = false;
template <class E>
inline constexpr bool is_container<vector<E>> = true;
template <>
inline constexpr bool is_container<string> = true;
template <class K, class V, class Hash, class Equal>
inline constexpr bool is_container<hash_map<K, V, Hash, Equal>> = true;
template <class K, class Hash, class Equal>
inline constexpr bool is_container<hash_set<K, Hash, Equal>> = true;
template <class K, class V, class Compare>
inline constexpr bool is_container<map<K, V, Compare>> = true;
template <class K, class Compare>
inline constexpr bool is_container<set<K, Compare>> = true;
template <class E>
inline constexpr bool is_container<queue<E>> = true;

/// The handle that reaches an object named by fm::ref<T>: the container's own where there is one.
template <class T>
using handle_to = std::conditional_t<is_container<T>, T, ptr<T>>;

/// How an element looks inside of the heap and to the program: a plain value is itself; a reference comes out as a
/// handle and goes in as any fm::ptr to its type.
template <class E>
struct element {
  using value = E;
  using argument = E;
  using copy = std::conditional_t<std::is_class_v<E>, const E, E>;  ///< what a program may look at, and not write to
  static value load(const E& e) { return e; }
  static void store(E& e, const argument& v) { e = v; }
  static void clear(E& e) { e = E{}; }
  static void move(E& to, const E& from) noexcept { to = from; }
};
template <class U>
struct element<ref<U>> {
  using value = handle_to<U>;
  using argument = ptr<U>;
  using copy = const value;
  static value load(const ref<U>& e) { return value(e.root()); }
  static void store(ref<U>& e, const argument& v) { e = v; }
  static void clear(ref<U>& e) { e = nullptr; }
  // No root in between, so that a move cannot fail. In one section no snapshot and no end of a cycle lies between load
  // and store (deletion_barrier.h).
  static void move(ref<U>& to, const ref<U>& from) noexcept {
    const section in_section;
    to.store(from.slot());
  }
  /// Stores a slot that the caller keeps alive until then.
  static void put(ref<U>& to, slot_t s) noexcept { to.store(s); }
  static void swap(ref<U>& a, ref<U>& b) noexcept {
    const section in_section;
    const slot_t s = a.slot();
    a.store(b.slot());
    b.store(s);
  }
};

/// What a container can hold by value.
template <class E>
consteval void check_element() {
  check_managed<E>();
  static_assert(is_ref<E> || (!has_refs<E> && std::is_trivially_copyable_v<E>),
                "farmem: an element is a trivially copyable value without references, or fm::ref<X>: put a struct that "
                "holds references behind fm::ref");
}

/// The heap that an object belongs to. Throws null_handle, heap_closed.
inline object_cache& cache_of(slot_t slot) {
  if (slot == 0) throw error(errc::null_handle, "a container that was never made");
  object_cache* cache = tablet_info_of(slot).heap.load(std::memory_order_acquire);
  if (!cache) throw error(errc::heap_closed, "the heap of a container");
  return *cache;
}

/// An object as it lies in the cache; inside a section.
template <class Object>
const Object* object_at(slot_t slot) {
  return reinterpret_cast<const Object*>(read_barrier(slot));
}
template <class Object>
Object* object_to_write(slot_t slot) {
  return reinterpret_cast<Object*>(write_barrier(slot));
}

/// Makes a zero object, or a zero array of `n`.
template <class T>
ptr<T> make_zero(object_cache& cache) {
  return ptr<T>::from_slot(allocate(cache, descriptor_of<object_t<T>>(), 0, nullptr, 0));
}
template <class E>
ptr<E[]> make_zero_array(object_cache& cache, std::size_t n) {
  return ptr<E[]>::from_slot(allocate(cache, array_descriptor_of<E>(), n, nullptr, 0));
}

}  // namespace detail
}  // namespace fm
