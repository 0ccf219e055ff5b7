// fm::channel: object graphs from heap to heap, in the objects' own layout (Naos, section 3). `tx.send(p)`
// makes everything that is reachable from `p` appear in another process's heap; `rx.recv<T>()` gives a root of it.
//
//   fm::channel_listener l(heap, "tcp://0.0.0.0:7000");   fm::channel tx = fm::channel::connect(heap, url);
//   fm::channel rx = l.accept();                          tx.send(list);
//   fm::ptr<node> list = rx.recv<node>();
//
// A channel goes both ways. The ends agree on types by name. The types of a graph are all that fm::ref reaches from the
// given type. The receiver's may have other fields: those that are new get their default values, and a graph of which
// something would be lost is refused. fm::vector, fm::hash_map, fm::hash_set, fm::map, fm::set and fm::string travel as
// what is in them, and fm::one_of as the object that it is. The receiver checks every word, and the graph is in its heap
// only when it is complete.
#pragma once

#include <farmem/channel/operation.h>
#include <farmem/channel/options.h>
#include <farmem/detail/graph/schema.h>
#include <farmem/heap/heap.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fm {

class channel_listener;

namespace detail {

class channel_core;  // src/channel/core.h

/// The untyped part of a channel.
class channel_base {
 public:
  channel_base() noexcept;
  explicit channel_base(std::unique_ptr<channel_core> core) noexcept;
  channel_base(channel_base&& o) noexcept;
  channel_base& operator=(channel_base&& o) noexcept;
  ~channel_base();

  void send(slot_t root, const graph_schema& schema, const send_options& o);
  void send_each(std::span<const slot_t> roots, const graph_schema& schema, const send_options& o);
  ptr<char[]> recv(const graph_schema& schema, const recv_options& o);
  std::vector<ptr<char[]>> recv_each(const graph_schema& schema, const recv_options& o);
  std::shared_ptr<transfer> send_async(slot_t root, const graph_schema& schema, const send_options& o);
  std::shared_ptr<transfer> recv_async(const graph_schema& schema, const recv_options& o);
  bool next_is(const graph_schema& schema, duration within);
  bool readable(duration within);
  void flush(duration within);
  void close() noexcept;
  [[nodiscard]] channel_stats stats() const;
  [[nodiscard]] std::string peer() const;
  [[nodiscard]] bool open() const noexcept { return core_ != nullptr; }

 private:
  [[nodiscard]] channel_core& core() const;
  std::unique_ptr<channel_core> core_;
};

}  // namespace detail

/// One end of a connection between two heaps. Movable. One thread may send while another receives; several senders, or
/// several receivers, take turns. The heap must outlive its channels. No thread may change a graph while it is sent, as
/// in plain C++. If one does, the send fails or the receiver gets a mixture, but both heaps stay sound. While a call
/// waits, an open scope or expression holds nobody up. In a scope that has shown more than 64 objects, sending and
/// receiving throw scope_misuse.
class channel {
 public:
  /// A channel that is not connected.
  channel() noexcept = default;

  /// Connects `h` to a listener at a URL: `local:NAME` (in this process), `shm://PATH`, `tcp://HOST:PORT`,
  /// `verbs://HOST:PORT`. Gives up when the peer has answered nothing for channel_options::connect_within. Throws
  /// fm::error unreachable, refused, timed_out, version_mismatch, unsupported or invalid_argument, and names the URL.
  static channel connect(heap& h, std::string_view url, const channel_options& options = {});

  /// As connect, without exceptions.
  [[nodiscard]] static result<channel> try_connect(heap& h, std::string_view url, const channel_options& options = {}) {
    return attempt([&] { return connect(h, url, options); });
  }

  /// Makes a channel of a connected stream socket that the program has: TCP or Unix, such as one end of a TLS tunnel, or
  /// what a service manager handed over. The process at the other end adopts its socket, too. Takes `fd` over: closes it
  /// with the channel, and also when this throws. Both ends introduce themselves, within channel_options::connect_within.
  /// All that is sent goes over this socket, with the deadlines, limits and checks of other channels. Throws fm::error
  /// invalid_argument (no connected stream socket, or an option out of its bounds), timed_out, disconnected, bad_frame or
  /// version_mismatch (the other end is no farmem channel, or of another version), out_of_memory.
  static channel adopt(heap& h, int fd, const channel_options& options = {});

  /// As adopt, without exceptions. `fd` is closed if there is an error.
  [[nodiscard]] static result<channel> try_adopt(heap& h, int fd, const channel_options& options = {}) {
    return attempt([&] { return adopt(h, fd, options); });
  }

