// Zipf sampling; see zipf.h.
#include "zipf.h"

#include <bit>
#include <cmath>

namespace fm::bench {
namespace {

// (exp(x) - 1) / x and log(1 + x) / x, continued smoothly through x = 0, which is s = 1.
double expm1_over(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1.0 + x * 0.5 * (1.0 + x / 3.0); }
double log1p_over(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1.0 - x * (0.5 - x / 3.0); }

}  // namespace

zipf_ranks::zipf_ranks(std::uint64_t n, double s) : n_(n), s_(s) {
  h_integral_x1_ = h_integral(1.5) - 1.0;
  h_integral_n_ = h_integral(double(n) + 0.5);
  threshold_ = 2.0 - h_integral_inverse(h_integral(2.5) - h(2.0));
}

double zipf_ranks::h_integral(double x) const noexcept {
  const double log_x = std::log(x);
  return expm1_over((1.0 - s_) * log_x) * log_x;
}

double zipf_ranks::h(double x) const noexcept { return std::exp(-s_ * std::log(x)); }

double zipf_ranks::h_integral_inverse(double x) const noexcept {
  double t = x * (1.0 - s_);
  if (t < -1.0) t = -1.0;  // rounding at the lower end must not leave the domain of the logarithm
  return std::exp(log1p_over(t) * x);
}

std::uint64_t zipf_ranks::operator()(random_source& random) const noexcept {
  for (;;) {  // the expected number of turns is below 1.2 for every s
    const double u = h_integral_n_ + random.unit() * (h_integral_x1_ - h_integral_n_);
    const double x = h_integral_inverse(u);
    double k = std::floor(x + 0.5);
    if (k < 1.0) k = 1.0;
    if (k > double(n_)) k = double(n_);
    if (k - x <= threshold_ || u >= h_integral(k + 0.5) - h(k)) return std::uint64_t(k);
  }
}

zipf_keys::zipf_keys(std::uint64_t n, double s) : n_(n), ranks_(n, s) {
  const auto bits = unsigned(std::bit_width(n > 1 ? n - 1 : 1));
  half_bits_ = (bits + 1) / 2;
}

// A four-round Feistel network over the next even power of two, walked until it lands inside (at most 4 tries on
// average): a bijection of 0..n-1 for every n.
std::uint64_t zipf_keys::scatter(std::uint64_t rank) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t x = rank;
  do {
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t f = random_source(right * 4 + round).next() & mask;
      const std::uint64_t swapped = left ^ f;
      left = right;
      right = swapped;
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return x;
}

}  // namespace fm::bench
