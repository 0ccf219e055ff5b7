// search: pages found by their words, once in containers of the standard library and once in farmem's, driven by the same
// operations. Prints the speed of both; --check compares every answer. docs/how-to/migrate.md shows how the one became the
// other.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <random>

#include "../support/side_by_side.h"
#include "far_search.h"
#include "plain_search.h"

namespace {

using namespace fm::example;

/// An estimate of what one page needs in far memory: its text, itself, and its places in the index.
constexpr std::uint64_t bytes_per_page = 3'500;
constexpr std::uint64_t objects_per_page = 8;  ///< slots, with those of garbage that is not collected yet
constexpr std::uint64_t vocabulary = 40'000, words_each = 80;

struct arguments {
  side_by_side_options both{.name = "search", .kind = "search", .kinds = "searches"};
  std::uint64_t pages = 20'000, operations = 10'000;
};

/// A word: the more often, the smaller its number.
std::string word_of(std::mt19937_64& random) {
  const double u = static_cast<double>(random() >> 11) * 0x1p-53;
  return fmt::format("w{}", static_cast<std::uint64_t>(static_cast<double>(vocabulary) * u * u * u));
}

std::string text_of(std::uint64_t words, std::mt19937_64& random) {
  std::string text = word_of(random);
  for (std::uint64_t i = 1; i < words; ++i) text += ' ' + word_of(random);
  return text;
}

/// The sum is of all answers, so two that agree have the same.
struct outcome {
  std::uint64_t sum = 0, size = 0, words = 0;
  double put_per_second = 0, operations_per_second = 0;
  [[nodiscard]] bool same_answers(const outcome& o) const { return sum == o.sum && size == o.size && words == o.words; }
  [[nodiscard]] std::string summary() const {
    return fmt::format("{:>8.0f} pages/s put, {:>8.0f} operations/s, {} pages and {} words at the end", put_per_second,
                       operations_per_second, size, words);
  }
};

template <class Search>
outcome drive(Search& search, const arguments& a) {
  std::mt19937_64 random(a.both.seed);
  outcome out;
  stopwatch watch;
  for (std::uint64_t id = 0; id < a.pages && !stop_requested; ++id) search.put(id, text_of(words_each, random));
  out.put_per_second = double(a.pages) / watch.lap();
  for (std::uint64_t i = 0; i < a.operations && !stop_requested; ++i) {
    const std::uint64_t id = random() % a.pages, kind = random() % 100;
    if (kind < 50) {
      for (const hit& h : search.best(text_of(2, random), 10)) out.sum = out.sum * 31 + h.page;
    } else if (kind < 70) {
      for (const std::uint64_t found : search.with_all(text_of(3, random))) out.sum += found;
    } else if (kind < 80) {
      out.sum += search.count_phrase(text_of(2, random));
    } else if (kind < 90) {
      out.sum += search.snippet(id, word_of(random)).size();
    } else if (kind < 97) {
      search.put(id, text_of(words_each, random));
    } else {
      out.sum += search.erase(id);
    }
  }
  out.operations_per_second = double(a.operations) / watch.lap();
  out.size = search.size();
  out.words = search.word_count();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Keeps pages and an index of their words in a far-memory heap, and beside that in local containers.",
               "search");
  app.add_option("--pages", a.pages, "pages that are put first")->check(CLI::Range(1, 1 << 30))->capture_default_str();
  app.add_option("--operations", a.operations,
                 "operations after that: 80 % searches, 10 % snippets, 7 % puts, 3 % erasures")
      ->capture_default_str();
  declare(app, a.both, "pages");
  return run_program(app, argc, argv, [&] {
    return run_side_by_side<plain_search, far_search>(a.both, a.pages * bytes_per_page, a.pages * objects_per_page,
                                                      [&](auto& search) { return drive(search, a); });
  });
}
