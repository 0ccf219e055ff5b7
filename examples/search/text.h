// Words, their places, and hits: the terms of a search, whatever keeps its pages.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fm::example {

/// A word of a page: its place is the number of words before it.
struct occurrence {
  std::uint64_t page = 0, place = 0;
  friend bool operator==(const occurrence&, const occurrence&) = default;
};

/// A page that was found.
struct hit {
  std::uint64_t page = 0;
  double score = 0;
  friend bool operator==(const hit&, const hit&) = default;
};

/// Calls f(word, place, offset) for each word of a text, in lower case.
template <class F>
void each_word(std::string_view text, F&& f) {
  std::string word;
  std::uint64_t place = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i])));
    } else if (!word.empty()) {
      f(word, place++, i - word.size());
      word.clear();
    }
  }
}

/// The words of a text, each once.
inline std::vector<std::string> distinct_words(std::string_view text) {
  std::vector<std::string> all;
  each_word(text, [&](const std::string& word, std::uint64_t, std::size_t) { all.push_back(word); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Scores of pages by the words that they have (Okapi BM25).
class ranking {
 public:
  /// One more word of the query, and how often each page has it.
  template <class LengthOf>
  void add(const std::unordered_map<std::uint64_t, std::uint64_t>& times, std::uint64_t pages, double mean_length,
           LengthOf&& length_of) {
    const double n = static_cast<double>(times.size());
    const double weight = std::log(1 + (static_cast<double>(pages) - n + 0.5) / (n + 0.5));
    for (const auto& [page, t] : times) {
      const double length = static_cast<double>(length_of(page)) / mean_length, in_page = static_cast<double>(t);
      scores_[page] += weight * in_page * 2.2 / (in_page + 1.2 * (0.25 + 0.75 * length));
    }
  }
  [[nodiscard]] std::vector<hit> best(std::size_t most) const {
    std::vector<hit> all;
    for (const auto& [page, score] : scores_) all.push_back({page, score});
    std::sort(all.begin(), all.end(),
              [](const hit& a, const hit& b) { return a.score != b.score ? a.score > b.score : a.page < b.page; });
    if (all.size() > most) all.resize(most);
    return all;
  }

 private:
  std::unordered_map<std::uint64_t, double> scores_;
};

/// Text around an offset, cut at spaces where there are some.
inline std::string cut_out(std::string_view text, std::size_t offset, std::size_t around = 30) {
  const std::size_t from = offset > around ? text.find_first_of(' ', offset - around) : 0;
  const std::size_t first = std::min(from, offset);
  return std::string(text.substr(first, offset + around - first));
}

}  // namespace fm::example
