// fm::ptr, fm::ref and fm::weak: how application code holds and reaches managed objects.
//
//   ptr<T>        a root: keeps an object alive; lives anywhere (stack, static, std::vector); 8 bytes
//   ptr<const T>  the same, and does not change the object
//   ref<T>        a reference in a field of a managed object; 8 bytes, a slot; not copyable out of managed memory
//   weak<T>       names an object without keeping it alive; lives anywhere, also in a managed object
//   p->x          reads in place until the full expression ends
//   p.read()      a pin for reading: the object stays in place while the pin lives
//   p.read(&T::x) the same, shows one member: a range if the member is one
//   p.write()     a pin for writing, the only way to change an object
//   p.get(s)      a raw pointer, valid until the scope s closes
//   co_await p.fetch()   a pin for reading, in a coroutine: other tasks run while the object is fetched
//
// Threads may share handles as they may share raw pointers: two threads must not assign one handle at the same time.
// The objects behind handles synchronise as plain C++ objects do, except fm::ref, whose loads and stores are atomic.
#pragma once

#include <compare>
#include <concepts>
#include <farmem/detail/barriers/barrier.h>
#include <farmem/detail/barriers/roots.h>
#include <farmem/detail/barriers/weak_cell.h>
#include <farmem/fwd.h>
#include <farmem/handles/pin.h>
#include <farmem/handles/scope.h>
#include <farmem/object/array.h>
#include <functional>
#include <utility>

namespace fm {

namespace detail {

/// Whether every object of type From is one of what a handle to a To names.
template <class From, class To>
inline constexpr bool covers = false;
template <class From>
inline constexpr bool covers<From, object> = true;
template <class From, class... Ts>
inline constexpr bool covers<From, one_of<Ts...>> = (std::same_as<From, Ts> || ...);
template <class... From, class... Ts>
inline constexpr bool covers<one_of<From...>, one_of<Ts...>> = (covers<From, one_of<Ts...>> && ...);

/// Whether a handle to a From becomes one to a To by itself: for reading alone, or to a type that covers it.
template <class From, class To>
inline constexpr bool handle_converts =
    !std::same_as<From, To> && (std::is_const_v<To> || !std::is_const_v<From>)&&(
                                   std::same_as<std::remove_const_t<From>, std::remove_const_t<To>> ||
                                   covers<std::remove_const_t<From>, std::remove_const_t<To>>);

/// Reads in place until the full expression ends: a section that closes with the temporary.
template <class T>
class arrow {
 public:
  explicit arrow(slot_t slot) { section_.hand_out(read_barrier_unnoted(slot)); }
  /// Of a field: looked at inside of the section, which nothing can die in.
  explicit arrow(const std::atomic<std::uint64_t>& field) {
    section_.hand_out(read_barrier_unnoted(field.load(std::memory_order_acquire)));
  }
  arrow(const arrow&) = delete;
  arrow& operator=(const arrow&) = delete;
  const object_t<T>* operator->() const&& noexcept FM_LIFETIMEBOUND {
    return reinterpret_cast<const object_t<T>*>(section_.payload());
  }

 private:
  arrow_section section_;
};

struct handle_access;
template <class E>
struct element;  // container.h

/// What an element of an array is outside of it.
template <class E>
struct array_value {
  using type = E;
  static type of(const E& e) { return e; }
};
template <class U>
struct array_value<ref<U>> {
  using type = ptr<U>;
  static type of(const ref<U>& e) { return e.root(); }
};

}  // namespace detail

/// A reference in a field of a managed object: the slot of the object that it refers to, or null. Assigning goes
/// through the write barrier, an atomic exchange (Mako, sections 5.1 and 5.2). Not copyable: reading one gives an fm::ptr or, in
/// a scope, a raw pointer. Conversions, comparisons and stores are O(1), thread-safe, and never fetch.
template <class T>
class ref {
 public:
  /// A null reference.
  constexpr ref() noexcept = default;
  /// A null reference.
  constexpr ref(std::nullptr_t) noexcept {}
  /// A reference to the object of `p`, in an object that is being made.
  ref(const ptr<T>& p) noexcept : slot_(p.slot()) {}
  /// The same of a handle to a type that T covers.
  template <class U>
  requires detail::handle_converts<U, T> ref(const ptr<U>& p)
  noexcept : slot_(p.slot()) {}
  ref(const ref&) = delete;
  ref& operator=(const ref&) = delete;

