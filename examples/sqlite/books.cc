// See books.h.
#include "books.h"

#include <algorithm>

#include "../../bench/support/zipf.h"

namespace fm::example {

namespace {

constexpr std::uint64_t text_bytes_min = 200, text_bytes_max = 800;
constexpr std::uint32_t year_min = 1450, year_max = 2025;
constexpr std::uint64_t books_per_author = 20;

bench::random_source source_of(std::uint64_t row, std::uint64_t seed) {
  return bench::random_source(seed * 0x9e3779b97f4a7c15u + row);
}

}  // namespace

expected_books::expected_books(std::uint64_t rows, std::uint64_t seed)
    : seed_(seed), years_(rows), of_author_(std::max<std::uint64_t>(1, rows / books_per_author)) {}

std::uint32_t expected_books::author(std::uint64_t row) const noexcept {
  return std::uint32_t(source_of(row, seed_).below(of_author_.size()));
}

void expected_books::make(std::uint64_t row, book& into) const {
  bench::random_source random = source_of(row, seed_);
  into.author = std::uint32_t(random.below(of_author_.size()));
  into.year = year_min + std::uint32_t(random.below(year_max - year_min + 1));
  const std::uint64_t bytes = text_bytes_min + random.below(text_bytes_max - text_bytes_min + 1);
  into.text.clear();
  while (into.text.size() < bytes) {
    std::uint64_t letters = random.next();
    for (unsigned n = 3 + unsigned(letters >> 61); n > 0; --n, letters >>= 5)
      into.text.push_back(char('a' + (letters & 31) * 26 / 32));
    into.text.push_back(' ');
  }
}

void expected_books::insert(std::uint64_t row, const book& b) {
  years_[row] = std::uint16_t(b.year);
  for (sums* s : {&of_author_[b.author], &all_}) {
    ++s->books;
    s->years += b.year;
    s->text_bytes += b.text.size();
  }
}

void expected_books::change_year(std::uint64_t row, std::uint32_t year) {
  for (sums* s : {&of_author_[author(row)], &all_}) s->years += year - std::uint64_t{years_[row]};
  years_[row] = std::uint16_t(year);
}

}  // namespace fm::example
