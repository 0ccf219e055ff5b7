// Traces for comparing replacement policies: sequences of keys 0 .. keys-1, the same for every policy and on every
// machine.
//
// Invariant: a trace depends on nothing but its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::bench {

using trace = std::vector<std::uint32_t>;

struct trace_spec {
  std::string name;
  std::uint32_t keys = 0;
  std::uint64_t accesses = 0;
  std::uint64_t seed = 1;
};

/// 90% of the accesses go to 10% of the keys, which are scattered. After every `shift` accesses (0: never) a tenth of
/// these keys give their place to others.
trace hot_set_trace(const trace_spec& spec, std::uint64_t shift);
/// Zipf popularity of exponent `s`.
trace zipf_trace(const trace_spec& spec, double s);
/// Round and round over `length` keys in order.
trace loop_trace(const trace_spec& spec, std::uint32_t length);
/// Zipf popularity of exponent `s` over the first half of the keys; after every `every` accesses comes a scan over
/// `length` keys of the other half, which goes on where the last one ended.
trace zipf_and_scans_trace(const trace_spec& spec, double s, std::uint64_t every, std::uint32_t length);

/// The trace that a name says: hot, shifting, zipf-0.8 and the like, loop, scans. Throws fm::error for another name.
trace named_trace(const trace_spec& spec);
/// Names that named_trace takes, the usual ones.
std::vector<std::string> usual_traces();

}  // namespace fm::bench
