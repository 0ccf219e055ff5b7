// network: who knows whom, once in containers of the standard library and once in farmem's, driven by the same operations.
// Prints the speed of both; --check compares every answer. docs/how-to/migrate.md shows how the one became the other.
//
// Exit codes: 0 all well, 1 something failed or --check found a difference, 2 a mistake in the arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <random>

#include "../support/side_by_side.h"
#include "far_network.h"
#include "plain_network.h"

namespace {

using namespace fm::example;

/// An estimate of what one person needs in far memory, with the list of those that it knows.
constexpr std::uint64_t bytes_per_person = 550;
constexpr std::uint64_t objects_per_person = 6;  ///< slots, with those of garbage that is not collected yet
constexpr std::uint64_t known_each = 8;          ///< connections made, a person
constexpr std::uint64_t neighbourhood = 200;     ///< most know others of nearby ids

struct arguments {
  side_by_side_options both{.name = "network", .kind = "network", .kinds = "networks"};
  std::uint64_t persons = 50'000, operations = 20'000;
};

/// The answers, and how fast they came.
struct outcome {
  std::uint64_t sum = 0, triangles = 0, core = 0, size = 0;
  groups found;
  double persons_per_second = 0, operations_per_second = 0, analysis_seconds = 0;
  [[nodiscard]] bool same_answers(const outcome& o) const {
    return sum == o.sum && triangles == o.triangles && core == o.core && size == o.size && found == o.found;
  }
  [[nodiscard]] std::string summary() const {
    return fmt::format(
        "{:>9.0f} persons/s added and connected, {:>8.0f} operations/s, analyses in {:.2f} s\n"
        "{:<16} {} persons, {} groups, {} triangles, {} in the core",
        persons_per_second, operations_per_second, analysis_seconds, "", size, found.count, triangles, core);
  }
};

/// Someone whom `id` may know: three of four times somebody near.
std::uint64_t other_than(std::uint64_t id, std::uint64_t persons, std::mt19937_64& random) {
  return random() % 4 != 0 ? (id + 1 + random() % neighbourhood) % persons : random() % persons;
}

template <class Network>
void operate(Network& network, const arguments& a, std::mt19937_64& random, outcome& out) {
  for (std::uint64_t i = 0; i < a.operations && !stop_requested; ++i) {
    const std::uint64_t id = random() % a.persons, kind = random() % 100;
    const std::uint64_t other = other_than(id, a.persons, random);
    if (kind < 40) {
      out.sum += network.name(id).size();
    } else if (kind < 60) {
      for (const suggestion& s : network.suggest(id, 10)) out.sum += s.id * s.common;
    } else if (kind < 70) {
      out.sum += network.distance(id, other, 3) % 1000;
    } else if (kind < 85) {
      out.sum += network.connect(id, other);
    } else if (kind < 95) {
      out.sum += network.disconnect(id, other);
    } else if (!network.remove(id)) {
      out.sum += network.add(id, fmt::format("person {}", id));
    }
  }
}

template <class Network>
outcome drive(Network& network, const arguments& a) {
  std::mt19937_64 random(a.both.seed);
  outcome out;
  stopwatch watch;
  for (std::uint64_t id = 0; id < a.persons && !stop_requested; ++id) network.add(id, fmt::format("person {}", id));
  for (std::uint64_t id = 0; id < a.persons && !stop_requested; ++id)
    for (std::uint64_t n = 0; n < known_each; ++n) network.connect(id, other_than(id, a.persons, random));
  out.persons_per_second = double(a.persons) / watch.lap();
  operate(network, a, random, out);
  out.operations_per_second = double(a.operations) / watch.lap();
  if (!stop_requested) {
    out.found = network.count_groups();
    out.triangles = network.count_triangles();
    out.core = network.core_size(known_each);
  }
  out.analysis_seconds = watch.lap();
  out.size = network.size();
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app("Keeps persons who know each other in a far-memory heap, and beside that in local containers.",
               "network");
  app.add_option("--persons", a.persons, "persons that are added first")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  app.add_option("--operations", a.operations, "operations after that, before the analyses")->capture_default_str();
  declare(app, a.both, "persons");
  return run_program(app, argc, argv, [&] {
    return run_side_by_side<plain_network, far_network>(a.both, a.persons * bytes_per_person,
                                                        a.persons * objects_per_person,
                                                        [&](auto& network) { return drive(network, a); });
  });
}
