// fm::heap: a typed, managed object heap larger than this machine's memory. The front door of the library: application
// code makes objects, collects and reads statistics here. The untyped heap behind it is detail::heap_core.
// Invariant: every operation on objects goes through the functions of detail/access.h, so this header names neither the
// cache nor the agents.
#pragma once

#include <concepts>
#include <cstring>
#include <farmem/detail/types/describe.h>
#include <farmem/detail/types/holds_root.h>
#include <farmem/handles/ptr.h>
#include <farmem/heap/collect.h>
#include <farmem/heap/options.h>
#include <farmem/heap/stats.h>
#include <farmem/object/object.h>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace fm {

namespace detail {
class heap_core;
}

template <class T>
struct attached_heap;

/// A managed heap of one process. Objects are made in it, are reached through fm::ptr, and live in the local cache or
/// on the agents. Thread-safe. Closing or destroying it frees all objects; handles to them become null.
///
///   fm::heap h;                                                        // an agent in this process
///   fm::heap h({.cache = 4_GiB, .agents = {"tcp://10.0.0.2:7070"}});   // or agents elsewhere
class heap {
 public:
  /// Opens the heap on its agents, and gives up when one has answered nothing for heap_options::connect_within. Throws
  /// fm::error unknown_scheme, unreachable, refused, quota_exceeded, version_mismatch, invalid_argument or
  /// out_of_memory, and names the URL or the option.
  explicit heap(const heap_options& options = {});
  /// Closes the heap. No other thread may use it.
  ~heap();
  /// Not copyable.
  heap(const heap&) = delete;
  heap& operator=(const heap&) = delete;

  /// Opens a heap as the constructor does; returns errors instead of throwing them.
  [[nodiscard]] static result<std::unique_ptr<heap>> open(const heap_options& options);

  /// Takes over a heap that another process has left by detach: `auto [h, root] = fm::heap::attach<index>({.name = "index"},
  /// {.agents = {"tcp://10.0.0.2:7070"}});`. The cache is empty at first. Objects are fetched when they are used, so this
  /// takes a few messages to each agent, and none for objects.
  ///
  /// heap_options::agents names at least one agent that has the heap; the heap knows the others, by the URLs that the
  /// earlier process used. Options are this process's own, but for `quota`. `replicas` should be the same as before, and
  /// `cache` four times the largest object. Types need the same layouts. Numbers of slots and types belong to a process, so
  /// attach before other heaps are opened, and before channels and pools are used.
  ///
  /// Throws not_found (no such heap, or its time is over), access_denied (another secret), conflict (another process has
  /// it: the text names that one), stale (an agent has an older state), wrong_type (the root is no T), layout_mismatch,
  /// slots_exhausted, agent_lost (a tablet has no agent left), and as the constructor. The heap stays as it was then, and
  /// can be attached again; with attach_options::lost, only if backups have not taken over yet. O(tablets + types).
  template <class T>
  [[nodiscard]] static attached_heap<T> attach(const attach_options& which, const heap_options& options);
  /// As attach, without exceptions: the heap and its root, or the error.
  template <class T>
  [[nodiscard]] static result<attached_heap<T>> try_attach(const attach_options& which, const heap_options& options);

  /// Makes a T, an aggregate of managed fields: `h.make<node>(1)`. O(1), but waits up to heap_options::memory_within
  /// for memory. Throws fm::error cache_full, too_large, agent_lost, agent_full, quota_exceeded or slots_exhausted.
  template <class T, class... A>
  ptr<T> make(A&&... a) {
    const T init{std::forward<A>(a)...};
    return place<T>(init);
  }
  /// Makes a T with designated initialisers: `h.make<node>({.value = 1, .next = a})`. As the other make.
  template <class T>
  ptr<T> make(T&& init) {
    return place<T>(init);
  }

  /// As make, without exceptions: a handle, or the error.
  template <class T>
  [[nodiscard]] result<ptr<T>> try_make(T&& init) {
    return attempt([&] { return make<T>(std::forward<T>(init)); });
  }
  /// The same of its fields in order; of its default values without arguments.
  template <class T, class... A>
  [[nodiscard]] result<ptr<T>> try_make(A&&... a) {
    return attempt([&] { return make<T>(std::forward<A>(a)...); });
  }

