// The key-value workload that a managed heap and plain pointers both run: values of 128 bytes behind a table of
// references, read or overwritten in an order drawn from a Zipf distribution before the clock starts.
//
// A store is any type with `read(key)` returning the sum of the value's words and `write(key, n)` adding n to the
// value's second word. The first word of a value is its key, so that every read checks what it got; a value that
// answers for another key makes the run fail.
#pragma once

#include "base/base.h"
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu.h"
#include "process.h"
#include "stats.h"
#include "zipf.h"

namespace fm::bench {

struct kv_value {
  std::uint64_t key = 0;
  std::uint64_t written = 0;
  std::uint64_t words[14] = {};
};
static_assert(sizeof(kv_value) == 128);

inline void fill_value(kv_value& v, std::uint64_t key) noexcept {
  v.key = key;
  v.written = 0;
  for (std::uint64_t i = 0; i < 14; ++i) v.words[i] = key ^ (i << 56);
}

/// What every untouched value of `key` adds up to, besides `written`.
inline std::uint64_t constant_sum(std::uint64_t key) noexcept {
  std::uint64_t sum = key;
  for (std::uint64_t i = 0; i < 14; ++i) sum += key ^ (i << 56);
  return sum;
}

inline std::uint64_t sum_of(const kv_value& v) noexcept {
  std::uint64_t sum = v.key;
  for (const std::uint64_t w : v.words) sum += w;
  return sum;
}

/// Bytes of data that `keys` pairs are: values and the references to them. Local memory is stated as a share of this.
constexpr std::uint64_t kv_data_bytes(std::uint64_t keys) { return keys * (sizeof(kv_value) + 8); }

/// The command `run <s> <share of writes> <operations> <seed> <timed>`: figures ops_per_s, wall_s, cpu_s, and with
/// timed=1 the quantiles of single operations (which adds the cost of reading the clock, so throughput is taken with 0).
template <class Store>
figures run_key_value(Store& store, std::uint64_t keys, const std::vector<std::string>& words) {
  if (words.size() != 6 || words[0] != "run")
    throw error(errc::invalid_argument, "run <s> <writes> <operations> <seed> <timed>");
  const double s = std::stod(words[1]), writes = std::stod(words[2]);
  const std::size_t operations = std::stoull(words[3]);
  random_source random(std::stoull(words[4]));
  const bool timed = words[5] == "1";
  const zipf_keys popular(keys, s);
  constexpr std::uint32_t write_bit = 1u << 31;
  std::vector<std::uint32_t> order(operations), ns;
  for (std::uint32_t& o : order) o = std::uint32_t(popular(random)) | (random.unit() < writes ? write_bit : 0);
  if (timed) ns.reserve(operations);
  std::uint64_t wrong = 0;
  const double cpu_before = cpu_seconds(0);
  const std::uint64_t begin = now_ns();
  std::uint64_t last = begin;
  for (const std::uint32_t o : order) {
    const std::uint64_t key = o & ~write_bit;
    if ((o & write_bit) != 0)
      store.write(key, 1);
    else
      wrong += store.read(key) != constant_sum(key);
    if (timed) {
      const std::uint64_t now = now_ns();
      ns.push_back(std::uint32_t(std::min<std::uint64_t>(now - last, UINT32_MAX)));
      last = now;
    }
  }
  const double wall = double(now_ns() - begin) * 1e-9;
  if (wrong != 0) throw error(errc::corrupt, std::to_string(wrong) + " reads returned another key's value");
  figures f{{"ops_per_s", double(operations) / wall}, {"wall_s", wall}, {"cpu_s", cpu_seconds(0) - cpu_before}};
  if (timed) {
    const latency_summary l = summarize_latency(ns);
    f.insert({{"mean", l.mean},
              {"p50", l.p50},
              {"p90", l.p90},
              {"p99", l.p99},
              {"p999", l.p999},
              {"max", l.max},
              {"count", double(l.count)}});
  }
  return f;
}

}  // namespace fm::bench
