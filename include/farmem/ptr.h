// fm::ptr, fm::ref, fm::weak and the pins: how application code holds and reaches managed objects.
//
//   ptr<T>        a root: keeps an object alive; lives anywhere (stack, static, std::vector); 8 bytes
//   ref<T>        a reference in a field of a managed object; 8 bytes, a slot; not copyable out of managed memory
//   weak<T>       names an object without keeping it alive
//   p->x          reads in place until the full expression ends
//   p.read()      a pin for reading: the object stays in place while the pin lives
//   p.write()     a pin for writing, the only way to change an object
//   p.get(s)      a raw pointer, valid until the scope s closes
//   co_await p.fetch()   a pin for reading, in a coroutine: others run while it is fetched (handles/await.h)
//
// Handles may be used by several threads like a raw pointer may: one handle is not to be assigned by two threads at once;
// the objects behind them synchronise as plain C++ objects do, except fm::ref, whose loads and stores are atomic.
#pragma once

#include <farmem/array.h>
#include <farmem/detail/barrier.h>
#include <farmem/detail/roots.h>
#include <farmem/detail/weak_cell.h>
#include <farmem/scope.h>
#include <utility>

namespace fm {

template <class T>
class ptr;
template <class T>
class fetch_operation;

namespace detail {

/// Reads in place until the full expression ends: a section that closes with the temporary.
template <class T>
class arrow {
 public:
  explicit arrow(slot_t slot)
      : object_(reinterpret_cast<const object_t<T>*>(read_barrier(slot, section_kind::fresh))) {}
  /// Of a field: looked at inside of the section, which nothing can die in.
  explicit arrow(const std::atomic<std::uint64_t>& field)
      : object_(reinterpret_cast<const object_t<T>*>(
            read_barrier(field.load(std::memory_order_acquire), section_kind::fresh))) {}
  arrow(const arrow&) = delete;
  arrow& operator=(const arrow&) = delete;
  const object_t<T>* operator->() const&& noexcept { return object_; }

 private:
  user_section section_;
  const object_t<T>* object_;
};

struct handle_access;

}  // namespace detail

/// Keeps one object in place for reading. Movable, also to another thread. A long-lived pin holds its cache segment: it
/// does not hold up epochs, so it is the right thing where a scope would be open for long. Made by fm::ptr::read.
template <class T>
class read_pin {
 public:
  using object = detail::object_t<T>;

  explicit read_pin(detail::slot_t slot) {
    const detail::user_section in_section;
    payload_ = const_cast<char*>(detail::read_barrier(slot, detail::section_kind::fresh));
    detail::pin_frame(payload_);
  }
  read_pin(read_pin&& o) noexcept : payload_(std::exchange(o.payload_, nullptr)) {}
  read_pin& operator=(read_pin&& o) noexcept {
    std::swap(payload_, o.payload_);
    return *this;
  }
  ~read_pin() {
    if (payload_) detail::unpin_frame(payload_);
  }

  const object* operator->() const noexcept { return get(); }
  const object& operator*() const& noexcept { return *get(); }
  /// A reference into a pin that dies at the end of the expression would dangle: name the pin first.
  const object& operator*() const&& = delete;
  [[nodiscard]] const object* get() const noexcept { return reinterpret_cast<const object*>(payload_); }

  /// Takes a pin over that was taken for it; for awaits.
  static read_pin adopt(char* pinned_payload) noexcept {
    read_pin p;
    p.payload_ = pinned_payload;
    return p;
  }

 private:
  read_pin() noexcept = default;
  char* payload_ = nullptr;
};

/// Keeps one object in place for writing; the object is dirty while it lives. Movable, also to another thread. Two threads
/// that write the same fields need a lock, as in plain C++. Made by fm::ptr::write.
template <class T>
class write_pin {
 public:
  using object = detail::object_t<T>;

  explicit write_pin(detail::slot_t slot) {
    const detail::user_section in_section;
    payload_ = detail::write_barrier(slot, detail::section_kind::fresh);
    detail::pin_frame(payload_);
  }
  write_pin(write_pin&& o) noexcept : payload_(std::exchange(o.payload_, nullptr)) {}
  write_pin& operator=(write_pin&& o) noexcept {
    std::swap(payload_, o.payload_);
    return *this;
  }
  ~write_pin() {
    // Pinned frames are never copied out, so the frame is still dirty here and nothing needs to be marked again.
    if (payload_) detail::unpin_frame(payload_);
  }

