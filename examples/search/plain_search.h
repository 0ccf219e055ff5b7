// Pages that are searched by their words, in containers of the standard library. far_search.h is the same in far memory; the
// guide docs/how-to/migrate.md compares the two.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text.h"

namespace fm::example {

class plain_search {
 public:
  /// Adds a page, or replaces the one of the same id.
  void put(std::uint64_t id, const std::string& text) {
    erase(id);
    std::uint64_t words = 0;
    each_word(text, [&](const std::string& word, std::uint64_t place, std::size_t) {
      by_word_[word].push_back({id, place});
      ++words;
    });
    pages_[id] = {.words = words, .text = text};
    words_ += words;
  }

  bool erase(std::uint64_t id) {
    const auto at = pages_.find(id);
    if (at == pages_.end()) return false;
    for (const std::string& word : distinct_words(at->second.text)) {
      std::vector<occurrence>& all = by_word_[word];
      std::erase_if(all, [&](const occurrence& o) { return o.page == id; });
      if (all.empty()) by_word_.erase(word);
    }
    words_ -= at->second.words;
    pages_.erase(at);
    return true;
  }

  /// The best pages that have some of the query's words.
  [[nodiscard]] std::vector<hit> best(const std::string& query, std::size_t most) const {
    ranking scores;
    const double mean_length =
        static_cast<double>(words_) / static_cast<double>(std::max<std::size_t>(1, pages_.size()));
    for (const std::string& word : distinct_words(query)) {
      std::unordered_map<std::uint64_t, std::uint64_t> times;
      if (const auto at = by_word_.find(word); at != by_word_.end())
        for (const occurrence& o : at->second) ++times[o.page];
      scores.add(times, pages_.size(), mean_length, [&](std::uint64_t page) { return pages_.at(page).words; });
    }
    return scores.best(most);
  }

  /// Ids of the pages that have all of the query's words, in order.
  [[nodiscard]] std::vector<std::uint64_t> with_all(const std::string& query) const {
    std::unordered_map<std::uint64_t, std::size_t> found;
    const std::vector<std::string> words = distinct_words(query);
    for (std::size_t w = 0; w < words.size(); ++w) {
      const auto at = by_word_.find(words[w]);
      if (at == by_word_.end()) return {};
      for (const occurrence& o : at->second) {
        if (w == 0)
          found[o.page] = 1;
        else if (const auto page = found.find(o.page); page != found.end() && page->second == w)
          ++page->second;
      }
    }
    std::vector<std::uint64_t> ids;
    for (const auto& [page, has] : found)
      if (has == words.size()) ids.push_back(page);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  /// How often the words of a phrase follow each other.
  [[nodiscard]] std::uint64_t count_phrase(const std::string& phrase) const {
    std::vector<occurrence> ends;  // of the part of the phrase so far
    bool is_first = true;
    each_word(phrase, [&](const std::string& word, std::uint64_t, std::size_t) {
      const auto at = by_word_.find(word);
      if (at == by_word_.end()) {
        ends.clear();
      } else if (is_first) {
        ends = at->second;
      } else {
        std::unordered_set<std::uint64_t> wanted;
        for (const occurrence& o : ends) wanted.insert(key(o.page, o.place + 1));
        ends.clear();
        for (const occurrence& o : at->second)
          if (wanted.contains(key(o.page, o.place))) ends.push_back(o);
      }
      is_first = false;
    });
    return ends.size();
  }

  /// Text around the first occurrence of a word, empty if the page does not have it.
  [[nodiscard]] std::string snippet(std::uint64_t id, const std::string& sought) const {
    const auto at = pages_.find(id);
    if (at == pages_.end()) return {};
    std::string found;
    each_word(at->second.text, [&](const std::string& word, std::uint64_t, std::size_t offset) {
      if (found.empty() && word == sought) found = cut_out(at->second.text, offset);
    });
    return found;
  }

  [[nodiscard]] std::uint64_t size() const { return pages_.size(); }
  [[nodiscard]] std::uint64_t word_count() const { return by_word_.size(); }

 private:
  struct page {
    std::uint64_t words = 0;
    std::string text;
  };
  static std::uint64_t key(std::uint64_t page, std::uint64_t place) { return page << 24 | place; }

  std::unordered_map<std::uint64_t, page> pages_;
  std::unordered_map<std::string, std::vector<occurrence>> by_word_;
  std::uint64_t words_ = 0;
};

}  // namespace fm::example
