// What programs that know nothing of far memory do with a range of bytes and with a memory resource. The same code runs over
// fm::paged, over plain memory, and over plain memory that the kernel swaps; a worker runs one of them and answers commands.
//
// The range is 64-byte lines; the first word of a line is its number, the others follow from it, so that every read checks
// what it got. `sort` overwrites the lines: it has a range of its own.
#pragma once

#include "base/base.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpu.h"
#include "process.h"
#include "zipf.h"

namespace fm::bench {

class range_workloads {
 public:
  /// Fills the range. The map is built on `r` by the first command for it.
  range_workloads(std::span<std::byte> range, std::pmr::memory_resource* r)
      : words_(reinterpret_cast<std::uint64_t*>(range.data())), lines_(range.size() / 64), resource_(r) {}

  /// One of:
  ///   fill                                every line
  ///   scan <passes>                       the sum of all words, in order
  ///   hash <passes>                       the same with eight multiplications a word: a program that computes
  ///   lines <operations> <zipf s> <seed>  reads of one line, drawn before the clock starts
  ///   sort <seed>                         std::sort of 8-byte numbers, which are written before the clock starts
  ///   map <keys>                          makes a std::pmr::unordered_map of so many values of 112 bytes
  ///   find <operations> <writes> <seed>   finds values of it, Zipf 0.99, of which a share is changed
  /// Answers units_per_s (bytes for scan, hash and sort; operations otherwise) and wall_s.
  figures run(const std::vector<std::string>& command) {
    const std::string& what = command.at(0);
    const auto number = [&](std::size_t i) { return std::stoull(command.at(i)); };
    if (what == "fill") return timed(double(lines_ * 64), [&] { fill(); });
    if (what == "scan") return timed(double(number(1) * lines_ * 64), [&] { passes(number(1), plain); });
    if (what == "hash") return timed(double(number(1) * lines_ * 64), [&] { passes(number(1), hashed); });
    if (what == "lines") {
      const auto order = drawn(lines_, number(1), std::stod(command.at(2)), number(3));
      return timed(double(order.size()), [&] { read_lines(order); });
    }
    if (what == "sort") return sort(number(1));
    if (what == "map") return timed(double(number(1)), [&] { make_map(number(1)); });
    if (what == "find") {
      const auto order = drawn(map_->size(), number(1), 0.99, number(3));
      return timed(double(order.size()), [&] { find(order, std::stod(command.at(2))); });
    }
    throw error(errc::invalid_argument, "no workload is called '" + what + "'");
  }

 private:
  static constexpr std::uint64_t line_words = 8;
  using value = std::array<std::uint64_t, 14>;

  template <class F>
  static figures timed(double units, F&& work) {
    const std::uint64_t begin = now_ns();
    work();
    const double wall = double(now_ns() - begin) * 1e-9;
    return {{"units_per_s", units / wall}, {"wall_s", wall}};
  }
  static std::uint64_t plain(std::uint64_t w) noexcept { return w; }
  static std::uint64_t hashed(std::uint64_t w) noexcept {
    for (int i = 0; i < 8; ++i) w = (w ^ (w >> 29)) * 0x9e3779b97f4a7c15u;
    return w;
  }
  static std::uint64_t word_of(std::uint64_t line, std::uint64_t i) noexcept { return line * (i + 1); }
  static std::vector<std::uint32_t> drawn(std::uint64_t n, std::uint64_t count, double s, std::uint64_t seed) {
    random_source random(seed);
    const zipf_keys keys(n, s);
    std::vector<std::uint32_t> order(count);
    for (std::uint32_t& o : order) o = std::uint32_t(keys(random));
    return order;
  }
  static void check(bool right) {
    if (!right) throw error(errc::corrupt, "memory that holds other bytes than were written");
  }

  void fill() noexcept {
    for (std::uint64_t line = 0; line < lines_; ++line)
      for (std::uint64_t i = 0; i < line_words; ++i) words_[line * line_words + i] = word_of(line, i);
  }
  template <class F>
  void passes(std::uint64_t count, F of_word) {
    std::uint64_t first = 0;
    for (std::uint64_t pass = 0; pass < count; ++pass) {
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < lines_ * line_words; ++i) sum += of_word(words_[i]);
      keep(sum);
      if (pass == 0) first = sum;
      check(sum == first);
    }
  }
  void read_lines(const std::vector<std::uint32_t>& order) {
    std::uint64_t wrong = 0;
    for (const std::uint32_t line : order) {
      const std::uint64_t* const w = words_ + std::uint64_t{line} * line_words;
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < line_words; ++i) sum += w[i];
      wrong += sum != std::uint64_t{line} * (line_words * (line_words + 1) / 2);
    }
    check(wrong == 0);
  }
  figures sort(std::uint64_t seed) {
    const std::uint64_t n = lines_ * line_words;
    random_source random(seed);
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < n; ++i) sum += words_[i] = random.next();
    figures f = timed(double(n * 8), [&] { std::sort(words_, words_ + n); });
    check(std::is_sorted(words_, words_ + n));
    for (std::uint64_t i = 0; i < n; ++i) sum -= words_[i];
    check(sum == 0);
    return f;
  }
  void make_map(std::uint64_t keys) {
    map_.emplace(resource_);
    map_->reserve(keys);
    for (std::uint64_t k = 0; k < keys; ++k) {
      value v;
      v.fill(k);
      map_->emplace(k, v);
    }
  }
  void find(const std::vector<std::uint32_t>& order, double writes) {
    const auto every = writes > 0 ? std::uint64_t(1 / writes) : 0;
    std::uint64_t wrong = 0, n = 0;
    for (const std::uint32_t key : order) {
      value& v = map_->find(key)->second;
      wrong += v[0] != key || v[13] != key;
      if (every != 0 && ++n % every == 0) ++v[5];
    }
    check(wrong == 0);
  }

  std::uint64_t* words_;
  std::uint64_t lines_;
  std::pmr::memory_resource* resource_;
  std::optional<std::pmr::unordered_map<std::uint64_t, value>> map_;
};

}  // namespace fm::bench