  /// Makes a T of its default values and lets `fill(T&)` change it in place, where references keep alive what they refer
  /// to: `h.make_with<node>([&](node& n) { n.left = h.make<node>(); })`. Returns when `fill` has; if it throws, the object
  /// is garbage. Throws as make, and what `fill` throws.
  template <class T, std::invocable<T&> F>
  ptr<T> make_with(F&& fill) {
    ptr<T> made = make<T>();
    {
      const write_pin<T> in_place = made.write();
      std::invoke(std::forward<F>(fill), *in_place);
    }
    return made;
  }

  /// Makes an array of `n` zero elements: numbers are 0, references null. At most object_bytes_max(); for more, use
  /// fm::vector. O(n). Throws as make.
  template <class E>
  ptr<E[]> array(std::size_t n) {
    return ptr<E[]>::from_slot(detail::allocate(*cache_, detail::array_descriptor_of<E>(), n, nullptr, 0));
  }
  /// Makes an array with a copy of `values`, whose type holds no references. O(n). Throws as make.
  template <class E, std::size_t N>
  requires managed_plain<std::remove_const_t<E>>
  auto array(std::span<E, N> values) {
    using element = std::remove_const_t<E>;
    return ptr<element[]>::from_slot(detail::allocate(*cache_, detail::array_descriptor_of<element>(), values.size(),
                                                      values.data(), values.size_bytes()));
  }

  /// As array, without exceptions: a handle, or the error.
  template <class E>
  [[nodiscard]] result<ptr<E[]>> try_array(std::size_t n) {
    return attempt([&] { return array<E>(n); });
  }
  /// As array, without exceptions: a handle, or the error.
  template <class E, std::size_t N>
  requires managed_plain<std::remove_const_t<E>>
  [[nodiscard]] auto try_array(std::span<E, N> values) {
    return attempt([&] { return array(values); });
  }

  /// Copies text into the heap: `h.str("…")` is an fm::string. Needs the header of fm::string. O(length). Throws as
  /// make.
  template <class S = string>
  S str(std::string_view text) {
    return S(*this, text);
  }
  /// As str, without exceptions: the string, or the error.
  template <class S = string>
  [[nodiscard]] result<S> try_str(std::string_view text) {
    return attempt([&] { return str<S>(text); });
  }

  /// Runs a collection now, beside the program, and reports what it did. `why` is for the log. Collections also start
  /// by themselves (heap_options::collect). Mako, section 5.
  ///
  /// If the report is ok() and as many objects were freed as were dead, all objects that were unreachable at the call
  /// are gone. An object that is being written back or fetched when its turn comes takes another cycle; up to four
  /// cycles run. If the report is not ok(), its status and failure tell why, such as agent_lost, or timed_out with the
  /// scope that kept threads from stopping. No live object is lost then.
  ///
  /// Afterwards the agents evacuate regions: sparse ones, or all that are full. The report's parts tell of evacuation
  /// that an agent could not do or finish in time; that is no failure.
  ///
  /// Blocks until the cycle is over and its notices (on_dead) have run. If a notice calls it, it only asks for another
  /// cycle. Thread-safe. In a scope that has shown more than 64 objects, throws scope_misuse.
  cycle_report collect(std::string_view why = "asked for", evacuate what = evacuate::sparse);

  /// Runs a collection of young objects now. An object is young if it was never written back and no object that was
  /// written back refers to it. No agent takes part. Such collections also start by themselves
  /// (heap_options::collect_young).
  ///
  /// If the report is ok(), all objects that were young and unreachable at the call are gone, except those that were
  /// written back meanwhile. Otherwise as collect. O(roots + frames that differ from their home copies).
  cycle_report collect_young(std::string_view why = "asked for");

  /// Asks for a collection and does not wait for it. It takes heap_options::collect_share of a core, while collect()
  /// takes all that it can use. stats().last_cycle has its report. Thread-safe, also inside a scope. O(1).
  void collect_soon(std::string_view why = "asked for");

