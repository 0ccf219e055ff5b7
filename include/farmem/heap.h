// fm::heap: a typed, managed object heap larger than this machine's memory.
#pragma once

#include <concepts>
#include <cstring>
#include <farmem/collect.h>
#include <farmem/detail/describe.h>
#include <farmem/options.h>
#include <farmem/ptr.h>
#include <farmem/stats.h>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace fm {

namespace detail {
class heap_core;
}
class string;  // containers/string.h

/// One process's managed heap. Objects are made in it, are reached through fm::ptr, and live in the local cache or on
/// the agents. Thread-safe. Closing it (destruction) frees everything; handles to its objects become null.
///
///   fm::heap h;                                                        // an agent in this process
///   fm::heap h({.cache = 4_GiB, .agents = {"tcp://10.0.0.2:7070"}});   // or agents elsewhere
class heap {
 public:
  /// Opens the heap on its agents. Throws fm::error: unknown_scheme, unreachable, refused, quota_exceeded, version_mismatch,
  /// invalid_argument, out_of_memory, each naming the URL or option.
  explicit heap(const heap_options& options = {});
  ~heap();
  heap(const heap&) = delete;
  heap& operator=(const heap&) = delete;

  /// The same without exceptions.
  static result<std::unique_ptr<heap>> open(const heap_options& options);

  /// Makes a T, an aggregate of managed fields: `h.make<node>(1)`, `h.make<node>({.value = 1, .next = a})`. O(1).
  /// Throws fm::error: cache_full, too_large, agent_lost, agent_full, quota_exceeded, slots_exhausted.
  template <class T, class... A>
  ptr<T> make(A&&... a) {
    const T init{std::forward<A>(a)...};
    return place<T>(init);
  }
  template <class T>
  ptr<T> make(T&& init) {
    return place<T>(init);
  }

  /// Makes an array of `n` zero elements (numbers 0, references null). At most half a region; larger: fm::vector.
  template <class E>
  ptr<E[]> array(std::size_t n) {
    return ptr<E[]>::from_slot(detail::allocate(*cache_, detail::array_descriptor_of<E>(), n, nullptr, 0));
  }
  /// Makes an array with a copy of `values`, which hold no references.
  template <class E>
  requires managed_plain<std::remove_const_t<E>>
  auto array(std::span<E> values) {
    using element = std::remove_const_t<E>;
    return ptr<element[]>::from_slot(detail::allocate(*cache_, detail::array_descriptor_of<element>(), values.size(),
                                                      values.data(), values.size_bytes()));
  }

  /// Copies text into the heap: `h.str("…")` is an fm::string. As the constructor of fm::string, whose header is needed here.
  template <class S = string>
  S str(std::string_view text) {
    return S(*this, text);
  }

  /// Runs a collection now, beside the program, and says what it did; `why` is for the log. Cycles start by themselves, too
  /// (heap_options::collect). What was unreachable at the call is gone afterwards, if the report is ok() and has as many freed
  /// as dead (what is being written home or fetched when its turn comes takes another cycle, up to four): what is not ok is in
  /// its status and failure (agent_lost, timed_out with the scope that kept threads from being stopped), and nothing is lost
  /// then. Blocks the caller until the cycle is over and its notices (on_dead) are given; a notice that calls it only asks for
  /// another cycle. The cycle ends with evacuation, of sparse regions or of all that are full; what agents could not do, or
  /// were not waited for, is in the report's parts, and is no failure. Thread-safe. Not inside a scope. Mako, section 5.
  cycle_report collect(std::string_view why = "asked for", evacuate what = evacuate::sparse);

  /// Runs a collection of young objects now: those that were never written home, and that nothing which was refers to. No agent
  /// takes part. What was young and unreachable at the call is gone afterwards, if the report is ok(), but for what was written
  /// home meanwhile. They start by themselves, too (heap_options::collect_young). Otherwise as collect. O(what is newer here
  /// than at home).
  cycle_report collect_young(std::string_view why = "asked for");

  /// Asks for a collection and does not wait for it: it takes heap_options::collect_share of a core, where collect() takes all
  /// that it can use. stats().last_cycle tells of it. Thread-safe, also inside a scope. O(1).
  void collect_soon(std::string_view why = "asked for");

  /// Calls `notice()` once, after a collection has found `p`'s object dead: on the collector's thread, outside of scopes, with
  /// all of the heap usable. The object itself is gone: what the notice needs of it, it carries as a value (no destructors, no
  /// resurrection). Nothing is called for what is alive when the heap closes. A notice that holds a root to the object keeps it
  /// alive. Thread-safe. O(1); throws null_handle.
  template <class T, std::invocable F>
  void on_dead(const ptr<T>& p, F&& notice) {
    if (!p) throw error(errc::null_handle, "on_dead of a null handle");
    watch(p.slot(), std::forward<F>(notice));
  }

  /// Counters and histograms since the heap was opened. O(threads). With detail_level::types also the objects by type, beside
  /// the program and in small steps, without holding anything up: O(slots) here and on the agents.
  [[nodiscard]] heap_stats stats(detail_level level = detail_level::counters);
  /// Walks roots, words, frames, entries and accounts on both sides. Only while no other thread uses the heap. O(slots).
  [[nodiscard]] verify_report verify();
  /// Sends everything unpinned home and drops it from the cache. For tests and measurements. Not inside a scope. Segments that
  /// other threads are filling stay. Returns timed_out when something could not leave in time.
  errc evict_all(duration within = std::chrono::seconds(30));
  /// Frees everything on the agents and closes the connections. Idempotent; no other thread may use the heap.
  void close() noexcept;

  /// Bytes of the largest object, header included.
  [[nodiscard]] std::uint64_t object_bytes_max() const noexcept;

  /// For containers and tests.
  detail::heap_core& core() noexcept { return *core_; }
  detail::object_cache& cache() noexcept { return *cache_; }

 private:
  template <class T>
  ptr<T> place(const T& init) {
    return ptr<T>::from_slot(detail::allocate(*cache_, detail::descriptor_of<T>(), 0, &init, sizeof(T)));
  }
  void watch(detail::slot_t slot, std::function<void()> notice);

  std::unique_ptr<detail::heap_core> core_;
  detail::object_cache* cache_;  ///< core_'s, as long as core_
};

}  // namespace fm
