// The store behind store::create: sessions, dispatch, the registries of what is open, and the agent's own threads. One
// does what nobody asked for (leases, lost notices, cleaning, compaction: maintenance.cc), the others trace and
// evacuate.
//
// A session opens one tenant (agent/base/tenant.h): a heap, a pool, a space, or the right to send remote references.
// All that it says afterwards goes to that tenant. The parts of the agent do not know this class.
//
// Lock order, of all locks that the parts have:
//   session::opening   before everything below
//   maintain_mutex_    before everything below
//   heap::mover        -> heap::mutex
//   heaps' map         -> heap::mutex -> the tracer's, the tickets', the heap's cycle mutex -> regions' mutex
//   pools' map         -> pool's structure -> a stream -> the pool's blocks (agent/pools/blocks/blocks.h) -> its log, the
//                         regions' mutex
//   spaces' map        -> space::mutex -> regions' mutex
// No thread holds two of the three maps, or a map and a mover. A peer's notify and close may be called under any of
// them; they return at once.
#pragma once

#include <thread>

#include "agent/heaps/heaps.h"
#include "agent/moving/evacuations.h"
#include "agent/peers/peers.h"
#include "agent/pools/pools.h"
#include "agent/spaces/spaces.h"
#include "agent/tracing/cycles.h"
#include "service.h"

namespace fm::agent {

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
  void drain(bool on) noexcept override {
    agent_.drained.store(on, std::memory_order_release);
    agent_.wake();
    pools_.drain();
  }
  [[nodiscard]] std::size_t heaps_left() const override { return heaps_.count(); }
  [[nodiscard]] std::size_t spaces_left() const override { return spaces_.count(); }
  [[nodiscard]] std::size_t pools_left() const override { return pools_.count(); }
  [[nodiscard]] std::string survive(std::uint32_t instance, std::uint64_t term) override {
    return pools_.survive(instance, term);
  }
  bool maintain() override;

 private:
  /// What dispatch gives, or a refusal that says what it threw.
  errc answer_of(session& s, message_type type, body b, fabric::answer& out);
  errc dispatch(session& s, message_type type, body b, fabric::answer& out);
  void join();  ///< stops and ends all threads

  // ---- maintenance.cc ----
  bool maintain_heaps();  ///< may throw bad_alloc; then it comes again. maintain_mutex_
  void run();
  void run_tracing(std::uint32_t worker);

  environment agent_;
  region_pool regions_;
  spaces spaces_;
  heaps heaps_;
  pools pools_;
  trace_bell bell_;  ///< of the tracing threads
  peers peers_;
  cycles cycles_;
  evacuations evacuations_;
  std::atomic<std::uint64_t> sessions_opened_{0};
  std::atomic<std::uint64_t> sessions_open_{0};

  std::mutex maintain_mutex_;   ///< one step at a time
  std::size_t clean_next_ = 0;  ///< heaps take turns

  time_point wake_at_ = time_point::max();  ///< maintain_mutex_; when there will be something to do in any case
  std::atomic<bool> stop_{false};
  std::thread thread_;
  std::vector<std::thread> tracing_;
};

}  // namespace fm::agent