  /// Calls `notice()` once, after a collection has found the object of `p` dead. Notices run one after the other, on a thread
  /// of their own, outside of scopes, and may use the heap; they must not close or detach it, or wait for another notice. The
  /// object is gone by then: the notice carries the values that it needs.
  /// There are no destructors and no resurrection. Objects that are alive when the heap closes get no notice.
  ///
  /// A notice that holds a root of the object keeps it alive, and so never runs: a lambda that captures `p` is one. The
  /// form with a state cannot capture. Thread-safe. O(1). Throws null_handle, out_of_memory.
  template <class T, std::invocable F>
  void on_dead(const ptr<T>& p, F&& notice) {
    static_assert(!detail::holds_root<std::decay_t<F>, T>(),
                  "farmem: a notice that holds a handle to its object keeps it alive, and never runs: give it the "
                  "values that it needs");
    if (!p) throw error(errc::null_handle, "on_dead of a null handle");
    watch(p.slot(), std::forward<F>(notice));
  }
  /// Calls `notice(state)` once, with the state moved into it, after a collection has found the object of `p` dead. The
  /// notice is a function, or a lambda without captures: it has the state alone, so it cannot hold a root by accident. A
  /// state that can be seen to hold a handle to a T does not compile. Otherwise as the other on_dead.
  ///
  ///   h.on_dead(p, file{fd}, [](file f) { close_file(f.descriptor); });
  template <class T, class State, class F>
  requires std::invocable < const std::decay_t<F>
  &, std::decay_t < State >> void on_dead(const ptr<T>& p, State&& state, F&& notice) {
    using kept = std::decay_t<State>;
    static_assert(std::is_empty_v<std::decay_t<F>> || std::is_pointer_v<std::decay_t<F>>,
                  "farmem: a notice with a state captures nothing: put what it needs into the state");
    static_assert(
        !detail::holds_root<kept, T>(),
        "farmem: a state that holds a handle to its object keeps it alive, and its notice never runs: give it "
        "the values that the notice needs");
    if (!p) throw error(errc::null_handle, "on_dead of a null handle");
    watch(p.slot(), [held = std::make_shared<kept>(std::forward<State>(state)),
                     notice = std::decay_t<F>(std::forward<F>(notice))] { std::invoke(notice, std::move(*held)); });
  }

  /// Counters and histograms since the heap was opened. O(threads). With detail_level::types also the objects by type:
  /// O(slots) here and on the agents, in small steps that hold nothing up. Thread-safe.
  [[nodiscard]] heap_stats stats(detail_level level = detail_level::counters);
  /// Adds an agent. New objects go there by room, sets that lack members get it, and while agents are very unevenly full
  /// it takes objects over (heap_options::rebalance). Waits for the agent, and for a collection that runs. Thread-safe,
  /// outside of long scopes. Throws invalid_argument (it is one already, or its regions are too small), and as the
  /// constructor, and scope_misuse.
  void add_agent(const std::string& url);
  /// Moves all objects away from the agent, beside the program, and closes the heap there. Returns when that is done. At the
  /// end of `within` the agent stays, with what it still has: timed_out. Throws invalid_argument if the agents that are left
  /// are fewer than replicas, or the agent is none of the heap's, unsupported of an old one, and cancelled (keep_agent). If
  /// the agent is lost meanwhile, it is as in any other loss. O(objects stored there). Thread-safe, outside of long scopes
  /// (scope_misuse). RAMCloud and Rocksteady move tablets between servers as well; here it is a new member of the set, and
  /// then one less.
  void remove_agent(const std::string& url, duration within = std::chrono::minutes(10));
  /// Calls of remove_agent that wait for that agent end with cancelled, and it stays with what it still has, unless it is a
  /// moment from being left. Without such a call, nothing happens. Throws invalid_argument if the agent is none of the
  /// heap's. Thread-safe. O(agents).
  void keep_agent(const std::string& url);
  /// Each object is to be stored on `n` agents from now on. Sets are completed, or made smaller, in the background:
  /// heap_stats::tablets_degraded, agent_change::replicated. Throws invalid_argument. Thread-safe. O(agents).
  void set_replicas(std::uint32_t n);
  /// The cache is to have `bytes`, rounded down to segments: at least 8 of them, at most heap_options::cache_max. A larger
  /// cache is there at once. For a smaller one objects are evicted first, and threads that allocate meanwhile come before
  /// it; the call returns when the memory has gone back to the system. The last call decides; an earlier one returns
  /// early. New objects are limited to a quarter of the cache. Throws invalid_argument if `bytes` is outside of the
  /// bounds, or if four of the largest object that the heap has made would not fit. Throws cache_full after `within`, with
  /// what pins and scopes hold, or agent_full or agent_lost if agents refuse what is written back: the cache then keeps
  /// the size that it has come to (heap_stats::cache_bytes). Thread-safe, outside of long scopes (scope_misuse).
  /// O(objects that leave).
  void resize_cache(std::uint64_t bytes, duration within = std::chrono::minutes(1));
  /// URLs of the agents that the heap has now. O(agents). Thread-safe.
  [[nodiscard]] std::vector<std::string> agents() const;
  /// Checks roots, words, frames, the agents' entries and their accounts against each other, between two collections.
  /// Only while no other thread uses the heap, outside of long scopes and of notices (scope_misuse). Waits for notices.
  /// O(slots).
  [[nodiscard]] verify_report verify();
  /// Writes back and evicts all objects. For tests and measurements. Segments that other threads are filling stay.
  /// Returns timed_out if an object could not leave in time, such as one that is pinned or that the caller's scope has
  /// shown; agent_full or quota_exceeded as soon as an agent takes no more, which a collection may change. In a scope
  /// that has shown more than 64 objects, throws scope_misuse. O(cache).
  errc evict_all(duration within = std::chrono::seconds(30));
  /// Writes everything home and closes the heap here, as close does, but leaves it at its agents, so that another process
  /// can attach it: what is reachable from `root` is there, and the rest is garbage. Handles become null; weak handles and
  /// notices end with the process. No other thread may use the heap.
  ///
  /// Throws null_handle, invalid_argument (a name or a secret that is too long, or `root` is of another heap), conflict
  /// (another heap has the name), unsupported (an agent in this process, or an old one), timed_out (a pin or an open scope
  /// holds an object, or `within` has passed), agent_lost, agent_full, too_large (more than about 60,000 runs of tablets
  /// with different agents), scope_misuse. The heap stays open then. O(dirty objects + tablets).
  template <class T>
  void detach(const detach_options& how, const ptr<T>& root) {
    leave(how, root.slot());
  }
  /// Frees all objects on the agents and closes the connections. Idempotent. No other thread may use the heap.
  void close() noexcept;

