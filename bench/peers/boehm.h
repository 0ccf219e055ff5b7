// The peer of the tree benchmarks: the same programs on the Boehm-Demers-Weiser collector.
#pragma once

#include <cstdint>

namespace fm::bench {

/// GCBench (Ellis, Kovac, Boehm), with temporary trees of up to `depth` levels. Gives ms.
double boehm_gcbench(int depth);

/// binary-trees of the Computer Language Benchmarks Game. Gives ms; `sum` is what the program prints, added up.
double boehm_binary_trees(int depth, std::uint64_t& sum);

/// Name and version of the collector, for the report.
const char* boehm_name();

}  // namespace fm::bench
