// The inverted index in the far heap: a dictionary from word to term, a postings list for each term, and the file table.
// All of it is managed objects; local memory holds only the roots, the locks and the counters.
//
// The dictionary is split by hash into shards with a lock each, so that several threads can add files. Postings are in the
// order in which a word was first met in each file. Reading is for when nothing is being added.
//
// Invariant: a term has one posting for each file that has it. A file of several pieces finds its postings again by what
// the terms note of it, so only one such file is added at a time.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dictionary.h"
#include "tokenizer.h"

namespace fm::example {

/// One file of the tree.
struct source_file {
  std::uint64_t words = 0;   ///< its length, for ranking
  fm::ref<fm::string> path;  ///< below the root of the tree
};

/// The root of an index that is kept at its agents: what another process needs to go on with it.
struct kept_index {
  struct part {
    fm::ref<fm::vector<fm::ref<term>>> buckets;
    std::uint64_t terms = 0;
  };
  std::array<part, 64> shards;
  fm::ref<fm::vector<fm::ref<source_file>>> files;
  std::uint64_t postings = 0, words = 0;
};

class inverted_index {
 public:
  explicit inverted_index(fm::heap& h);
  /// Goes on with one that was kept. O(shards).
  inverted_index(fm::heap& h, const fm::ptr<kept_index>& kept);
  /// Makes the root that the other constructor takes. While nobody adds anything. O(shards).
  [[nodiscard]] fm::ptr<kept_index> keep() const;

  /// Makes the record of a file, whose words are added then. Its number. Thread-safe. Throws fm::error as allocation and
  /// misses do; so does add_words.
  std::uint32_t add_file(std::string_view path);
  /// Adds a piece of a file; the number of new postings. Thread-safe. With `again` the file has other pieces, too, and no
  /// other file that has several is being added.
  std::uint64_t add_words(std::uint32_t file, const word_counts& words, bool again);

  /// The term of a lower-case word, or null.
  [[nodiscard]] fm::ptr<term> find(std::string_view word) const;
  /// Calls f(posting) for each file that has the term.
  template <class F>
  void for_each_posting(const fm::ptr<term>& t, F&& f) const {
    const fm::vector<posting> list = t->postings;
    count_operations(1 + list.size());
    list.for_each(f);
  }
  [[nodiscard]] fm::ptr<source_file> file(std::uint32_t number) const;
  [[nodiscard]] std::string path_of(std::uint32_t number) const;

  [[nodiscard]] std::uint64_t files() const noexcept { return files_count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t postings() const noexcept { return postings_count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t words() const noexcept { return words_count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t terms() const;
  /// Dictionary lookups, postings appended or read, file records made or read.
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }

 private:
  struct shard {
    template <class... A>
    explicit shard(fm::heap& h, const A&... kept) : words(h, kept...) {}
    mutable std::mutex lock;
    dictionary words;
  };
  static constexpr std::size_t shards_count = 64;
  static std::size_t shard_of(std::uint64_t hash) noexcept { return hash >> 58; }
  void count_operations(std::uint64_t n) const noexcept { operations_.fetch_add(n, std::memory_order_relaxed); }

  bool add_word(shard& s, std::uint32_t file, std::string_view word, const word_counts::entry& e, bool again);
  [[nodiscard]] fm::ptr<source_file> file_record(std::uint32_t number) const;

  fm::heap& heap_;
  std::vector<std::unique_ptr<shard>> shards_;
  mutable std::mutex files_lock_;
  fm::vector<fm::ref<source_file>> files_;
  std::atomic<std::uint64_t> files_count_{0}, postings_count_{0}, words_count_{0};
  mutable std::atomic<std::uint64_t> operations_{0};
};

}  // namespace fm::example
