// The plain scan; see check.h. Deliberately simple: std::string, std::isalnum, std::map.
#include "check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

namespace fm::example {

namespace {

/// Whether the file is text: the index leaves others out.
bool is_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::istreambuf_iterator<char> end;
  return in && std::find(std::istreambuf_iterator<char>(in), end, '\0') == end;
}

bool in_identifier(char c) {
  return c == '_' || (static_cast<unsigned char>(c) < 128 && std::isalnum(static_cast<unsigned char>(c)) != 0);
}

bool is_word(const std::string& s) {
  return s.size() >= 2 && s.size() <= 64 && std::isdigit(static_cast<unsigned char>(s[0])) == 0;
}

/// Calls f for each word of a text file: identifiers, and the parts of those that have underscores and something else.
template <class F>
void scan(const std::string& path, F&& f) {
  if (!is_text(path)) return;
  std::ifstream in(path, std::ios::binary);
  std::istreambuf_iterator<char> at(in);
  std::string identifier;
  for (bool more = true; more;) {
    more = at != std::istreambuf_iterator<char>();
    const char c = more ? *at : '\0';
    if (more) ++at;
    if (in_identifier(c)) {
      identifier += char(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (identifier.empty()) continue;
    if (is_word(identifier)) f(identifier);
    if (identifier.find('_') != std::string::npos && identifier.find_first_not_of('_') != std::string::npos) {
      std::string part;
      for (const char p : identifier + '_') {
        if (p != '_') {
          part += p;
          continue;
        }
        if (is_word(part)) f(part);
        part.clear();
      }
    }
    identifier.clear();
  }
}

struct counted {
  std::uint64_t files = 0, occurrences = 0, last_file = ~std::uint64_t{0};
};

/// Counts one occurrence of a word in file number `file`.
void count(counted& c, std::uint64_t file) {
  ++c.occurrences;
  if (c.last_file == file) return;
  c.last_file = file;
  ++c.files;
}

}  // namespace

check_result check_against_plain_scan(const inverted_index& index, const std::string& root,
                                      const std::vector<std::string>& paths, std::size_t wanted, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::unordered_map<std::string, counted> from_text;
  for (std::size_t attempt = 0; attempt < wanted * 20 && from_text.size() < wanted / 2 && !paths.empty(); ++attempt) {
    std::string drawn;
    std::uint64_t words = 0;
    scan(root + '/' + paths[random() % paths.size()], [&](const std::string& w) {
      if (random() % ++words == 0) drawn = w;  // each of them is drawn with the same chance
    });
    if (words != 0) from_text.try_emplace(drawn);
  }
  // The words with the smallest salted hashes are an even draw from all different words. A word that is among them at
  // the end has been since it first occurred, because the largest hash kept only falls; so its count is complete.
  const std::size_t even = wanted - from_text.size();
  const std::uint64_t salt = random();
  std::map<std::pair<std::uint64_t, std::string>, counted> smallest;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    scan(root + '/' + paths[i], [&](const std::string& w) {
      if (const auto known = from_text.find(w); known != from_text.end()) {
        count(known->second, i);
        return;
      }
      const std::uint64_t h = (std::hash<std::string>()(w) ^ salt) * 0x9e3779b97f4a7c15u;
      if (smallest.size() >= even && (even == 0 || h > smallest.rbegin()->first.first)) return;
      count(smallest[{h, w}], i);
      if (smallest.size() > even) smallest.erase(std::prev(smallest.end()));
    });
  }

  check_result result;
  const auto compare = [&](const std::string& word, const counted& c) {
    ++result.words;
    result.frequency_sum += c.files;
    std::uint64_t df = 0, occurrences = 0, files = 0, sum = 0;
    if (const fm::ptr<term> t = index.find(word)) {
      df = t->document_frequency;
      occurrences = t->occurrences;
      std::set<std::uint32_t> different;
      index.for_each_posting(t, [&](const posting& p) {
        different.insert(p.file);
        sum += p.frequency;
      });
      files = different.size();
    }
    if (df == c.files && files == c.files && occurrences == c.occurrences && sum == c.occurrences) return;
    ++result.differences;
    if (result.messages.size() < 20)
      result.messages.push_back(
          fmt::format("'{}': the index says {} files ({} in its postings), {} occurrences ({}); the scan {} and {}",
                      word, df, files, occurrences, sum, c.files, c.occurrences));
  };
  for (const auto& [word, c] : from_text) compare(word, c);
  for (const auto& [key, c] : smallest) compare(key.second, c);
  return result;
}

}  // namespace fm::example