  /// Sends all objects that are reachable from `root`. Fetches remote objects, many at once. The collector and the
  /// evictor run meanwhile, and the graph may be larger than the cache. Blocks as send_options::until requires, at most
  /// send_options::within. O(objects + references). Naos, section 3. Throws fm::error:
  /// - null_handle: `root` is null
  /// - too_large: the graph exceeds send_options::objects_max or bytes_max, or the limits of the receiver
  /// - layout_mismatch: the receiver has types of these names that these cannot become, and the message shows both layouts;
  /// or the keys of an fm::map or fm::set have another order there
  /// - timed_out: the receiver does not read, or not fast enough
  /// - disconnected: the other end is gone
  /// - cancelled: the channel was closed, or a function of the receiver's program threw
  /// - cache_full, agent_lost and others: of this heap, or reported by the receiver for its heap
  ///
  /// An exception of a function of the program, such as a Compare, passes through; the receiver gets cancelled. The channel
  /// can be used after an error, except after disconnected, bad_frame and its close.
  template <class T>
  void send(const ptr<T>& root, const send_options& o = {}) {
    base_.send(root.slot(), schema<T>(), o);
  }
  /// Sends what a field refers to: `tx.send(p->next)`. As the other send.
  template <class T>
  void send(const ref<T>& root, const send_options& o = {}) {
    send(ptr<T>(root), o);
  }

  /// As send, without exceptions.
  template <class T>
  [[nodiscard]] result<void> try_send(const ptr<T>& root, const send_options& o = {}) {
    return attempt([&] { send(root, o); });
  }

  /// Sends the objects that the references of an array refer to, without the array (the iterable send of Naos). The
  /// receiver gets one root for each. Objects that two of them share are sent once. Null references stay null. Throws
  /// as send.
  template <class T>
  void send_each(const ptr<ref<T>[]>& roots, const send_options& o = {}) {
    base_.send_each(slots_in(roots), schema<T>(), o);
  }
  /// Sends the graphs of several roots. As the other send_each.
  template <class T>
  void send_each(std::span<const ptr<T>> roots, const send_options& o = {}) {
    std::vector<detail::slot_t> slots;
    slots.reserve(roots.size());
    for (const ptr<T>& p : roots) slots.push_back(p.slot());
    base_.send_each(slots, schema<T>(), o);
  }

  /// Receives the next graph, whose root is a T, and returns the root. Blocks, at most recv_options::within. O(objects
  /// + references). Throws fm::error:
  /// - timed_out: no graph came, or not all of it; a graph that has begun to arrive is refused
  /// - layout_mismatch: the graph's root has another type, or the sender's types cannot become those of here: a field that
  /// only the sender has would be lost, or a field has another type, or the keys of an fm::map or fm::set do not ascend by
  /// its Compare; the graph is refused
  /// - too_large: the graph exceeds channel_options::objects_max or bytes_max, or has an object too large for this heap
  /// - bad_frame: the bytes are not a graph of these types; the channel cannot be used any more
  /// - disconnected: the other end is gone, perhaps in the middle of the graph
  /// - cancelled and others: as the sender reports, which gave the graph up
  /// - cache_full, agent_lost and others: of this heap
  ///
  /// An exception of a function of the program, such as a Compare, passes through. The sender learns of all errors. A graph
  /// that fails leaves only garbage in this heap.
  template <class T>
  ptr<T> recv(const recv_options& o = {}) {
    return ptr<T>::from_slot(base_.recv(schema<T>(), o).slot());
  }
  /// As recv, without exceptions.
  template <class T>
  [[nodiscard]] result<ptr<T>> try_recv(const recv_options& o = {}) {
    return attempt([&] { return recv<T>(o); });
  }
  /// Receives a graph that send_each sent, and returns its roots in order. As recv.
  template <class T>
  std::vector<ptr<T>> recv_each(const recv_options& o = {}) {
    const std::vector<ptr<char[]>> roots = base_.recv_each(schema<T>(), o);
    std::vector<ptr<T>> out;
    out.reserve(roots.size());
    for (const auto& r : roots) out.push_back(ptr<T>::from_slot(r.slot()));
    return out;
  }

