// The frame of every benchmark program: options, interleaved comparisons, and the report.
//
// A comparison runs two callables in turn, A B A B …, in one invocation, after one unreported warm-up turn of each.
// The figure is the ratio of the medians, with the spread of the rounds. `program` prints a table for people and, with
// --json FILE, appends nothing and drops nothing: one JSON object per row, one row per line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "cpu.h"
#include "stats.h"

namespace fm::bench {

struct row;

/// What one turn of one side produced: its figure in the row's unit, and single-operation times when it took them.
struct turn {
  double value = 0;
  std::vector<std::uint32_t> ns;
  double other_cpu_s = 0;  ///< CPU time of processes that ended within the turn and were not waited for
};

/// Runs `work` and gives its time per operation in nanoseconds.
template <class F>
turn per_operation(double operations, F&& work) {
  const std::uint64_t begin = now_ns();
  work();
  return {double(now_ns() - begin) / operations, {}, 0};
}

/// Runs `work` and gives units a second, divided by `scale` (1e6: millions a second; 1 << 20: MiB/s).
template <class F>
turn rate(double units, double scale, F&& work) {
  const std::uint64_t begin = now_ns();
  work();
  return {units / scale / (double(now_ns() - begin) * 1e-9), {}, 0};
}

enum class goal_kind { none, ratio_at_most, ratio_at_least, value_at_most, value_at_least, median_ns_at_most };

/// A goal that the row is held against; the report says whether it was met.
struct goal {
  goal_kind kind = goal_kind::none;
  double bound = 0;
};

struct row_spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;
  std::string unit;
  goal wanted{};
  std::string peer_name;
};

class program {
 public:
  using side = std::function<turn()>;

  /// `name` is what rows are prefixed with; `about` is the help text.
  program(std::string name, std::string about);
  ~program();
  program(const program&) = delete;
  program& operator=(const program&) = delete;

  /// Registers an option of the benchmark's own, before parse. The variable holds the default.
  void option(const std::string& flag, std::uint64_t& value, const std::string& help);
  void option(const std::string& flag, double& value, const std::string& help);
  void option(const std::string& flag, std::string& value, const std::string& help);
  void option(const std::string& flag, bool& value, const std::string& help);
  /// Reads the command line; on --help or a mistake prints and exits. Pins the program to core 0 unless --no-pin.
  void parse(int argc, char** argv);

  [[nodiscard]] bool quick() const noexcept;
  /// `full`, or `small` with --quick.
  template <class T>
  [[nodiscard]] T sized(T full, T small) const noexcept {
    return quick() ? small : full;
  }
  [[nodiscard]] bool pinned() const noexcept;
  /// The core that agents and servers go to; -1 when nothing is pinned.
  [[nodiscard]] int agent_core() const noexcept;

  /// Processes whose CPU time counts into the rows from now on.
  void count_cpu_of(pid_t pid);
  void forget_cpu_of(pid_t pid);

  /// Whether --only lets rows of this name through; for skipping what only they need.
  [[nodiscard]] bool wants(const std::string& row_name) const;

  /// Ours against a peer, interleaved. `rounds` 0 means the default.
  void compare(const row_spec& spec, const side& ours, const side& peer, int rounds = 0);
  /// A figure without a peer.
  void measure(const row_spec& spec, const side& ours, int rounds = 0);
  /// A figure that is known already.
  void measure(const row_spec& spec, double value);
  /// A comparison that this machine or build cannot run, and why; it shows in the report.
  void left_out(const row_spec& spec, const std::string& why);

  /// Does the work; the exit code of main. Each row is printed, and written to the JSON, when it is known, so that a run that is
  /// cut short leaves what it has measured; an error ends it with a code. Goals do not change the code: a missed goal is a result.
  int run(const std::function<void()>& work);

 private:
  void keep(const row& r);
  struct state;
  std::unique_ptr<state> s_;
};

}  // namespace fm::bench
