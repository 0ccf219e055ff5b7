// documents: a store of documents with secondary indexes, once in containers of the standard library and once in farmem's,
// driven by the same operations. Prints the speed of both; --check compares every answer. docs/how-to/migrate.md shows how the
// one became the other.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <random>

#include "../support/side_by_side.h"
#include "far_store.h"
#include "plain_store.h"

namespace {

using namespace fm::example;

/// What one document was measured to need in far memory: itself, its texts and tags, and its places in three indexes.
constexpr std::uint64_t bytes_per_document = 900;
constexpr std::uint64_t objects_per_document = 12;  ///< slots, with those of garbage that is not collected yet
constexpr std::uint64_t documents_per_author = 20, tags = 500, tags_each = 3;

struct arguments {
  side_by_side_options both{.name = "documents", .kind = "store", .kinds = "stores"};
  std::uint64_t documents = 50'000, operations = 200'000;
};

document make_document(std::uint64_t id, std::uint64_t authors, std::mt19937_64& random) {
  document d{.id = id,
             .year = static_cast<std::uint32_t>(1900 + random() % 125),
             .author = fmt::format("author {}", random() % authors),
             .text = std::string(100 + random() % 200, static_cast<char>('a' + random() % 26))};
  for (std::uint64_t t = 0; t < tags_each; ++t) d.tags.push_back(fmt::format("tag {}", random() % tags * 3 + t));
  return d;
}

/// The sum is of all answers, so two stores that agree have the same.
struct outcome {
  std::uint64_t sum = 0, size = 0;
  double put_per_second = 0, operations_per_second = 0;
  [[nodiscard]] bool same_answers(const outcome& o) const { return sum == o.sum && size == o.size; }
  [[nodiscard]] std::string summary() const {
    return fmt::format("{:>9.0f} documents/s put, {:>9.0f} operations/s, {} documents at the end", put_per_second,
                       operations_per_second, size);
  }
};

/// Fills a store and runs the operations.
template <class Store>
outcome drive(Store& store, const arguments& a) {
  std::mt19937_64 random(a.both.seed);
  const std::uint64_t authors = std::max<std::uint64_t>(1, a.documents / documents_per_author);
  outcome out;
  stopwatch watch;
  for (std::uint64_t id = 0; id < a.documents && !stop_requested; ++id) store.put(make_document(id, authors, random));
  out.put_per_second = double(a.documents) / watch.lap();
  document d;
  for (std::uint64_t i = 0; i < a.operations && !stop_requested; ++i) {
    const std::uint64_t id = random() % a.documents, kind = random() % 100;
    if (kind < 60) {
      if (store.get(id, d)) out.sum += d.id * 31 + d.year + d.author.size() + d.text.size() + d.tags.size();
    } else if (kind < 80) {
      store.each_by(fmt::format("author {}", random() % authors),
                    [&](std::uint64_t of, std::uint32_t year) { out.sum += of ^ year; });
    } else if (kind < 85) {
      store.each_tagged(fmt::format("tag {}", random() % tags * 3),
                        [&](std::uint64_t of, std::uint32_t year) { out.sum += of ^ year; });
    } else if (kind < 95) {
      store.put(make_document(id, authors, random));
    } else {
      out.sum += store.erase(id);
    }
  }
  out.operations_per_second = double(a.operations) / watch.lap();
  out.size = store.size();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Keeps documents with secondary indexes in a far-memory heap, and beside that in local containers.",
               "documents");
  app.add_option("--documents", a.documents, "documents that are put first")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--operations", a.operations,
                 "operations after that: 60 % reads, 25 % queries, 10 % puts, 5 % erasures")
      ->capture_default_str();
  declare(app, a.both, "documents");
  return run_program(app, argc, argv, [&] {
    return run_side_by_side<plain_store, far_store>(a.both, a.documents * bytes_per_document,
                                                    a.documents * objects_per_document,
                                                    [&](auto& store) { return drive(store, a); });
  });
}
