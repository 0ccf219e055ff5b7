// One collection cycle, from snapshot to slot return.
//
//   snapshot   pause: marking on; what is allocated is noted
//   scan       concurrently: roots; frames that may be newer than their home copies, of which agents are told; then they may trace
//   mark       what is newer here is traced here; other roots and references go to the agents that store them, and so do ghosts, from agent
//              to agent or through here, until nobody has anything left (waves.h)
//   final      marks are read; pause: what was logged and is not marked yet goes on being traced, otherwise marking ends here
//   sweep      dead = allocated at the snapshot and not marked: words free, frames dropped; weak cells null; agents
//              forget the slots; the slots may be used again
//
// A collection of young objects (cache/frame.h) is the same without agents (young.cc): what may die is what is young,
// everything that is newer than at home and not young is a root beside the others, and slots may be used again at once.
//
// Whatever fails ends the cycle and nothing else: marks are thrown away, and nothing is freed that was not proven dead.
#pragma once

#include "collector/collector.h"

#include <string>
#include <vector>

#include "compute_tracer.h"

namespace fm::detail {

class waves;

class cycle final : private frame_visitor, private tracing_elsewhere {
 public:
  /// Of `report.of`.
  cycle(collector& owner, cycle_report& report);
  ~cycle() override;
  /// Fills the report in. Throws nothing.
  void run() noexcept;

 private:
  static constexpr std::size_t pages_per_message = 4096;

  /// What is known of an agent that takes part.
  struct agent {
    remote::agent_session* link = nullptr;
    std::uint32_t number = 0;      ///< of the heap's agents
    std::vector<slot_t> pending;   ///< slots that it has to mark, as they go into messages
    std::size_t pending_from = 0;  ///< those before were sent
    std::uint32_t message = 0;     ///< number of its last trace
    bool idle = false;
    bool talks = false;   ///< to other agents; they are told of it, and it of them
    bool counts = false;  ///< it has been told of others, so its answers say what it has sent and received
    protocol::begin_cycle_answer ticket{};
    protocol::trace_answer said{};
    std::vector<protocol::slot_bits> pages;  ///< of newer slots
    std::vector<slot_page> returned;         ///< by the sweep
  };

  void run_steps();
  void snapshot();
  /// What threads are about to reach that wait for memory outside of sections; in the snapshot's pause.
  void note_waiting() noexcept;
  void scan();
  void find_roots();
  void add_found();
  void mark();
  /// All that `tracer` has, and all that is logged meanwhile.
  void mark_with(compute_tracer& tracer);
  void take_logged();
  void read_marks();
  void mark_lost(slot_marks& marks);
  bool final_pause();
  void sweep();
  /// Makes the dead slots of one of marks_->tablets() free; what can be used again is in `freed`.
  void free_dead(std::size_t tablet, const std::vector<std::uint64_t>& dead, std::vector<slot_page>& freed);
  /// The dead slots of marks_->tablets()[tablet], 1024 words; whether there are any.
  bool count_dead(std::size_t tablet, std::vector<std::uint64_t>& dead);
  void release(agent& a);
  void finish(bool completed) noexcept;

  // ---- marking.cc ----
  void begin_on_agents();
  /// Tells those of each other that talk. After the snapshot, and before anybody traces.
  void introduce_agents();
  [[nodiscard]] std::vector<remote::trace_peer> trace_peers() const;
  void mark_by_agents();
  bool exchange(agent& a, waves& w);

  void scan_young();  ///< young.cc

  // ---- verify_cycle.cc: what collector_options::verify asks for ----
  void verify_agents(const char* when);
  void verify_marks();
  void verify_references();
  void fault(std::string what);
  void check_faults() const;
  /// Compares the marks of the two tracers.
  void compare_tracers();

  // frame_visitor
  bool frame(slot_t slot, bool newer, bool young) override;
  void references(slot_t slot, std::span<const slot_t> refs) override;
  void pinned(slot_t slot) override;
  void between_pages() override;
  // tracing_elsewhere
  void refers_to(slot_t slot) override;
  void went_home(slot_t slot) override;

  /// Runs `work(*this)` in a pause. False when the threads could not be stopped; `attempt` says how often that was so already.
  bool pause(std::uint32_t attempt, void (*work)(cycle&), std::uint64_t& took_ns);
  agent* agent_of(slot_t slot) noexcept;
  void add(slot_t slot);
  void send_newer();
  void check(errc e, const agent& a, const char* what);
  void pace() noexcept;
  void check_stop() const;
  [[nodiscard]] time_point call_deadline() const;
  [[nodiscard]] duration pause_within() const;

  collector& owner_;
  object_cache& cache_;
  cycle_report& report_;
  const bool young_;  ///< a collection of young objects
  std::vector<agent> agents_;
  std::vector<agent*> by_number_;  ///< null: lost before the cycle began
  std::unique_ptr<slot_hold> hold_;
  /// Marked are, before the agents' marks are read, what is traced here and what was sent: each slot is sent once.
  std::unique_ptr<slot_marks> marks_;
  const tracing who_;
  std::unique_ptr<slot_marks> second_marks_;  ///< with tracing::both
  std::unique_ptr<compute_tracer> here_;      ///< unless only the agents trace
  std::unique_ptr<compute_tracer> near_;      ///< if agents trace: of what is newer here
  std::vector<slot_t> found_;                 ///< by the scan, to be added when it is known what is newer
  std::vector<slot_t> logged_, left_over_, waiting_;
  std::uint64_t slice_from_ = 0, pages_passed_ = 0;
  bool pages_held_ = false, marking_ = false, begun_ = false;
  bool published_ = false;  ///< sections may be looking at marks_
};

}  // namespace fm::detail