  /// Starts a send on a thread of the channel: `auto s = tx.send_async(p); ... s.wait();`, or `co_await
  /// tx.send_async(p)` in a task. Sends of one channel keep their order. The operation roots the graph, which must not
  /// change until it is over. O(1). Throws null_handle, and timed_out if 64 other operations are not over in time. The
  /// other errors of send are thrown by its wait.
  template <class T>
  channel_operation<void> send_async(const ptr<T>& root, const send_options& o = {}) {
    return channel_operation<void>(base_.send_async(root.slot(), schema<T>(), o));
  }
  /// Starts a receive on a thread of the channel: `fm::ptr<T> p = co_await rx.recv_async<T>()`. As send_async. O(1).
  template <class T>
  channel_operation<ptr<T>> recv_async(const recv_options& o = {}) {
    return channel_operation<ptr<T>>(base_.recv_async(schema<T>(), o));
  }

  /// Whether recv<T> would take the types of the next graph. Waits for a graph to begin, at most `within`; false at the
  /// deadline. If the sender has other types, asks for them, once for each type of root, and waits for one second at
  /// least. The graph stays to be received. Throws disconnected, cancelled.
  template <class T>
  bool next_is(duration within = {}) {
    return base_.next_is(schema<T>(), within);
  }
  /// Whether a graph has begun to arrive. Waits, at most `within`. Throws disconnected, cancelled.
  bool readable(duration within = {}) { return base_.readable(within); }

  /// Waits until all graphs are accepted that were sent, or whose send_async was begun, before; at most `within`. Throws
  /// the first refusal that no send has thrown yet, timed_out or disconnected. A send_async that fails by itself says so
  /// to its own handle alone.
  void flush(duration within = std::chrono::seconds(30)) { base_.flush(within); }
  /// As flush, without exceptions.
  [[nodiscard]] result<void> try_flush(duration within = std::chrono::seconds(30)) {
    return attempt([&] { flush(within); });
  }
  /// Closes the channel: waits at most channel_options::linger for sent graphs to be accepted, then tells the other
  /// end. Idempotent. The destructor calls it.
  void close() noexcept { base_.close(); }

  /// Counters since the channel was opened. Thread-safe. O(1).
  [[nodiscard]] channel_stats stats() const { return base_.stats(); }
  /// Name of the other end, for logs: such as "tcp 127.0.0.1:5123", or the URL.
  [[nodiscard]] std::string peer() const { return base_.peer(); }
  /// Whether the channel was connected and is not moved from.
  explicit operator bool() const noexcept { return base_.open(); }

 private:
  friend class channel_listener;
  explicit channel(detail::channel_base base) noexcept : base_(std::move(base)) {}

  /// Of objects that a handle to a T, or to a const T, names.
  template <class T>
  static const detail::graph_schema& schema() {
    return detail::schema_of<std::remove_const_t<T>>();
  }

  template <class T>
  static std::vector<detail::slot_t> slots_in(const ptr<ref<T>[]>& roots) {
    const read_pin<ref<T>[]> pin = roots.read();
    std::vector<detail::slot_t> slots;
    slots.reserve(pin->size());
    for (const ref<T>& r : *pin) slots.push_back(r.slot());
    return slots;
  }
  detail::channel_base base_;
};

/// Listens on a URL and makes a channel for each process that connects. Movable. Channels outlive their listener.
class channel_listener {
 public:
  /// Listens at `url` for the heap `h`, which must outlive the listener. Throws fm::error invalid_argument,
  /// unreachable, access_denied, unknown_scheme or unsupported, and names the URL.
  channel_listener(heap& h, std::string_view url, const channel_options& options = {});
  /// As the constructor, without exceptions.
  [[nodiscard]] static result<channel_listener> open(heap& h, std::string_view url,
                                                     const channel_options& options = {}) {
    return attempt([&] { return channel_listener(h, url, options); });
  }
  /// Takes over the listener; the other one is empty afterwards.
  channel_listener(channel_listener&&) noexcept;
  /// Takes over the listener; the other one is empty afterwards.
  channel_listener& operator=(channel_listener&&) noexcept;
  /// Closes the listener.
  ~channel_listener();

  /// The URL that it listens at, with the actual port.
  [[nodiscard]] const std::string& url() const noexcept;
  /// The channel of the next process that connects. Waits, at most `within`. Throws timed_out, and cancelled after
  /// close(). Thread-safe.
  channel accept(duration within = std::chrono::seconds(30));
  /// As accept, without exceptions.
  [[nodiscard]] result<channel> try_accept(duration within = std::chrono::seconds(30)) {
    return attempt([&] { return accept(within); });
  }
  /// Accepts no more connections. Idempotent.
  void close() noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace fm