  object* operator->() const noexcept { return get(); }
  object& operator*() const& noexcept { return *get(); }
  object& operator*() const&& = delete;
  [[nodiscard]] object* get() const noexcept { return reinterpret_cast<object*>(payload_); }

 private:
  char* payload_ = nullptr;
};

/// A reference in a field of a managed object: the slot of the object that it refers to, or null. Assigning goes through
/// the write barrier (an atomic exchange; Mako, section 5.2). Not copyable: reading one gives an fm::ptr or, in a scope,
/// a raw pointer.
template <class T>
class ref {
 public:
  constexpr ref() noexcept = default;
  constexpr ref(std::nullptr_t) noexcept {}
  ref(const ptr<T>& p) noexcept : slot_(p.slot()) {}
  ref(const ref&) = delete;
  ref& operator=(const ref&) = delete;

  ref& operator=(const ptr<T>& p) noexcept {
    store(p.slot());
    return *this;
  }
  ref& operator=(std::nullptr_t) noexcept {
    store(0);
    return *this;
  }
  /// A root to the same object. O(1), as are all conversions, comparisons and stores; none of them fetches.
  operator ptr<T>() const { return root(); }
  /// The same as a handle of a container.
  template <class Handle>
  requires std::is_base_of_v<ptr<T>, Handle>
  operator Handle() const { return Handle(root()); }
  /// The same by name, where a conversion would not be seen.
  [[nodiscard]] ptr<T> root() const {
    // In one section: what is loaded is rooted before a cycle can begin or end.
    const detail::section in_section;
    return ptr<T>::from_slot(slot());
  }

  /// Reads the object in place until the full expression ends. Throws as fm::ptr's.
  detail::arrow<T> operator->() const { return detail::arrow<T>(slot_); }
  /// A raw pointer valid until the scope closes; null for a null reference. O(1) when resident. Throws as fm::ptr's ->.
  auto get(const scope& in) const -> const detail::object_t<T>* {
    const detail::slot_t s = slot();
    return s == 0 ? nullptr : reinterpret_cast<const detail::object_t<T>*>(detail::read_barrier(s, in.use()));
  }
  /// A pin for writing. Throws as fm::ptr's ->.
  [[nodiscard]] write_pin<T> write() const { return root().write(); }
  /// As fm::ptr's fetch, through a pin: `auto n = co_await p.fetch(); auto m = co_await n->next.fetch();`. The object named
  /// now is awaited, whatever the field is set to meanwhile.
  fetch_operation<T> fetch() const;

  /// Replaces `expected` by `desired`, atomically; false when it held something else.
  bool compare_exchange(const ptr<T>& expected, const ptr<T>& desired) noexcept {
    const detail::section in_section;
    std::uint64_t e = expected.slot();
    if (!slot_.compare_exchange_strong(e, desired.slot(), std::memory_order_acq_rel)) return false;
    if (detail::is_marking()) detail::log_overwritten(e);
    return true;
  }
  /// Stores `desired` and gives what was there.
  ptr<T> exchange(const ptr<T>& desired) {
    const detail::section in_section;
    return ptr<T>::from_slot(store(desired.slot()));
  }

  explicit operator bool() const noexcept { return slot() != 0; }
  friend bool operator==(const ref& a, std::nullptr_t) noexcept { return !a; }
  friend bool operator==(const ref& a, const ref& b) noexcept { return a.slot() == b.slot(); }
  friend bool operator==(const ref& a, const ptr<T>& b) noexcept { return a.slot() == b.slot(); }

  /// The object's number in its heap; 0 for null. For logs and hash tables by identity.
  [[nodiscard]] detail::slot_t slot() const noexcept { return slot_.load(std::memory_order_acquire); }

 private:
  detail::slot_t store(detail::slot_t s) noexcept {
    const detail::section in_section;
    const std::uint64_t old = slot_.exchange(s, std::memory_order_acq_rel);
    if (detail::is_marking()) detail::log_overwritten(old);
    return old;
  }
  std::atomic<std::uint64_t> slot_{0};
};

/// A root: keeps an object alive and reaches it from application code. Copying makes another root, moving does not. When its
/// heap closes it becomes null.
template <class T>
class ptr {
 public:
  constexpr ptr() noexcept = default;
  constexpr ptr(std::nullptr_t) noexcept {}
  ptr(const ptr& o) : cell_(o.cell_ ? detail::roots::make(o.slot()) : nullptr) {}
  ptr(ptr&& o) noexcept : cell_(std::exchange(o.cell_, nullptr)) {}
  ~ptr() {
    if (cell_) detail::roots::drop(cell_);
  }
  ptr& operator=(const ptr& o) {
    if (this == &o) return *this;
    if (cell_)
      detail::roots::set(cell_, o.slot());
    else if (o.cell_)
      cell_ = detail::roots::make(o.slot());
    return *this;
  }
  ptr& operator=(ptr&& o) noexcept {
    std::swap(cell_, o.cell_);
    return *this;
  }

