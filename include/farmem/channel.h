// fm::channel: object graphs from heap to heap, without serialising them (Naos; the paper's section 3). `tx.send(p)` makes
// everything that is reachable from `p` appear in another process's heap; `rx.recv<T>()` gives a root to it.
//
//   fm::channel_listener l(heap, "tcp://0.0.0.0:7000");      fm::channel tx = fm::channel::connect(heap, "tcp://10.0.0.2:7000");
//   fm::channel rx = l.accept();                             tx.send(list);
//   fm::ptr<node> list = rx.recv<node>();
//
// A channel goes both ways. The ends agree on types by name and layout: the graph's types are all those that can be reached
// by fm::ref from the type given, and both programs must have the same of them. What is received is checked word by word, and is
// in the heap only when the graph is complete.
#pragma once

#include <farmem/channel_operation.h>
#include <farmem/channel_options.h>
#include <farmem/detail/graph_schema.h>
#include <farmem/heap.h>
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

/// One end of a connection between two heaps. Movable. One thread may send while another receives; two that send, or two that
/// receive, take turns. The heap outlives its channels. Nothing may change a graph while it is sent, as in plain C++; what happens
/// then is an error or a mixture, and sound at both ends. Not inside a scope.
class channel {
 public:
  /// An end of nothing.
  channel() noexcept = default;

  /// Connects `h` to whoever listens at a URL: `local:NAME` (in this process), `shm://PATH`, `tcp://HOST:PORT`,
  /// `verbs://HOST:PORT`. Throws fm::error: unreachable, refused, timed_out, version_mismatch, unsupported, invalid_argument,
  /// each naming the URL.
  static channel connect(heap& h, std::string_view url, const channel_options& options = {});

  /// Sends all that is reachable from `root`. Objects that are away are fetched, many at once; the collector and the evictor run
  /// meanwhile, and the graph may be larger than the cache. Blocks until what `o.until` says, o.within at most. Throws fm::error:
  ///   null_handle      for a null root
  ///   too_large        over o.objects_max or o.bytes_max, or over what the receiver takes
  ///   layout_mismatch  the receiver has other types of these names; both layouts are in the message
  ///   timed_out        the receiver does not read, or not fast enough
  ///   disconnected     the other end is gone; cancelled after close()
  ///   cache_full, agent_lost, ... of this heap, or as the receiver says of its own
  /// The channel can be used after an error, except after disconnected, cancelled and bad_frame. O(objects + references).
  template <class T>
  void send(const ptr<T>& root, const send_options& o = {}) {
    base_.send(root.slot(), detail::schema_of<T>(), o);
  }

  /// Sends what the references of an array refer to, without the array (Naos's iterable send): for the receiver they are so
  /// many roots. What two of them share is sent once. Null ones stay null. Errors as send's.
  template <class T>
  void send_each(const ptr<ref<T>[]>& roots, const send_options& o = {}) {
    base_.send_each(slots_in(roots), detail::schema_of<T>(), o);
  }
  /// The same for roots that are in no array.
  template <class T>
  void send_each(std::span<const ptr<T>> roots, const send_options& o = {}) {
    std::vector<detail::slot_t> slots;
    slots.reserve(roots.size());
    for (const ptr<T>& p : roots) slots.push_back(p.slot());
    base_.send_each(slots, detail::schema_of<T>(), o);
  }

  /// The next graph, whose root is a T. Throws fm::error:
  ///   timed_out        nothing has come, or not all of it; what has begun is refused
  ///   layout_mismatch  what has come is something else, or the sender has other types; it is refused
  ///   too_large        over channel_options::objects_max or bytes_max, or with an object too large for this heap
  ///   bad_frame        what has come is not a graph of these types; the channel is of no use any more
  ///   disconnected     the other end is gone, perhaps half way
  ///   cancelled, ...   as the sender says, which gave the graph up
  ///   cache_full, agent_lost, ... of this heap
  /// The sender is told of all of them; of a graph that fails, nothing is left but garbage. O(objects + references).
  template <class T>
  ptr<T> recv(const recv_options& o = {}) {
    return ptr<T>::from_slot(base_.recv(detail::schema_of<T>(), o).slot());
  }
  /// The roots of the next graph, which came from send_each. Errors as recv's.
  template <class T>
  std::vector<ptr<T>> recv_each(const recv_options& o = {}) {
    const std::vector<ptr<char[]>> roots = base_.recv_each(detail::schema_of<T>(), o);
    std::vector<ptr<T>> out;
    out.reserve(roots.size());
    for (const auto& r : roots) out.push_back(ptr<T>::from_slot(r.slot()));
    return out;
  }

  /// A send that goes on by itself, on a thread of the channel's own: `auto s = tx.send_async(p); ... s.wait();`, or
  /// `co_await tx.send_async(p)` in a task. Those of one channel go in their order. It roots the graph, which is not to be changed
  /// until it is over. Throws null_handle, and timed_out when 64 others are not over in time; what else send throws, its wait
  /// does. O(1).
  template <class T>
  channel_operation<void> send_async(const ptr<T>& root, const send_options& o = {}) {
    return channel_operation<void>(base_.send_async(root.slot(), detail::schema_of<T>(), o));
  }
  /// A receive that goes on by itself: `fm::ptr<T> p = co_await rx.recv_async<T>()`. As send_async. O(1).
  template <class T>
  channel_operation<ptr<T>> recv_async(const recv_options& o = {}) {
    return channel_operation<ptr<T>>(base_.recv_async(detail::schema_of<T>(), o));
  }

  /// Whether the next graph's root is a T with the same types as here; waits for it, false at the deadline. Leaves it where it
  /// is. Throws disconnected, cancelled.
  template <class T>
  bool next_is(duration within = {}) {
    return base_.next_is(detail::schema_of<T>(), within);
  }
  /// Whether a graph has begun to come. As next_is.
  bool readable(duration within = {}) { return base_.readable(within); }

  /// Waits until all that was sent is accepted; throws the first refusal that no send has thrown yet, timed_out, disconnected.
  void flush(duration within = std::chrono::seconds(30)) { base_.flush(within); }
  /// Ends the channel: waits channel_options::linger at most for what was sent, then tells the other end. Idempotent. The
  /// destructor does it.
  void close() noexcept { base_.close(); }

  [[nodiscard]] channel_stats stats() const { return base_.stats(); }
  /// The other end, for logs: "tcp 127.0.0.1:5123", or the URL.
  [[nodiscard]] std::string peer() const { return base_.peer(); }
  /// Whether this is an end of anything.
  explicit operator bool() const noexcept { return base_.open(); }

 private:
  friend class channel_listener;
  explicit channel(detail::channel_base base) noexcept : base_(std::move(base)) {}

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

/// Listens on a URL and makes a channel of everyone who connects. Movable. Channels live on when their listener is gone.
class channel_listener {
 public:
  /// Throws fm::error naming the URL: invalid_argument, unreachable, access_denied, unknown_scheme, unsupported.
  channel_listener(heap& h, std::string_view url, const channel_options& options = {});
  channel_listener(channel_listener&&) noexcept;
  channel_listener& operator=(channel_listener&&) noexcept;
  ~channel_listener();

  /// The address with the port really used.
  [[nodiscard]] const std::string& url() const noexcept;
  /// The next one that has connected. Throws timed_out; cancelled after close(). Thread-safe.
  channel accept(duration within = std::chrono::seconds(30));
  /// Lets nobody in from here on. Idempotent.
  void close() noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace fm
