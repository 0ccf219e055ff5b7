// What a word is, and how often each occurs in one file. A word is an identifier: a run of ASCII letters, digits and
// underscores that does not begin with a digit, in lower case, of 2 to 64 characters. The parts of an identifier between
// underscores are words too, so "pthread_mutex_lock" is found by itself and by "mutex".
//
// Nothing here knows the managed heap: counting happens in local memory, one file at a time, and the tables are reused.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fm::example {

constexpr std::size_t word_bytes_min = 2, word_bytes_max = 64;
/// Larger files are left out: a thread holds one file in memory at a time.
constexpr std::uint64_t file_bytes_max = 16u << 20;

namespace detail {
/// The lower-case character if `c` may stand in a word, else 0.
extern const std::array<unsigned char, 256> word_character;
}  // namespace detail

/// Reads a text file into `text`; false when it cannot be read, is larger than file_bytes_max, or is not text (holds a NUL).
bool read_text(const std::string& path, std::string& text);

/// Lower-cases `text` in place and calls `f(std::string_view)` for each word, in order; the views point into `text`.
template <class F>
void for_each_word(char* text, std::size_t size, F&& f) {
  const auto emit = [&f](const char* from, const char* to) {
    const auto n = std::size_t(to - from);
    if (n >= word_bytes_min && n <= word_bytes_max && (*from < '0' || *from > '9')) f(std::string_view(from, n));
  };
  char* p = text;
  char* const end = text + size;
  while (p != end) {
    const unsigned char first = detail::word_character[static_cast<unsigned char>(*p)];
    if (first == 0) {
      ++p;
      continue;
    }
    char* const begin = p;
    std::size_t underscores = 0;
    for (unsigned char c; p != end && (c = detail::word_character[static_cast<unsigned char>(*p)]) != 0; ++p) {
      *p = char(c);
      underscores += c == '_';
    }
    emit(begin, p);
    if (underscores == 0 || underscores == std::size_t(p - begin)) continue;
    for (const char* part = begin; part < p;) {
      const char* stop = part;
      while (stop < p && *stop != '_') ++stop;
      emit(part, stop);
      part = stop + 1;
    }
  }
}

/// FNV-1a with a final mix; the counting table and the shards of the dictionary share it.
std::uint64_t hash_word(std::string_view word) noexcept;

/// The words of one file with their frequencies: an open-addressed table that is emptied and used again.
class word_counts {
 public:
  struct entry {
    std::string_view word;
    std::uint64_t hash = 0;
    std::uint32_t count = 0;
  };

  word_counts();
  /// Counts the words of `text`, which is lower-cased in place and must live as long as the entries are used.
  void count(std::string& text);
  /// The distinct words, in the order of their first occurrence.
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }
  /// All words, repetitions included: the length of the file.
  [[nodiscard]] std::uint32_t total() const noexcept { return total_; }

 private:
  void add(std::string_view word);
  void grow();

  std::vector<std::uint32_t> table_;  // index into entries_ plus one; 0: empty
  std::vector<entry> entries_;
  std::uint32_t total_ = 0;
};

}  // namespace fm::example
