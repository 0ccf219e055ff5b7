// Pages that are searched by their words, in containers of farmem. plain_search.h is the same in local memory; the guide
// docs/how-to/migrate.md compares the two.
#pragma once

#include <farmem/farmem.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text.h"

namespace fm::example {

struct page {
  std::uint64_t words = 0;
  ref<string> text;
};

class far_search {
 public:
  explicit far_search(heap& h) : heap_(h), pages_(h), by_word_(h) {}

  /// Adds a page, or replaces the one of the same id.
  void put(std::uint64_t id, const std::string& text) {
    erase(id);
    std::uint64_t words = 0;
    each_word(text, [&](const std::string& word, std::uint64_t place, std::size_t) {
      by_word_.get_or_insert(word, [&] { return list(heap_); }).push_back({id, place});
      ++words;
    });
    pages_.insert_or_assign(id, heap_.make<page>({.words = words, .text = heap_.str(text)}));
    words_ += words;
  }

  bool erase(std::uint64_t id) {
    const ptr<page> gone = pages_.find(id);
    if (!gone) return false;
    for (const std::string& word : distinct_words(string(gone->text).str())) {
      const list all = by_word_.find(word);
      erase_if(all, [&](const occurrence& o) { return o.page == id; });
      if (all.empty()) by_word_.erase(word);
    }
    words_ -= gone->words;
    pages_.erase(id);
    return true;
  }

  /// The best pages that have some of the query's words.
  [[nodiscard]] std::vector<hit> best(const std::string& query, std::size_t most) const {
    ranking scores;
    const double mean_length =
        static_cast<double>(words_) / static_cast<double>(std::max<std::size_t>(1, pages_.size()));
    for (const std::string& word : distinct_words(query)) {
      std::unordered_map<std::uint64_t, std::uint64_t> times;
      if (const list all = by_word_.find(word)) all.for_each([&](const occurrence& o) { ++times[o.page]; });
      scores.add(times, pages_.size(), mean_length, [&](std::uint64_t id) { return pages_.find(id)->words; });
    }
    return scores.best(most);
  }

  /// Ids of the pages that have all of the query's words, in order.
  [[nodiscard]] std::vector<std::uint64_t> with_all(const std::string& query) const {
    std::unordered_map<std::uint64_t, std::size_t> found;
    const std::vector<std::string> words = distinct_words(query);
    for (std::size_t w = 0; w < words.size(); ++w) {
      const list all = by_word_.find(words[w]);
      if (!all) return {};
      all.for_each([&](const occurrence& o) {
        if (w == 0)
          found[o.page] = 1;
        else if (const auto at = found.find(o.page); at != found.end() && at->second == w)
          ++at->second;
      });
    }
    std::vector<std::uint64_t> ids;
    for (const auto& [id, has] : found)
      if (has == words.size()) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  /// How often the words of a phrase follow each other.
  [[nodiscard]] std::uint64_t count_phrase(const std::string& phrase) const {
    std::vector<occurrence> ends;  // of the part of the phrase so far
    bool is_first = true;
    each_word(phrase, [&](const std::string& word, std::uint64_t, std::size_t) {
      const list all = by_word_.find(word);
      if (!all) {
        ends.clear();
      } else if (is_first) {
        ends.assign(all.begin(), all.end());
      } else {
        std::unordered_set<std::uint64_t> wanted;
        for (const occurrence& o : ends) wanted.insert(key(o.page, o.place + 1));
        ends.clear();
        all.for_each([&](const occurrence& o) {
          if (wanted.contains(key(o.page, o.place))) ends.push_back(o);
        });
      }
      is_first = false;
    });
    return ends.size();
  }

  /// Text around the first occurrence of a word, empty if the page does not have it.
  [[nodiscard]] std::string snippet(std::uint64_t id, const std::string& sought) const {
    const ptr<page> at = pages_.find(id);
    if (!at) return {};
    const std::string text = string(at->text).str();
    std::string found;
    each_word(text, [&](const std::string& word, std::uint64_t, std::size_t offset) {
      if (found.empty() && word == sought) found = cut_out(text, offset);
    });
    return found;
  }

  [[nodiscard]] std::uint64_t size() const { return pages_.size(); }
  [[nodiscard]] std::uint64_t word_count() const { return by_word_.size(); }

 private:
  using list = vector<occurrence>;
  static std::uint64_t key(std::uint64_t page, std::uint64_t place) { return page << 24 | place; }

  heap& heap_;
  hash_map<std::uint64_t, ref<page>> pages_;
  hash_map<string, ref<list>> by_word_;
  std::uint64_t words_ = 0;
};

}  // namespace fm::example