  /// Reads the object in place until the full expression ends. Throws fm::error: null_handle, heap_closed, agent_lost,
  /// timed_out, cache_full. O(1) when resident, one fetch otherwise.
  detail::arrow<T> operator->() const { return detail::arrow<T>(slot()); }
  /// A pin for reading. Throws as operator->.
  [[nodiscard]] read_pin<T> read() const { return read_pin<T>(slot()); }
  /// A pin for writing. Throws as operator->.
  [[nodiscard]] write_pin<T> write() const { return write_pin<T>(slot()); }
  /// `auto n = co_await p.fetch();` gives a read_pin<T>, the object here and in place: a pin because it may be kept across the
  /// next co_await and moved to another thread, where a raw pointer or a scope may not; and with the pin held, p->x and
  /// p.write() do not miss. In tasks of fm::run and fm::run_all the thread runs other tasks meanwhile, and goes on on
  /// the same thread; anywhere else it fetches in place, as read(). Roots the object until it is over; destroying the
  /// suspended coroutine gives it up. Throws as operator->, within access_within (or memory_within, cache_full) of its
  /// heap, and scope_misuse inside of an open scope, cursor or walk, or in an expression with a ->, before anything is
  /// fetched. O(1) when resident.
  fetch_operation<T> fetch() const;
  /// A raw pointer valid until the scope closes; null for a null handle. Throws as operator->, except null_handle.
  auto get(const scope& in) const -> const detail::object_t<T>* {
    const detail::slot_t s = slot();
    return s == 0 ? nullptr : reinterpret_cast<const detail::object_t<T>*>(detail::read_barrier(s, in.use()));
  }
  /// The same for writing: the object is dirty until the scope closes, and written back some time after. Throws as operator->.
  auto get_for_write(const scope& in) const -> detail::object_t<T>* {
    return reinterpret_cast<detail::object_t<T>*>(detail::write_barrier(slot(), in.use()));
  }

  explicit operator bool() const noexcept { return slot() != 0; }
  /// Whether both name the same object. O(1), nothing is fetched.
  friend bool operator==(const ptr& a, const ptr& b) noexcept { return a.slot() == b.slot(); }
  friend bool operator==(const ptr& a, std::nullptr_t) noexcept { return a.slot() == 0; }
  /// Makes the handle null and gives the root up. O(1).
  void reset() noexcept { *this = ptr(); }

  /// The object's number in the process; 0 for null. For logs and hash tables by identity.
  [[nodiscard]] detail::slot_t slot() const noexcept { return cell_ ? detail::roots::get(cell_) : 0; }
  /// A root for a slot that is known to hold a T; for containers and cursors.
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
  detail::root_cell* cell_ = nullptr;
};

/// Names an object without keeping it alive. lock() gives a root, or null when the object is gone or its heap is closed. A
/// weak handle becomes null when a cycle finds that its object is dead. Handles are used by several threads as fm::ptr's are.
template <class T>
class weak {
 public:
  constexpr weak() noexcept = default;
  constexpr weak(std::nullptr_t) noexcept {}
  weak(const ptr<T>& p) : cell_(p ? detail::roots::make_weak(p.slot()) : nullptr) {}
  weak(const weak& o) : cell_(o.cell_ ? detail::copy_weak(*o.cell_) : nullptr) {}
  weak(weak&& o) noexcept : cell_(std::exchange(o.cell_, nullptr)) {}
  ~weak() {
    if (cell_) detail::roots::drop(cell_);
  }
  weak& operator=(weak o) noexcept {
    std::swap(cell_, o.cell_);
    return *this;
  }
  /// A root, or null. O(1), nothing is fetched. Thread-safe.
  [[nodiscard]] ptr<T> lock() const {
    const detail::section in_section;
    return cell_ ? ptr<T>::from_slot(detail::lock_weak(*cell_)) : ptr<T>();
  }
  void reset() noexcept { *this = weak(); }

 private:
  detail::root_cell* cell_ = nullptr;
};

}  // namespace fm
