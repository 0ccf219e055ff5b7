// One program in two forms: data in containers of the standard library, and the same data in farmem's. Both forms do the same
// operations, are timed, and must give the same answers. A program that compares them declares its flags here, and passes
// its driver to run_side_by_side.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <farmem/farmem.h>
#include <string>
#include <utility>

#include "machine.h"

namespace fm::example {

struct side_by_side_options {
  machine_options machine;
  std::string name;  ///< of the program, the heap and the agents
  std::string kind;  ///< of the data in both forms: "store"
  std::string kinds;
  std::uint64_t seed = 1;
  bool plain = true, check = false;
};

/// Declares --far-only, --check, and the flags of the machine. `what` are the things that --seed is of: "documents".
void declare(CLI::App& app, side_by_side_options& o, const std::string& what);

/// Measures consecutive laps.
class stopwatch {
 public:
  /// Seconds since the last lap, or since the construction.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The far side: agents, a limit on the local memory, and a heap with the planned cache.
class far_side {
 public:
  /// Starts the agents, moves this process under the limit, opens the heap, and prints the machine.
  far_side(const side_by_side_options& o, std::uint64_t heap_bytes, const memory_plan& plan);
  [[nodiscard]] heap& local_heap() noexcept { return heap_; }
  /// Prints the summary. With --check also the verdict on the answers, and the verification: the exit code.
  int finish(bool same_answers);

 private:
  const side_by_side_options& options_;
  const std::uint64_t heap_bytes_;
  const memory_plan plan_;
  const agent_processes agents_;
  const memory_limit limit_;
  heap heap_;
};

/// Runs `drive` on a `Plain`, which needs nothing, and on a `Far`, which takes a heap; prints both outcomes. An outcome has
/// `summary()`, one line or more, and `same_answers(other)`. The heap will have about `heap_bytes` in `heap_objects`.
/// Gives the exit code.
template <class Plain, class Far, class Drive>
int run_side_by_side(const side_by_side_options& o, std::uint64_t heap_bytes, std::uint64_t heap_objects, Drive drive) {
  const auto print = [](const char* form, const auto& outcome) {
    fmt::print("{:<16} {}\n", form, outcome.summary());
    std::fflush(stdout);
  };
  const memory_plan plan = make_plan(o.machine, heap_bytes, heap_objects, 3);
  decltype(drive(std::declval<Plain&>())) plain;
  if (o.plain || o.check) {  // before the limit, which is for the heap's local memory
    Plain data;
    plain = drive(data);
    print("std, all local", plain);
  }
  far_side side(o, heap_bytes, plan);
  Far data(side.local_heap());
  const auto far = drive(data);
  print("farmem", far);
  return side.finish(far.same_answers(plain));
}

}  // namespace fm::example
