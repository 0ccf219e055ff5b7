// What a word is, how a file is read, and how often each word occurs in a piece of it. A word is an identifier: a run of
// ASCII letters, digits and underscores that does not begin with a digit, in lower case, of 2 to 64 characters. The parts
// of an identifier between underscores are words too, so "pthread_mutex_lock" is found by itself and by "mutex".
//
// Nothing here knows the managed heap. Invariant: a thread needs at most word_counts::bytes_max of local memory and one
// buffer of piece_bytes, however large a file is and whatever is in it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fm::example {

constexpr std::size_t word_bytes_min = 2, word_bytes_max = 64;
/// Bytes of text whose words are counted together. A larger file is several pieces.
constexpr std::size_t piece_bytes = 256u << 10;

namespace detail {
/// The lower-case character if `c` may stand in a word, else 0.
extern const std::array<unsigned char, 256> word_character;
}  // namespace detail

/// A text file, read a piece at a time into one buffer that is used again for the next file.
class text_file {
 public:
  text_file() : buffer_(piece_bytes) {}
  ~text_file() { close(); }
  text_file(const text_file&) = delete;
  text_file& operator=(const text_file&) = delete;

  /// False when it cannot be read, or is not text: it holds a NUL somewhere. A file of several pieces is read twice for that.
  bool open(const std::string& path);
  /// The next piece; empty at the end.
  std::string_view next();
  /// Whether it is more than one piece.
  [[nodiscard]] bool is_large() const noexcept { return large_; }
  void close() noexcept;

 private:
  std::vector<char> buffer_;
  int fd_ = -1;
  std::size_t first_ = 0;  ///< bytes in the buffer that next() has not given yet
  bool large_ = false;
};

/// Finds the words of a text that comes in pieces of any size: a word may begin in one and end in another.
class word_scanner {
 public:
  /// Calls `f(std::string_view)` for each word that ends in `text`. The views are good until f returns.
  template <class F>
  void scan(std::string_view text, F&& f) {
    for (const char raw : text) {
      const unsigned char c = detail::word_character[static_cast<unsigned char>(raw)];
      if (c == 0) {
        if (whole_.size != 0) end(f);
        continue;
      }
      whole_.add(c);
      if (c != '_') {
        part_.add(c);
        continue;
      }
      split_ = true;
      part_.emit(f);
    }
  }
  /// The text has ended: what has begun is a word.
  template <class F>
  void end(F&& f) {
    if (split_) part_.emit(f);
    part_.size = 0;
    split_ = false;
    whole_.emit(f);
  }

 private:
  /// A run of characters. Longer ones than a word are not kept, only known to be too long.
  struct run {
    std::array<char, word_bytes_max> text;
    std::size_t size = 0;
    void add(unsigned char c) noexcept {
      if (size < word_bytes_max) text[size] = static_cast<char>(c);
      if (size <= word_bytes_max) ++size;
    }
    template <class F>
    void emit(F&& f) {
      if (size >= word_bytes_min && size <= word_bytes_max && (text[0] < '0' || text[0] > '9'))
        f(std::string_view(text.data(), size));
      size = 0;
    }
  };
  run whole_, part_;  ///< the identifier, and what has come since its last underscore
  bool split_ = false;
};

/// FNV-1a with a final mix; the counting table and the shards of the dictionary share it.
std::uint64_t hash_word(std::string_view word) noexcept;

/// The different words of a piece with their frequencies: an open-addressed table that is emptied and used again.
class word_counts {
 public:
  struct entry {
    std::uint64_t hash = 0;
    std::uint32_t count = 0;
    std::uint32_t at = 0;  ///< of its characters
    std::uint32_t size = 0;
  };
  /// No piece has more words. Words of one identifier overlap: "ab_" is one of three characters and one of two.
  static constexpr std::size_t words_max = piece_bytes / 2 + 2;
  /// Local memory of one of these, at most: entries, characters, and the table.
  static constexpr std::size_t bytes_max = words_max * sizeof(entry) + 2 * piece_bytes + 4 * words_max * 4;

  word_counts();
  /// Forgets the piece before, and counts the words that end in this one. `last`: the file ends with it.
  void count(std::string_view piece, bool last);
  /// The distinct words, in the order of their first occurrence.
  [[nodiscard]] std::span<const entry> entries() const noexcept { return entries_; }
  [[nodiscard]] std::string_view word(const entry& e) const noexcept { return {characters_.data() + e.at, e.size}; }
  /// All words of the piece, repetitions included.
  [[nodiscard]] std::uint32_t total() const noexcept { return total_; }

 private:
  void add(std::string_view word);
  void grow();

  word_scanner scanner_;
  std::vector<std::uint32_t> table_;  // index into entries_ plus one; 0: empty. Only the first slots_ are in use
  std::size_t slots_;
  std::vector<entry> entries_;
  std::vector<char> characters_;
  std::uint32_t total_ = 0;
};

}  // namespace fm::example