  /// Refers to the object of `p` from now on. O(1).
  ref& operator=(const ptr<T>& p) noexcept {
    store(p.slot());
    return *this;
  }
  /// The same of a handle to a type that T covers.
  template <class U>
  requires detail::handle_converts<U, T> ref& operator=(const ptr<U>& p) noexcept {
    store(p.slot());
    return *this;
  }
  /// Becomes null. O(1).
  ref& operator=(std::nullptr_t) noexcept {
    store(0);
    return *this;
  }
  /// A root of the same object. O(1), fetches nothing.
  operator ptr<T>() const { return root(); }
  /// The same, for reading alone.
  operator ptr<const T>() const { return root(); }
  /// A root of the same object as a container's handle, such as fm::vector. O(1), fetches nothing.
  template <class Handle>
  requires std::is_base_of_v<ptr<T>, Handle>
  operator Handle() const { return Handle(root()); }
  /// A root of the same object, for places where C++ applies no conversion. O(1), fetches nothing.
  [[nodiscard]] ptr<T> root() const {
    check_rooted();
    // In one section: what is loaded is rooted before a cycle can begin or end.
    const detail::section in_section;
    return ptr<T>::from_slot(slot());
  }

  /// Reads the object in place until the full expression ends. Throws as fm::ptr's ->.
  detail::arrow<T> operator->() const {
    check_rooted();
    return detail::arrow<T>(slot_);
  }
  /// A raw pointer, valid until the scope closes; null for a null reference. O(1) when resident, one fetch otherwise.
  /// Throws as fm::ptr's ->.
  auto get(const scope& in FM_LIFETIMEBOUND) const -> const detail::object_t<T>* {
    in.check_thread();
    check_rooted();
    const detail::slot_t s = slot();
    return s == 0 ? nullptr : reinterpret_cast<const detail::object_t<T>*>(detail::read_barrier(s));
  }
  /// Deleted: a pointer into a temporary scope would dangle. Name the scope first.
  auto get(const scope&&) const -> const detail::object_t<T>* = delete;
  /// A pin for reading. Throws as fm::ptr's ->.
  [[nodiscard]] read_pin<T> read() const { return root().read(); }
  /// A pin for reading that shows one member, as fm::ptr's. Throws as fm::ptr's ->.
  template <class M, class C>
  requires std::is_object_v<M>
  [[nodiscard]] member_pin<T, M> read(M C::*member) const { return {read(), member}; }
  /// A pin for writing. Throws as fm::ptr's ->.
  [[nodiscard]] write_pin<T> write() const { return root().write(); }
  /// As fm::ptr::fetch: `auto n = co_await p.fetch(); auto m = co_await n->next.fetch();`. Awaits the object that the
  /// field refers to at the call, even if the field changes meanwhile.
  fetch_operation<T> fetch() const;

  /// Replaces `expected` by `desired`, atomically. Returns false, and changes nothing, if it held something else. O(1).
  bool compare_exchange(const ptr<T>& expected, const ptr<T>& desired) noexcept {
    const detail::section in_section;
    std::uint64_t e = expected.slot();
    if (!slot_.compare_exchange_strong(e, desired.slot(), std::memory_order_acq_rel)) return false;
    if (detail::is_marking()) detail::log_overwritten(e);
    return true;
  }
  /// Stores `desired` and returns a root of the object that it referred to before, atomically. O(1).
  ptr<T> exchange(const ptr<T>& desired) {
    const detail::section in_section;
    return ptr<T>::from_slot(store(desired.slot()));
  }

  /// Whether it is not null.
  explicit operator bool() const noexcept { return slot() != 0; }
  /// Whether it is null.
  friend bool operator==(const ref& a, std::nullptr_t) noexcept { return !a; }
  /// Whether both refer to the same object, or both are null.
  friend bool operator==(const ref& a, const ref& b) noexcept { return a.slot() == b.slot(); }
  /// Whether both refer to the same object, or both are null.
  friend bool operator==(const ref& a, const ptr<T>& b) noexcept { return a.slot() == b.slot(); }
  /// Whether both refer to the same object, or both are null.
  friend bool operator==(const ref& a, const ptr<const T>& b) noexcept { return a.slot() == b.slot(); }

  /// The object's number in the process; 0 for null. For logs and for hash tables by identity.
  [[nodiscard]] detail::slot_t slot() const noexcept { return slot_.load(std::memory_order_acquire); }

 private:
  /// In checked builds: what it refers to is alive for as long as the object around it is, and no longer.
  void check_rooted() const noexcept {
    FM_ASSERT(detail::is_managed(this),
              "an fm::ref is read that is in no managed object, so it keeps nothing alive: hold an fm::ptr");
  }
  template <class E>
  friend struct detail::element;
  detail::slot_t store(detail::slot_t s) noexcept {
    const detail::section in_section;
    const std::uint64_t old = slot_.exchange(s, std::memory_order_acq_rel);
    if (detail::is_marking()) detail::log_overwritten(old);
    return old;
  }
  std::atomic<std::uint64_t> slot_{0};
};

/// A root: keeps an object alive and reaches it from application code. Copying makes another root; moving does not.
/// When the heap closes, its roots become null. A ptr<const T> names a T that it does not change; a ptr<T> converts to it.
template <class T>
class ptr {
  using value = std::remove_const_t<T>;