  /// Bytes of the largest object, header included: half of the smallest region, and at most a quarter of the cache as it
  /// is and as it was opened. O(1).
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept;

  /// The untyped heap, for containers and tests.
  detail::heap_core& core() noexcept { return *core_; }
  /// The cache of the heap, for containers and tests.
  detail::object_cache& cache() noexcept { return *cache_; }

 private:
  explicit heap(std::unique_ptr<detail::heap_core> core);
  /// `root`: what it must be, registered only when the heap's types have their numbers; null: anything.
  [[nodiscard]] static std::unique_ptr<heap> take_over(const attach_options& which, const heap_options& options,
                                                       const detail::type_descriptor& (*root)());
  [[nodiscard]] detail::slot_t stored_root() const noexcept;
  void leave(const detach_options& how, detail::slot_t root);
  template <class T>
  ptr<T> place(const T& init) {
    FM_ASSERT(detail::names_objects(*cache_, detail::descriptor_of<T>(), &init),
              "an object is made with an fm::ref that names no object of this heap: in a struct outside of the heap, a "
              "reference keeps nothing alive: hold an fm::ptr until then");
    return ptr<T>::from_slot(detail::allocate(*cache_, detail::descriptor_of<T>(), 0, &init, sizeof(T)));
  }
  void watch(detail::slot_t slot, std::function<void()> notice);

  std::unique_ptr<detail::heap_core> core_;
  detail::object_cache* cache_;  ///< core_'s, as long as core_
};

/// A heap that was attached, and its root.
template <class T>
struct attached_heap {
  std::unique_ptr<fm::heap> heap;  ///< never null
  ptr<T> root;                     ///< what the earlier process gave to detach; T is fm::object for any type
};

template <class T>
attached_heap<T> heap::attach(const attach_options& which, const heap_options& options) {
  const detail::type_descriptor& (*root)() = nullptr;
  if constexpr (!std::same_as<T, object>) root = &detail::descriptor_behind<T>;
  attached_heap<T> a{take_over(which, options, root), {}};
  a.root = ptr<T>::from_slot(a.heap->stored_root());
  return a;
}

template <class T>
result<attached_heap<T>> heap::try_attach(const attach_options& which, const heap_options& options) {
  return attempt([&] { return attach<T>(which, options); });
}

}  // namespace fm
