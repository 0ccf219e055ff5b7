// The part of the dictionary that one lock protects: a managed hash table from word to term. Buckets are chains of terms
// that hang in an fm::vector, so that a lookup brings in a chunk of buckets and the terms of one chain, never the table.
//
// Not thread-safe; inverted_index has one lock for each.
#pragma once

#include <cstdint>
#include <farmem/farmem.h>
#include <string_view>

namespace fm::example {

/// One word's occurrences in one file.
struct posting {
  std::uint32_t file = 0;
  std::uint32_t frequency = 0;
};

/// What the index knows about a word.
struct term {
  std::uint64_t hash = 0;
  std::uint64_t occurrences = 0;         ///< in all files
  std::uint32_t document_frequency = 0;  ///< files that have it: the number of its postings
  std::uint32_t large_file = 0;          ///< number + 1 of the last file of several pieces that has it; 0: none
  std::uint32_t large_posting = 0;       ///< which of its postings is that file's
  fm::ref<term> next;                    ///< in the same bucket
  fm::ref<fm::string> word;
  fm::ref<fm::vector<posting>> postings;
};

class dictionary {
 public:
  explicit dictionary(fm::heap& h);
  /// One of `size` terms in buckets that were made before.
  dictionary(fm::heap& h, const fm::vector<fm::ref<term>>& buckets, std::uint64_t size)
      : heap_(h), buckets_(buckets), buckets_count_(buckets.size()), size_(size) {}

  /// The term of `word`, or null. One chain of about one term.
  [[nodiscard]] fm::ptr<term> find(std::string_view word, std::uint64_t hash) const;
  /// The same; makes it when it is not there.
  fm::ptr<term> get_or_insert(std::string_view word, std::uint64_t hash);
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const fm::vector<fm::ref<term>>& buckets() const noexcept { return buckets_; }

 private:
  [[nodiscard]] std::uint64_t bucket_of(std::uint64_t hash) const noexcept { return hash & (buckets_count_ - 1); }
  void grow();

  fm::heap& heap_;
  fm::vector<fm::ref<term>> buckets_;
  std::uint64_t buckets_count_ = 1024;
  std::uint64_t size_ = 0;
};

}  // namespace fm::example