 public:
  /// A null handle.
  constexpr ptr() noexcept = default;
  /// A null handle.
  constexpr ptr(std::nullptr_t) noexcept {}
  /// Another root of the same object. O(1).
  ptr(const ptr& o) : cell_(o.cell_ ? detail::roots::make(o.slot()) : nullptr) {}
  /// Takes over the root of `o`, which is null afterwards. O(1).
  ptr(ptr&& o) noexcept : cell_(std::exchange(o.cell_, nullptr)) {}
  /// Another root of the same object: for reading alone, or as a type that covers it. O(1).
  template <class U>
  requires detail::handle_converts<U, T> ptr(const ptr<U>& o)
      : cell_(o.cell_ ? detail::roots::make(o.slot()) : nullptr) {}
  /// Takes over the root of `o`, which is null afterwards: for reading alone, or as a type that covers it. O(1).
  template <class U>
  requires detail::handle_converts<U, T> ptr(ptr<U>&& o)
  noexcept : cell_(std::exchange(o.cell_, nullptr)) {}
  /// Gives the root up. O(1).
  ~ptr() {
    if (cell_) detail::roots::drop(cell_);
  }
  /// Names the object of `o` from now on. O(1).
  ptr& operator=(const ptr& o) {
    if (this == &o) return *this;
    if (cell_)
      detail::roots::set(cell_, o.slot());
    else if (o.cell_)
      cell_ = detail::roots::make(o.slot());
    return *this;
  }
  /// Gives this root up and takes over that of `o`, which is null afterwards. O(1).
  ptr& operator=(ptr&& o) noexcept {
    detail::root_cell* const mine = std::exchange(cell_, std::exchange(o.cell_, nullptr));
    if (mine) detail::roots::drop(mine);
    return *this;
  }

  /// Reads the object in place until the full expression ends. Throws fm::error: null_handle, heap_closed, agent_lost,
  /// timed_out, cache_full. O(1) when resident, one fetch otherwise.
  detail::arrow<value> operator->() const { return detail::arrow<value>(slot()); }
  /// Element `i` of an array, as a value: a copy, or a root of what a reference names. Throws as operator->, and
  /// out_of_range. O(1) when resident. In loops, a pin costs less: `for (int x : *pin)`.
  template <class A = value>
  requires std::is_unbounded_array_v<A>
  [[nodiscard]] const typename detail::array_value<std::remove_extent_t<A>>::type operator[](std::size_t i) const {
    const detail::user_section in_section;
    const auto* const a = reinterpret_cast<const detail::object_t<value>*>(detail::read_barrier(slot()));
    return detail::array_value<std::remove_extent_t<A>>::of(a->at(i));
  }
  /// A pin for reading. Throws as operator->.
  [[nodiscard]] read_pin<value> read() const { return read_pin<value>(slot()); }
  /// A pin for reading that shows one member: `for (int x : p.read(&node::items))`. Throws as operator->.
  template <class M, class C>
  requires std::is_object_v<M>
  [[nodiscard]] member_pin<value, M> read(M C::*member) const { return {read(), member}; }
  /// A pin for writing. Throws as operator->.
  [[nodiscard]] write_pin<value> write() const {
    check_writable();
    return write_pin<value>(slot());
  }
  /// For coroutines: `auto n = co_await p.fetch();` gives a read_pin, with the object resident. A pin, unlike a raw
  /// pointer or a scope, may be kept across the next co_await and moved to another thread. While it lives, p->x and
  /// p.write() do not miss.
  ///
  /// In tasks of fm::run and fm::run_all, the thread runs other tasks while the object is fetched. Elsewhere, the await
  /// fetches in place, as read() does. The operation roots the object until it is over. Destroying the suspended
  /// coroutine abandons it.
  ///
  /// Throws as operator->, within heap_options::access_within (for memory: memory_within). Throws scope_misuse, before
  /// anything is fetched, if a scope, a cursor or a walk is open, or if the expression has a ->. O(1) when resident.
  fetch_operation<value> fetch() const;
  /// A raw pointer, valid until the scope closes; null for a null handle. Throws as operator->, except null_handle.
  /// O(1) when resident, one fetch otherwise.
  auto get(const scope& in FM_LIFETIMEBOUND) const -> const detail::object_t<value>* {
    in.check_thread();
    const detail::slot_t s = slot();
    return s == 0 ? nullptr : reinterpret_cast<const detail::object_t<value>*>(detail::read_barrier(s));
  }
  /// Deleted: a pointer into a temporary scope would dangle. Name the scope first.
  auto get(const scope&&) const -> const detail::object_t<value>* = delete;
  /// A raw pointer for writing, valid until the scope closes. The object is dirty until then and is written back some
  /// time after. Throws as operator->.
  auto get_for_write(const scope& in FM_LIFETIMEBOUND) const -> detail::object_t<value>* {
    check_writable();
    in.check_thread();
    return reinterpret_cast<detail::object_t<value>*>(detail::write_barrier(slot()));
  }
  /// Deleted: a pointer into a temporary scope would dangle. Name the scope first.
  auto get_for_write(const scope&&) const -> detail::object_t<value>* = delete;

