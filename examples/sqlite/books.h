// A table of books: what each row has to be, made from nothing but its number, and what queries have to give, kept while rows are
// inserted and changed. None of it asks SQLite, so it says whether SQLite's answers are right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fm::example {

struct book {
  std::uint32_t author = 0;
  std::uint32_t year = 0;
  std::string text;
};

/// What a table of `rows` books contains; rows are numbered from 0.
class expected_books {
 public:
  /// What one row was measured to need in the database, with its share of the index.
  static constexpr std::uint64_t bytes_per_row = 580;

  expected_books(std::uint64_t rows, std::uint64_t seed);

  [[nodiscard]] std::uint64_t rows() const noexcept { return years_.size(); }
  [[nodiscard]] std::uint32_t authors() const noexcept { return std::uint32_t(of_author_.size()); }
  /// The row as it is inserted; `into.text` is used again. The same whenever it is called.
  void make(std::uint64_t row, book& into) const;
  [[nodiscard]] std::uint32_t author(std::uint64_t row) const noexcept;

  /// The row is in the table, with its first year.
  void insert(std::uint64_t row, const book& b);
  void change_year(std::uint64_t row, std::uint32_t year);
  [[nodiscard]] std::uint32_t year(std::uint64_t row) const noexcept { return years_[row]; }

  struct sums {
    std::uint64_t books = 0, years = 0, text_bytes = 0;
    bool operator==(const sums&) const = default;
  };
  [[nodiscard]] const sums& of_author(std::uint32_t author) const noexcept { return of_author_[author]; }
  [[nodiscard]] const sums& of_all() const noexcept { return all_; }

 private:
  const std::uint64_t seed_;
  std::vector<std::uint16_t> years_;
  std::vector<sums> of_author_;
  sums all_;
};

}  // namespace fm::example
