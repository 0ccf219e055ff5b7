// The program that the stress test runs: threads that do everything a heap allows, at random from a seed, on far more
// objects than the cache holds, while they break connections. See shadow.h for the oracle.
#pragma once

#include <thread>

#include "breaking_agent.h"
#include "shadow.h"

namespace stress {

struct plan {
  std::string transport;  ///< "local:", "shm", "tcp"
  std::uint64_t segment = 64 << 10;
  std::uint64_t region = 256 << 10;
  std::uint64_t cache = 4 << 20;
  std::uint64_t agent_memory =
      9 << 19;  ///< each; little more than lives there and dies in a cycle, so that regions are cleaned
  std::uint64_t hit = 64 << 10;  ///< a quarter of what the objects' words take
  std::uint32_t cells = 20'000;
  std::uint32_t arrays = 3'000;
  std::uint32_t large_arrays = 16;  ///< larger than a segment
  std::uint32_t list_nodes = 6'000;
  std::uint32_t replacements = 4'000;  ///< objects made anew in each run
  int threads = 8;
  bool breaks = true;
  fm::duration run_for{};
  std::uint64_t seed = 0;
};

class program {
 public:
  /// `agents` are those of the heap, in its order, or none where they are its own.
  program(fm::heap& h, const plan& p, std::vector<breaking_agent*> agents)
      : heap_(h), plan_(p), agents_(std::move(agents)), cells_(p.cells), arrays_(p.arrays + p.large_arrays) {}

  /// Makes all objects, by all threads.
  void build();
  /// The random phase.
  void run();
  /// Compares every object with the oracle.
  void compare();

  faults wrong;
  std::atomic<std::uint64_t> operations{0}, breaks{0};

 private:
  struct worker {
    program& p;
    std::mt19937_64 random;
    struct pinned_cell {
      std::uint32_t id;
      fm::detail::slot_t slot;
      fm::write_pin<cell> pin;
    };
    struct pinned_array {
      std::uint32_t id;
      fm::detail::slot_t slot;
      fm::read_pin<std::uint64_t[]> pin;
    };
    std::vector<pinned_cell> cells;
    std::vector<pinned_array> arrays;

    std::uint64_t below(std::uint64_t n) { return random() % n; }
    /// Half of the accesses go to a sixteenth of the objects, which drifts.
    std::uint32_t pick(std::size_t n);
    void step();
    void read_cell();
    void write_cell();
    void set_edge();
    void follow_edges();
    void replace_cell();
    void read_array();
    void write_array();
    void replace_array();
    void walk_list();
    void pin_cell();
    void write_pinned();
    void pin_array();
    void read_pinned();
    void prefetch();
    void nested_scopes();
  };
  template <class Work>
  void on_threads(Work&& work);
  void check_cell(const cell& c, std::uint32_t id, const char* who);
  void check_array(const numbers& a, std::uint32_t id, std::size_t stride, const char* who);
  static bool frozen(std::uint32_t array) { return array % 4 == 0; }
  void make_cell(std::uint32_t id);
  void make_array(std::uint32_t id, std::uint64_t length);
  std::uint64_t length_of(std::uint32_t id) const;
  void break_connection(worker& w);

  fm::heap& heap_;
  plan plan_;
  std::vector<breaking_agent*> agents_;
  std::vector<shadow_cell> cells_;
  std::vector<shadow_array> arrays_;
  std::vector<shadow_list> lists_;
  stripes cell_locks_, array_locks_;
  std::atomic<std::int64_t> replacements_left_{0};
  std::atomic<bool> break_due_{false};
};

}  // namespace stress