  /// Whether it is not null.
  explicit operator bool() const noexcept { return slot() != 0; }
  /// Whether both name the same object, or both are null. O(1), fetches nothing.
  friend bool operator==(const ptr& a, const ptr& b) noexcept { return a.slot() == b.slot(); }
  /// The same of a handle that converts to this one.
  template <class U>
  requires detail::handle_converts<U, T>
  friend bool operator==(const ptr& a, const ptr<U>& b) noexcept { return a.slot() == b.slot(); }
  /// Whether it is null.
  friend bool operator==(const ptr& a, std::nullptr_t) noexcept { return a.slot() == 0; }
  /// An order of the objects, for ordered containers: the same while they live, and no other meaning. O(1).
  friend std::strong_ordering operator<=>(const ptr& a, const ptr& b) noexcept { return a.slot() <=> b.slot(); }
  /// Makes the handle null and gives the root up. O(1).
  void reset() noexcept { *this = ptr(); }

  /// The object's number in the process; 0 for null. For logs and for hash tables by identity.
  [[nodiscard]] detail::slot_t slot() const noexcept { return cell_ ? detail::roots::get(cell_) : 0; }
  /// A root of the object of a slot, which the caller knows to be a T. For containers and cursors.
  static ptr from_slot(detail::slot_t s) {
    ptr p;
    if (s != 0) p.cell_ = detail::roots::make(s);
    return p;
  }
  /// Makes this root name another object without a new cell; for cursors.
  void move_to_slot(detail::slot_t s) {
    if (cell_)
      detail::roots::set(cell_, s);
    else if (s != 0)
      cell_ = detail::roots::make(s);
  }

 private:
  static constexpr void check_writable() noexcept {
    static_assert(!std::is_const_v<T>, "an fm::ptr<const T> is read-only: hold an fm::ptr<T> to write");
  }

  template <class>
  friend class ptr;
  detail::root_cell* cell_ = nullptr;
};

/// Names an object without keeping it alive. lock() gives a root, or null if the object is gone or its heap is closed.
/// A weak handle lives anywhere, and may be a field of a managed object: it is 8 bytes, trivially copyable, and means
/// nothing outside of its process. It never names another object than the one that it was made for.
///
/// Handles are read and written as plain values: two threads synchronise as for an int. lock() of a handle that nobody
/// writes meanwhile is thread-safe. An object that was ever named needs 8 bytes of the process until it dies, and 4 for
/// each of the 1,024 slots around its own.
template <class T>
class weak {
 public:
  /// A null handle.
  constexpr weak() noexcept = default;
  /// A null handle.
  constexpr weak(std::nullptr_t) noexcept {}
  /// Names the object of `p`. O(1); takes a lock if no weak handle has named the object before. Throws out_of_memory.
  weak(const ptr<T>& p) : name_(p ? detail::name_weakly(p.slot()) : 0) {}
  /// The same of a handle to a type that T covers.
  template <class U>
  requires detail::handle_converts<U, T> weak(const ptr<U>& p) : name_(p ? detail::name_weakly(p.slot()) : 0) {}
  /// Names what a field refers to. As above.
  weak(const ref<T>& r) : weak(r.root()) {}
  /// A root of the object, or null if the object is gone. O(1), fetches nothing, takes no lock.
  [[nodiscard]] ptr<T> lock() const {
    const detail::section in_section;
    return name_ != 0 ? ptr<T>::from_slot(detail::lock_weak(name_)) : ptr<T>();
  }
  /// Becomes null. O(1).
  void reset() noexcept { name_ = 0; }
  /// Whether both were made for the same object, alive or not, or both are null. O(1), fetches nothing.
  friend bool operator==(const weak&, const weak&) noexcept = default;

 private:
  detail::weak_name name_ = 0;
};

}  // namespace fm

/// Hash of a handle, by the object that it names: for unordered containers of the standard library. O(1), fetches nothing.
template <class T>
struct std::hash<fm::ptr<T>> {
  std::size_t operator()(const fm::ptr<T>& p) const noexcept { return std::hash<std::uint64_t>()(p.slot()); }
};
