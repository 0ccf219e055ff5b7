// documents: a store of documents with secondary indexes, once in containers of the standard library and once in farmem's,
// driven by the same operations. Prints the speed of both; --check compares every answer. docs/how-to/migrate.md shows how the
// one became the other.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <random>

#include "../support/machine.h"
#include "far_store.h"
#include "plain_store.h"

namespace {

using namespace fm::example;
using fm::literals::operator""_MiB;

/// What one document was measured to need in far memory: itself, its texts and tags, and its places in three indexes.
constexpr std::uint64_t bytes_per_document = 900;
constexpr std::uint64_t objects_per_document = 12;  ///< slots, with those of garbage that is not collected yet
constexpr std::uint64_t documents_per_author = 20, tags = 500, tags_each = 3;

struct arguments {
  machine_options machine;
  std::uint64_t documents = 50'000, operations = 200'000, seed = 1;
  bool plain = true, check = false;
};

document make_document(std::uint64_t id, std::uint64_t authors, std::mt19937_64& random) {
  document d{.id = id,
             .year = static_cast<std::uint32_t>(1900 + random() % 125),
             .author = fmt::format("author {}", random() % authors),
             .text = std::string(100 + random() % 200, static_cast<char>('a' + random() % 26))};
  for (std::uint64_t t = 0; t < tags_each; ++t) d.tags.push_back(fmt::format("tag {}", random() % tags * 3 + t));
  return d;
}

/// Fills a store and runs the operations; the sum is of all answers, so two stores that agree have the same.
struct outcome {
  std::uint64_t sum = 0, size = 0;
  double fill_seconds = 0, run_seconds = 0;
};

template <class Store>
outcome drive(Store& store, const arguments& a) {
  const auto seconds_since = [](auto begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::mt19937_64 random(a.seed);
  const std::uint64_t authors = std::max<std::uint64_t>(1, a.documents / documents_per_author);
  outcome out;
  auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t id = 0; id < a.documents && !stop_requested; ++id) store.put(make_document(id, authors, random));
  out.fill_seconds = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
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
  out.run_seconds = seconds_since(begin);
  out.size = store.size();
  return out;
}

void print(const char* name, const outcome& o, const arguments& a) {
  fmt::print("{:<16} {:>9.0f} documents/s put, {:>9.0f} operations/s, {} documents at the end\n", name,
             double(a.documents) / o.fill_seconds, double(a.operations) / o.run_seconds, o.size);
  std::fflush(stdout);
}

int run(arguments& a) {
  const std::uint64_t heap_bytes = a.documents * bytes_per_document;
  const memory_plan p = make_plan(a.machine, heap_bytes, a.documents * objects_per_document, 3);
  outcome plain;
  if (a.plain || a.check) {  // before the limit, which is for the heap's local memory
    plain_store store;
    print("std, all local", plain = drive(store, a), a);
  }
  a.machine.agents.owner = "documents";
  a.machine.agents.memory_bytes = p.agent_bytes;
  const agent_processes agents(a.machine.agents);
  const memory_limit limit("documents", p.local_bytes);
  print_machine("documents", heap_bytes, p, limit, agents);

  fm::heap h({.cache = p.cache_bytes, .agents = agents.urls(), .name = "documents"});
  far_store store(h);
  const outcome far = drive(store, a);
  print("farmem", far, a);
  const fm::heap_stats st = h.stats();
  print_local_memory(p, limit, heap_bytes, "documents");
  print_collections(st);
  if (!a.check) return 0;
  const bool same = far.sum == plain.sum && far.size == plain.size;
  fmt::print("check: both stores {}\n", same ? "gave the same answers" : "gave DIFFERENT answers");
  return verify_home(h) && same ? 0 : 1;
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
  app.add_option("--seed", a.seed, "of the documents and the operations")->capture_default_str();
  app.add_flag("!--far-only", a.plain, "leave the local store out");
  app.add_flag("--check", a.check, "compare the answers of both stores, and verify the heap");
  declare(app, a.machine, "documents");
  return fm::example::run_program(app, argc, argv, [&] { return run(a); });
}
