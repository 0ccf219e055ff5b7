// Answering queries: files ranked by BM25, with the lines that match best.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "index.h"

namespace fm::example {

/// The words of a query, lower-cased, without repetitions. An identifier stays whole.
std::vector<std::string> query_words(std::string_view text);

struct ranked_file {
  double score = 0;
  std::uint32_t file = 0;
};
/// The `most` files that fit `words` best (Robertson and Zaragoza 2009: k1 = 1.2, b = 0.75).
/// Reads every posting of the words.
std::vector<ranked_file> rank(const inverted_index& index, const std::vector<std::string>& words, std::size_t most);

/// A line of a file with how many of the words it has.
struct matching_line {
  std::size_t number = 0;
  std::size_t words = 0;
  std::string text;
};
/// The `most` lines of the file at `path` that have the most different words, in the order of the file. Reads the
/// file again, in pieces.
std::vector<matching_line> matching_lines(const std::string& path, const std::vector<std::string>& words,
                                          std::size_t most);

/// Runs a query and prints the answer: files with their scores, lines under them.
void answer(const inverted_index& index, const std::string& root, std::string_view query);

}  // namespace fm::example
