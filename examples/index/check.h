// The independent count: what the index says about random words, compared with a plain scan of the same files that shares no
// code with the tokenizer and uses no managed memory beyond asking the index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "index.h"

namespace fm::example {

struct check_result {
  std::uint64_t words = 0;  ///< compared
  std::uint64_t differences = 0;
  std::uint64_t frequency_sum = 0;  ///< of the document frequencies compared
  std::vector<std::string> messages;
};

/// Compares document frequency, occurrences and postings of `count` words, half of them drawn evenly from all different words
/// and half from running text, so that common ones are among them. The draw depends on `seed` only.
check_result check_against_plain_scan(const inverted_index& index, const std::string& root,
                                      const std::vector<std::string>& paths, std::size_t count, std::uint64_t seed);

}  // namespace fm::example
