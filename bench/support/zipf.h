// Keys drawn from a Zipf distribution, by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
// variates from monotone discrete distributions", 1996): exact for every s >= 0 including 0 (uniform) and 1, without a
// table. Ranks are then scattered over the key space by a bijection, so that popular keys do not share pages.
#pragma once

#include <cstdint>

namespace fm::bench {

/// A small seeded generator (splitmix64); the same sequence on every machine.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1), 53 bits.
  double unit() noexcept { return double(next() >> 11) * 0x1p-53; }
  /// In [0, n), n > 0; the bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) noexcept {
    return std::uint64_t((static_cast<unsigned __int128>(next()) * n) >> 64);
  }

 private:
  std::uint64_t state_;
};

/// Ranks 1..n with probability proportional to rank^-s.
class zipf_ranks {
 public:
  /// n >= 1, s >= 0.
  zipf_ranks(std::uint64_t n, double s);
  std::uint64_t operator()(random_source& random) const noexcept;

 private:
  [[nodiscard]] double h_integral(double x) const noexcept;
  [[nodiscard]] double h(double x) const noexcept;
  [[nodiscard]] double h_integral_inverse(double x) const noexcept;

  std::uint64_t n_;
  double s_;
  double h_integral_x1_, h_integral_n_, threshold_;
};

/// Keys 0..n-1 with Zipf popularity, scattered: which keys are popular depends on nothing but n.
class zipf_keys {
 public:
  zipf_keys(std::uint64_t n, double s);
  std::uint64_t operator()(random_source& random) const noexcept { return scatter(ranks_(random) - 1); }
  /// The key of a rank (0 is the most popular): a bijection of 0..n-1.
  [[nodiscard]] std::uint64_t scatter(std::uint64_t rank) const noexcept;

 private:
  std::uint64_t n_;
  unsigned half_bits_;
  zipf_ranks ranks_;
};

}  // namespace fm::bench
