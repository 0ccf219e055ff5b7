// The histogram: bucket edges, quantiles within the stated error, and no sample lost between threads.
#include "base/base.h"
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

using fm::detail::histogram;

namespace {
constexpr std::size_t bucket_count = 16 * 48;
}

TEST_CASE("every value lies between the edges of its bucket, and edges grow") {
  for (std::size_t i = 1; i < bucket_count; ++i) {
    CAPTURE(i);
    REQUIRE(histogram::upper_edge(i) > histogram::upper_edge(i - 1));
    REQUIRE(histogram::index(histogram::upper_edge(i)) == i);
    REQUIRE(histogram::index(histogram::upper_edge(i - 1) + 1) == i);
  }
}

TEST_CASE("a bucket is at most a sixteenth of its value wide") {
  for (std::size_t i = 17; i < bucket_count; ++i) {
    const std::uint64_t lowest = histogram::upper_edge(i - 1) + 1, highest = histogram::upper_edge(i);
    CAPTURE(i, lowest, highest);
    REQUIRE((highest - lowest + 1) * 16 <= lowest);
  }
}

TEST_CASE("values too large for any bucket are counted in the last one") {
  CHECK(histogram::index(std::numeric_limits<std::uint64_t>::max()) == bucket_count - 1);
  histogram h;
  h.add(std::numeric_limits<std::uint64_t>::max());
  const auto s = h.snapshot();
  CHECK(s.count == 1);
  CHECK(s.buckets[bucket_count - 1] == 1);
  CHECK(s.max_ns == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("an empty histogram has quantiles and a mean of zero") {
  const auto s = histogram().snapshot();
  CHECK(s.count == 0);
  CHECK(s.quantile_ns(0.5) == 0);
  CHECK(s.mean_ns() == 0.0);
}

TEST_CASE("small values are exact") {
  histogram h;
  for (std::uint64_t ns = 0; ns < 16; ++ns) h.add(ns);
  const auto s = h.snapshot();
  CHECK(s.quantile_ns(0.0) == 0);
  CHECK(s.quantile_ns(1.0) == 15);
  CHECK(s.quantile_ns(0.5) == 7);
  CHECK(s.mean_ns() == Approx(7.5));
}

TEST_CASE("no quantile is above the largest sample") {
  histogram h;
  h.add(1'000'003);
  const auto s = h.snapshot();
  for (const double q : {0.0, 0.5, 0.99, 1.0}) CHECK(s.quantile_ns(q) == 1'000'003);
}

TEST_CASE("quantiles are within a sixteenth of the true ones") {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> durations(9.0, 2.0);
  histogram h;
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 50'000; ++i) {
    all.push_back(static_cast<std::uint64_t>(durations(random)));
    h.add(all.back());
  }
  std::sort(all.begin(), all.end());
  const auto s = h.snapshot();
  for (const double q : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const std::uint64_t truth = all[static_cast<std::size_t>(q * double(all.size() - 1))];
    CAPTURE(q, truth);
    CHECK(s.quantile_ns(q) >= truth);
    CHECK(double(s.quantile_ns(q)) <= double(truth) * (1.0 + 1.0 / 16) + 1);
  }
  CHECK(s.max_ns == all.back());
}

TEST_CASE("samples added by several threads are all counted") {
  constexpr int threads = 4, each = 20'000;
  histogram h;
  std::vector<std::thread> writers;
  for (int t = 0; t < threads; ++t)
    writers.emplace_back([&h, t] {
      for (int i = 0; i < each; ++i) h.add(static_cast<std::uint64_t>(t * each + i));
    });
  for (auto& w : writers) w.join();
  const auto s = h.snapshot();
  constexpr std::uint64_t n = threads * each;
  CHECK(s.count == n);
  CHECK(s.sum_ns == n * (n - 1) / 2);
  CHECK(s.max_ns == n - 1);
}

TEST_CASE("a snapshot taken while others add never counts a sample twice") {
  histogram h;
  constexpr std::uint64_t total = 50'000;
  std::thread writer([&h] {
    for (std::uint64_t i = 0; i < total; ++i) h.add(i);
  });
  std::uint64_t last = 0;
  while (last < total) {
    const auto s = h.snapshot();
    REQUIRE(s.count >= last);
    REQUIRE(s.count <= total);
    last = s.count;
  }
  writer.join();
}
