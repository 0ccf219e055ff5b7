// The store behind store::create: sessions, heaps by id, message dispatch, one-sided access, the thread that does what
// nobody asked for (leases, lost notices, cleaning), those that trace, and the one that sends ghosts to other agents.
//
// Lock order: heaps_mutex_ before a heap's mutex before the pool's; pools_mutex_ before a shared pool's locks (shared_pool.h) before the pool's. A peer's notify and close may be called under a
// heap's mutex; they return at once.
#pragma once

#include "protocol/pool_messages.h"
#include "service.h"
#include <spdlog/spdlog.h>

#include <cstring>
#include <map>
#include <thread>
#include <tuple>

#include "agent/base/random.h"
#include "agent/base/session.h"
#include "agent/heaps/heap.h"
#include "agent/peers/peer_links.h"
#include "agent/pools/blocks.h"
#include "agent/spaces/spaces.h"
#include "agent/tracing/tracer.h"

namespace fm::store::node {

class agent_store final : public store {
 public:
  explicit agent_store(const store_options& options);
  agent_store(const agent_store&) = delete;
  agent_store& operator=(const agent_store&) = delete;
  ~agent_store() override;

  errc connected(fabric::peer& p) noexcept override;
  void disconnected(fabric::peer& p) noexcept override;
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override;
  std::byte* memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override;
  void memory_done(fabric::peer& p, std::uint32_t region) noexcept override;

  [[nodiscard]] std::string statistics() const override;
  bool maintain() override;

