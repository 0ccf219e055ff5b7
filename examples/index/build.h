// Reading the tree: which files there are, a survey that estimates how large their index will be, and the indexing itself, on
// several threads with a progress line. SIGINT and SIGTERM stop it between two pieces of files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../support/memory_watch.h"
#include "index.h"

namespace fm::example {

/// Paths of the regular files under `root`, relative to it, sorted. Symbolic links are not followed. Throws fm::error
/// (not_found) when `root` is no directory.
std::vector<std::string> list_files(const std::string& root);

/// What a first pass over the files counts, without keeping any of it.
struct survey {
  std::uint64_t files = 0;  ///< that are text
  std::uint64_t bytes = 0;
  std::uint64_t postings = 0;
  std::uint64_t terms = 0;  ///< different words, estimated within about one percent
  double seconds = 0;

  /// What the index was measured to need, for the estimate: with the headers of the objects, and with what growing leaves behind.
  static constexpr std::uint64_t bytes_per_term = 208, bytes_per_posting = 12, bytes_per_file = 120;
  /// Bytes of the managed objects that the index will make, and their number.
  [[nodiscard]] std::uint64_t index_bytes() const noexcept;
  [[nodiscard]] std::uint64_t index_objects() const noexcept;
};
/// Both passes throw what a thread threw, and what `watch` throws when local memory runs out.
survey survey_files(const std::string& root, const std::vector<std::string>& paths, unsigned threads,
                    const memory_watch& watch);

/// Local memory that reading and counting need beside the heap: the names of the files, and what each thread has.
std::uint64_t local_bytes_of(const std::vector<std::string>& paths, unsigned threads);

/// Adds all files to the index. Gives the seconds that it took.
double index_files(inverted_index& index, const std::string& root, const std::vector<std::string>& paths,
                   unsigned threads, const memory_watch& watch);

}  // namespace fm::example
