// BM25 and matching lines; see query.h.
#include "query.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>

namespace fm::example {

namespace {

constexpr double k1 = 1.2, b = 0.75;
constexpr std::size_t files_shown = 5, lines_shown = 3, line_bytes_shown = 120;
constexpr std::size_t line_bytes_kept = 4096;  // of a line that is read, for its indentation may be long

/// Without indentation, and cut where it is long.
std::string shortened(std::string_view line) {
  const auto from = line.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  line.remove_prefix(from);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  std::string out(line.substr(0, line_bytes_shown));
  if (line.size() > line_bytes_shown) out += "...";
  for (char& c : out)  // a control character of somebody's file must not reach the terminal
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

}  // namespace

std::vector<std::string> query_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (word.size() >= word_bytes_min && word.size() <= word_bytes_max &&
        std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const unsigned char lower = detail::word_character[static_cast<unsigned char>(c)];
    if (lower != 0)
      word += char(lower);
    else
      finish();
  }
  finish();
  return words;
}

std::vector<ranked_file> rank(const inverted_index& index, const std::vector<std::string>& words, std::size_t most) {
  const auto n = double(index.files());
  if (n == 0) return {};
  const double average = double(index.words()) / n;
  std::unordered_map<std::uint32_t, double> scores;
  for (const std::string& w : words) {
    const fm::ptr<term> t = index.find(w);
    if (!t) continue;
    const auto df = double(t->document_frequency);
    const double idf = std::log(1 + (n - df + 0.5) / (df + 0.5));
    index.for_each_posting(t, [&](const posting& p) {
      const auto length = double(index.file(p.file)->words);
      const double f = p.frequency;
      scores[p.file] += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / average));
    });
  }
  std::vector<ranked_file> best;
  best.reserve(scores.size());
  for (const auto& [file, score] : scores) best.push_back({score, file});
  const auto middle = best.begin() + std::ptrdiff_t(std::min(most, best.size()));
  std::partial_sort(best.begin(), middle, best.end(), [](const ranked_file& x, const ranked_file& y) {
    return x.score != y.score ? x.score > y.score : x.file < y.file;
  });
  best.erase(middle, best.end());
  return best;
}

std::vector<matching_line> matching_lines(const std::string& path, const std::vector<std::string>& words,
                                          std::size_t most) {
  std::vector<matching_line> best;
  text_file file;
  if (!file.open(path)) return best;
  word_scanner scanner;
  std::string line;  // as much of it as may be shown
  std::vector<bool> seen(words.size());
  std::size_t number = 1;
  const auto note = [&](std::string_view w) {
    const auto at = std::find(words.begin(), words.end(), w);
    if (at != words.end()) seen[std::size_t(at - words.begin())] = true;
  };
  const auto end_line = [&] {
    scanner.end(note);
    if (const auto different = std::size_t(std::count(seen.begin(), seen.end(), true)); different != 0) {
      best.push_back({number, different, shortened(line)});
      std::stable_sort(best.begin(), best.end(), [](const auto& x, const auto& y) { return x.words > y.words; });
      if (best.size() > most) best.resize(most);
    }
    seen.assign(words.size(), false);
    line.clear();
    ++number;
  };
  for (std::string_view piece; !(piece = file.next()).empty();) {
    while (!piece.empty()) {
      const std::size_t stop = piece.find('\n');
      const std::string_view part = piece.substr(0, stop);
      line.append(part.substr(0, line_bytes_kept - std::min(line_bytes_kept, line.size())));
      scanner.scan(part, note);
      if (stop == std::string_view::npos) break;
      end_line();
      piece.remove_prefix(stop + 1);
    }
  }
  end_line();
  std::sort(best.begin(), best.end(), [](const auto& x, const auto& y) { return x.number < y.number; });
  return best;
}

void answer(const inverted_index& index, const std::string& root, std::string_view query) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> words = query_words(query);
  const std::vector<ranked_file> best = rank(index, words, files_shown);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::string frequencies;
  for (const std::string& w : words) {
    const fm::ptr<term> t = index.find(w);
    frequencies += fmt::format("{}{} in {} files", frequencies.empty() ? "" : ", ", w,
                               t ? std::uint32_t(t->document_frequency) : 0);
  }
  fmt::print("\n> {}\n  {} ({:.1f} ms)\n", fmt::join(words, " "),
             words.empty() ? "no words of 2 to 64 letters, digits and underscores" : frequencies, took.count());
  for (const ranked_file& f : best) {
    const std::string path = index.path_of(f.file);
    fmt::print("  {:6.2f}  {}\n", f.score, path);
    for (const matching_line& l : matching_lines(root + '/' + path, words, lines_shown))
      fmt::print("          {:>6}: {}\n", l.number, l.text);
  }
  std::fflush(stdout);
}

}  // namespace fm::example
