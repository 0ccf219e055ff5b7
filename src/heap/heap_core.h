// A heap without its types: the sessions with its agents, the agent in this process if there is one, the cache and the
// collector. fm::heap adds the typed operations.
//
// Invariant owned here: the parts are made and closed in one order. Callbacks of the sessions find the cache and the
// collector only while these live (cache_for_links_, collector_for_links_).
//
// Used by fm::heap only (heap.cc); tests look behind it.
#pragma once

#include "cache/eviction/evictor.h"
#include "cache/object_cache.h"
#include "collector/collector.h"
#include "events/agent_events.h"
#include "fabric/server/server.h"
#include "heap/heap_record.h"
#include <farmem/heap/options.h>
#include <farmem/heap/stats.h>
#include <memory>

namespace fm::detail {

/// A heap that is attached, as src/heap/detach.cc has found it.
struct attachment {
  remote::detached_heap from;
  heap_record record;
  std::vector<std::string> lost;          ///< its agents that are done without
  const type_descriptor* root = nullptr;  ///< what the root must be, or null
};

class heap_core {
 public:
  /// Opens every agent, or takes a heap over there. Throws fm::error naming the URL or the option.
  explicit heap_core(const heap_options& options, const attachment* attaches = nullptr);
  ~heap_core();
  heap_core(const heap_core&) = delete;
  heap_core& operator=(const heap_core&) = delete;

  object_cache& cache() noexcept { return *cache_; }
  collector& gc() noexcept { return *collector_; }
  [[nodiscard]] heap_stats stats(detail_level level = detail_level::counters);
  [[nodiscard]] verify_report verify();
  cycle_report collect(std::string_view why, evacuate what);
  cycle_report collect_young(std::string_view why);
  void collect_soon(std::string_view why);
  void on_dead(slot_t slot, std::function<void()> notice);
  // src/heap/members.cc; see farmem/heap/heap.h.
  void add_agent(const std::string& url);
  void remove_agent(const std::string& url, duration within);
  void keep_agent(const std::string& url);
  void set_replicas(std::uint32_t n);
  [[nodiscard]] std::vector<std::string> agents() const;
  // src/heap/detach.cc; see farmem/heap/heap.h.
  void detach(const detach_options& how, slot_t root);
  [[nodiscard]] static std::unique_ptr<heap_core> attach(const attach_options& which, const heap_options& options,
                                                         const type_descriptor& (*root)());
  /// Of a heap that was attached.
  [[nodiscard]] slot_t stored_root() const noexcept { return stored_root_; }
  void close() noexcept;
  /// This is a child, after fork, of the process that opened the heap: its threads and connections are not here.
  [[nodiscard]] bool is_parents() const noexcept { return opened_in_ != os::fork_depth(); }

 private:
  void open(const heap_options& options, const attachment* attaches);
  /// Takes tablets over: between the opening of the sessions and the start of the collector.
  void adopt(const attachment& from);
  /// Nobody else attaches the heap any more, and closing it frees it.
  void claim() noexcept;
  /// What is written down for a next owner. On the collector's thread, when everything is at home.
  [[nodiscard]] heap_record record_of(slot_t root);
  void check_nothing_is_here() const;
  /// Fills in heap_stats::types (src/heap/object_counts.cc).
  void count_types(heap_stats& s);

  /// Between two collections.
  verify_report verify_now();
  void tell(const std::string& url, agent_change change) noexcept;
  /// The session with one more agent; not in links_ yet.
  std::unique_ptr<remote::agent_session> open_session(const std::string& url);
  [[nodiscard]] remote::agent_session* find_agent(const std::string& url) noexcept;
  [[nodiscard]] std::size_t agents_that_stay() const noexcept;

  struct link_context {
    heap_core* heap;
    std::uint32_t agent;
    std::string url;
  };
  slot_t stored_root_ = 0;
  std::uint64_t lineage_[2] = {0, 0};  ///< of the heap and whatever it is attached as
  std::uint64_t detached_before_ = 0;  ///< how often the heap was detached
  const time_point opened_ = clock::now();
  const std::uint32_t opened_in_ = os::fork_depth();
  std::atomic<std::uint64_t> tablets_rehomed_{0}, tablets_promoted_{0};
  const heap_options options_;
  agent_events events_;                     ///< outlives who posts
  std::unique_ptr<fabric::service> local_;  ///< the agent in this process; outlives the sessions
  remote::agent_session_options session_options_;
  std::mutex adding_mutex_;  ///< one agent is added at a time; held while the collector is waited for
  /// One change of agents or replicas is begun at a time; nobody is waited for with it. Taken after adding_mutex_.
  std::mutex members_mutex_;
  std::condition_variable members_changed_;
  std::atomic<bool> closing_{false};
  std::vector<std::unique_ptr<link_context>> contexts_;
  growing_list<remote::agent_session> links_{limits::agents_max};
  std::atomic<object_cache*> cache_for_links_{nullptr};
  /// What agents wanted back before there was a cache. members_mutex_. Sessions bound it.
  struct early_retirement {
    std::uint32_t agent, region, generation;
  };
  std::vector<early_retirement> early_retirements_;
  bool take_retirement(const early_retirement& r) noexcept;
  void begin_retirements();
  std::unique_ptr<object_cache> cache_;
  std::atomic<collector*> collector_for_links_{nullptr};
  std::unique_ptr<collector> collector_;
};

}  // namespace fm::detail
