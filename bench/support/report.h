// One row of a benchmark's report and its two forms, the table for people and the line of JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "program.h"

namespace fm::bench {

/// One side of a row over all its rounds.
struct side_result {
  summary value;
  latency_summary latency;
  double wall_s = 0, cpu_s = 0;
};

struct row {
  row_spec spec;
  side_result ours, peer;
  bool has_peer = false;
  summary pair_ratio;  ///< ratio of each round's two turns
  double ratio = 0;    ///< median of ours by median of peer
  std::string left_out;

  /// Whether the goal is met; true without a goal.
  [[nodiscard]] bool met() const noexcept;
};

/// What the rows have in common.
struct run_facts {
  std::string program;
  bool quick = false, pinned = false;
  int cores = 0;
  std::string processor, kernel, build, time;
  std::string commit, tree;  ///< that were measured: FARMEM_BENCH_COMMIT, FARMEM_BENCH_TREE; empty without them
};
run_facts facts_of_this_run(const std::string& program);

void print_head(std::FILE* to, const run_facts& facts);
void print_row(std::FILE* to, const row& r);
std::string json_line(const run_facts& facts, const row& r);

}  // namespace fm::bench