 private:
  using body = std::span<const std::byte>;
  struct heap_id_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& k) const noexcept {
      return k.first ^ (k.second * 0x9e3779b97f4a7c15ull);
    }
  };

  errc dispatch(session& s, message_type type, body b, fabric::answer& out);

  // ---- messages.cc ----
  errc open_heap(session& s, body b, fabric::answer& out);
  errc close_heap(session& s, heap& h, body b, fabric::answer& out);
  errc register_types(session& s, heap& h, body b, fabric::answer& out);
  errc grant_tablets(session& s, heap& h, body b, fabric::answer& out);
  errc fetch_slot(session& s, heap& h, body b, fabric::answer& out);
  errc read_entries(session& s, heap& h, body b, fabric::answer& out);
  errc audit(session& s, heap& h, body b, fabric::answer& out);
  errc heap_statistics(session& s, heap& h, body b, fabric::answer& out);
  errc census(session& s, heap& h, body b, fabric::answer& out);  // census.cc

  // ---- region_messages.cc ----
  errc open_region(session& s, heap& h, body b, fabric::answer& out);
  errc region_info(session& s, heap& h, body b, fabric::answer& out);
  errc seal_region(session& s, heap& h, body b, fabric::answer& out);
  errc retired_region(session& s, heap& h, body b, fabric::answer& out);
  errc index(session& s, heap& h, body b, fabric::answer& out);

  // ---- trace_messages.cc ----
  errc begin_cycle(session& s, heap& h, body b, fabric::answer& out);
  errc add_newer(session& s, heap& h, body b, fabric::answer& out);
  errc trace(session& s, heap& h, body b, fabric::answer& out);
  errc read_marks(session& s, heap& h, body b, fabric::answer& out);
  errc release_slots(session& s, heap& h, body b, fabric::answer& out);
  errc end_cycle(session& s, heap& h, body b, fabric::answer& out);
  errc evacuate(session& s, heap& h, body b, fabric::answer& out);
  /// Of a new cycle; none if this agent does not talk to others.
  trace_ticket new_ticket();
  /// The cycle of that number that runs; null: `out` and `result` say why not.
  std::shared_ptr<tracer> find_cycle(session& s, heap& h, std::uint64_t cycle, message_type type, fabric::answer& out,
                                     errc& result);

  // ---- peer_messages.cc: agents that talk to each other ----
  errc trace_peers(session& s, heap& h, body b, fabric::answer& out);
  errc open_peer(session& s, body b, fabric::answer& out);
  errc take_ghosts(session& s, body b, fabric::answer& out);

  // ---- shared_messages.cc, shared_statistics.cc: pools that clients share ----
  errc open_pool(session& s, body b, fabric::answer& out);
  /// Everything else of a session that has opened a pool.
  errc pool_message(session& s, shared_pool& p, message_type type, body b, fabric::answer& out);
  // With the pool's structure as `how` says; what finds that this is not enough comes to no outcome, and has said nothing.
  outcome pool_object_message(shared_client& c, shared_pool& p, message_type type, body b, fabric::answer& out,
                              held how);
  outcome pool_alloc(shared_pool& p, body b, fabric::answer& out, held how);
  static errc pool_write(shared_pool& p, body b, fabric::answer& out);
  static outcome pool_object_change(shared_pool& p, message_type type, body b, fabric::answer& out, held how);
  static errc pool_read(shared_pool& p, body b, fabric::answer& out);
  // With the pool's structure exclusively.
  errc pool_structure_message(shared_client& c, shared_pool& p, message_type type, body b, fabric::answer& out);
  static errc pool_pass(shared_client& c, shared_pool& p, body b, fabric::answer& out);
  static errc pool_location(shared_pool& p, message_type type, body b, fabric::answer& out);
  static errc pool_compact(shared_pool& p, body b, fabric::answer& out);
  static errc pool_statistics(shared_pool& p, fabric::answer& out);
  [[nodiscard]] std::string pools_json() const;
  /// Leases of clients, notices again, pools without clients, and a step of compaction in each pool; true when there is
  /// more to do at once.
  bool maintain_pools();
  void forget_pool_session(session& s);

  /// One step of tracing in every heap that traces; true when there is more to do at once.
  bool trace_step(std::uint32_t worker);
  /// One step of the evacuation of every heap that has one under way; true when there is more to do at once.
  bool evacuate_some();
  void run_tracing(std::uint32_t worker);

  [[nodiscard]] time_point now() const {
    return options_.hooks.now != nullptr ? options_.hooks.now(options_.hooks.context) : clock::now();
  }
  [[nodiscard]] spdlog::level::level_enum heap_level() const {
    return options_.log_heaps ? spdlog::level::info : spdlog::level::debug;
  }
  [[nodiscard]] std::vector<std::shared_ptr<heap>> all_heaps() const;
  /// Takes the heap out of the map and frees what it has; `why` is for the log.
  void free_heap(const std::shared_ptr<heap>& h, const char* why, bool only_if_expired);
  void wake() noexcept;
  void run();
  void join();  ///< stops and ends all threads
  /// Both return when they want to be called again, at the latest.
  time_point expire_leases();
  time_point send_lost_notices();

  const store_options options_;
  pool pool_;
  paged_service paged_;
  std::atomic<std::uint64_t> sessions_opened_{0};
  std::atomic<std::uint64_t> sessions_open_{0};

  mutable std::mutex heaps_mutex_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<heap>, heap_id_hash> heaps_;
  std::uint64_t heaps_expired_ = 0;

  mutable std::mutex pools_mutex_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::string>, std::shared_ptr<shared_pool>>
      pools_;                  ///< tenant, name
  random_source pool_random_;  ///< pools_mutex_

  std::mutex tickets_mutex_;
  random_source ticket_random_;  ///< tickets_mutex_
  std::atomic<std::uint64_t> ghosts_received_{0}, ghosts_refused_{0};
  std::atomic<std::int64_t> refusal_logged_{0};  ///< when, in ticks of the clock

  std::mutex maintain_mutex_;   ///< one step at a time
  std::size_t clean_next_ = 0;  ///< heaps take turns

  std::atomic<std::uint32_t> work_{0};      ///< goes up when there may be something to do
  time_point wake_at_ = time_point::max();  ///< maintain_mutex_; when there will be something to do in any case
  trace_bell bell_;
  ghost_links ghosts_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
  std::vector<std::thread> tracing_;
};

/// The body as a packed struct; false unless it has exactly that size.
template <class T>
bool read_exactly(std::span<const std::byte> b, T& out) {
  if (b.size() != sizeof out) return false;
  std::memcpy(&out, b.data(), sizeof out);
  return true;
}

/// Splits off the fixed part of a body; false when it is too short.
template <class T>
bool read_front(std::span<const std::byte>& b, T& out) {
  if (b.size() < sizeof out) return false;
  std::memcpy(&out, b.data(), sizeof out);
  b = b.subspan(sizeof out);
  return true;
}

/// Makes `out` the answer to a message: its head, `fixed`, and whatever is appended to the payload afterwards by
/// append_answer.
void begin_answer(fabric::answer& out, message_type type, const void* fixed, std::size_t bytes);
void append_answer(fabric::answer& out, const void* data, std::size_t bytes);
/// As JSON.
std::string quoted(const std::string& s);
/// A refusal with a text for the reader; always returns ok, because the session goes on.
errc refuse(fabric::answer& out, message_type type, errc code, const std::string& text);
/// The heap was closed, or taken over by a later session, between the arrival of a message and its turn.
errc not_the_owner(const heap& h, fabric::answer& out, message_type type);

}  // namespace fm::store::node
