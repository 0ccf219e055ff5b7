// Generated traces; see trace.h.
#include "trace.h"

#include <algorithm>
#include <cstdlib>
#include <farmem/base/error.h>

#include "../support/zipf.h"

namespace fm::bench {

trace hot_set_trace(const trace_spec& spec, std::uint64_t shift) {
  random_source random(spec.seed);
  const zipf_keys scattered(spec.keys, 0);
  const std::uint32_t hot = std::max(1u, spec.keys / 10);
  std::uint64_t first = 0;  // the hot set is a window of ranks
  trace t;
  t.reserve(spec.accesses);
  for (std::uint64_t i = 0; i < spec.accesses; ++i) {
    if (shift != 0 && i != 0 && i % shift == 0) first += std::max(1u, hot / 10);
    const std::uint64_t rank = random.below(10) != 0 ? first + random.below(hot) : random.below(spec.keys);
    t.push_back(static_cast<std::uint32_t>(scattered.scatter(rank % spec.keys)));
  }
  return t;
}

trace zipf_trace(const trace_spec& spec, double s) {
  random_source random(spec.seed);
  const zipf_keys keys(spec.keys, s);
  trace t;
  t.reserve(spec.accesses);
  for (std::uint64_t i = 0; i < spec.accesses; ++i) t.push_back(static_cast<std::uint32_t>(keys(random)));
  return t;
}

trace loop_trace(const trace_spec& spec, std::uint32_t length) {
  trace t;
  t.reserve(spec.accesses);
  for (std::uint64_t i = 0; i < spec.accesses; ++i) t.push_back(static_cast<std::uint32_t>(i % length));
  return t;
}

trace zipf_and_scans_trace(const trace_spec& spec, double s, std::uint64_t every, std::uint32_t length) {
  random_source random(spec.seed);
  const std::uint32_t half = spec.keys / 2;
  const zipf_keys keys(half, s);
  std::uint32_t at = 0;
  trace t;
  t.reserve(spec.accesses);
  while (t.size() < spec.accesses) {
    for (std::uint64_t i = 0; i < every && t.size() < spec.accesses; ++i)
      t.push_back(static_cast<std::uint32_t>(keys(random)));
    for (std::uint32_t i = 0; i < length && t.size() < spec.accesses; ++i, at = (at + 1) % (spec.keys - half))
      t.push_back(half + at);
  }
  return t;
}

trace named_trace(const trace_spec& spec) {
  if (spec.name == "hot") return hot_set_trace(spec, 0);
  if (spec.name == "shifting") return hot_set_trace(spec, std::max<std::uint64_t>(1, spec.keys / 2));
  if (spec.name == "loop") return loop_trace(spec, spec.keys);
  if (spec.name == "scans") return zipf_and_scans_trace(spec, 1.0, spec.keys / 2, std::max(1u, spec.keys / 8));
  if (spec.name.starts_with("zipf-")) return zipf_trace(spec, std::strtod(spec.name.c_str() + 5, nullptr));
  throw error(errc::invalid_argument, "no trace is called " + spec.name);
}

std::vector<std::string> usual_traces() {
  return {"hot", "zipf-0.8", "zipf-1.0", "zipf-1.2", "shifting", "scans", "loop"};
}

}  // namespace fm::bench
