// Options and the interleaving of comparisons; see program.h.
#include "program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>
#include <system_error>

#include "report.h"

namespace fm::bench {

struct program::state {
  std::string name, about;
  CLI::App app;
  std::string json_path;
  std::string only;
  int rounds = 0;
  bool quick = false, no_pin = false, pinned = false;
  std::vector<pid_t> others;
  run_facts facts;
  std::FILE* json = nullptr;

  ~state() {
    if (json != nullptr) std::fclose(json);
  }

  [[nodiscard]] int rounds_for(int wanted) const {
    if (rounds > 0) return rounds;
    const int full = wanted > 0 ? wanted : 9;
    return quick ? std::min(full, 3) : full;
  }

  // One turn, with its wall and CPU time added to the side that took it.
  turn take(const side& work, side_result& into, std::vector<std::uint32_t>& ns) const {
    const double cpu_before = cpu_seconds_with(others);
    const std::uint64_t begin = now_ns();
    turn t = work();
    into.wall_s += double(now_ns() - begin) * 1e-9;
    into.cpu_s += cpu_seconds_with(others) - cpu_before + t.other_cpu_s;
    ns.insert(ns.end(), t.ns.begin(), t.ns.end());
    return t;
  }
};

program::program(std::string name, std::string about) : s_(std::make_unique<state>()) {
  s_->name = std::move(name);
  s_->about = std::move(about);
  CLI::App& app = s_->app;
  app.description(s_->about);
  app.add_option("--json", s_->json_path, "write one JSON object per row, one row per line, to this file");
  app.add_option("--rounds", s_->rounds, "rounds of each comparison")->check(CLI::Range(1, 1000));
  app.add_option("--only", s_->only, "only rows whose name contains this");
  app.add_flag("--quick", s_->quick, "small sizes and three rounds: a check that everything runs, not a figure");
  app.add_flag("--no-pin", s_->no_pin, "leave the placement on cores to the kernel");
}

program::~program() = default;

void program::option(const std::string& flag, std::uint64_t& value, const std::string& help) {
  s_->app.add_option(flag, value, help)->capture_default_str();
}
void program::option(const std::string& flag, double& value, const std::string& help) {
  s_->app.add_option(flag, value, help)->capture_default_str();
}
void program::option(const std::string& flag, std::string& value, const std::string& help) {
  s_->app.add_option(flag, value, help)->capture_default_str();
}
void program::option(const std::string& flag, bool& value, const std::string& help) {
  s_->app.add_flag(flag, value, help);
}

void program::parse(int argc, char** argv) {
  try {
    s_->app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(s_->app.exit(e));
  }
  s_->pinned = !s_->no_pin && core_count() >= 2 && pin_to_core(0, 0);
}

bool program::quick() const noexcept { return s_->quick; }
bool program::pinned() const noexcept { return s_->pinned; }
int program::agent_core() const noexcept { return s_->pinned ? 1 : -1; }

bool program::wants(const std::string& row_name) const {
  return s_->only.empty() || row_name.find(s_->only) != std::string::npos;
}

void program::count_cpu_of(pid_t pid) { s_->others.push_back(pid); }
void program::forget_cpu_of(pid_t pid) { std::erase(s_->others, pid); }

void program::compare(const row_spec& spec, const side& ours, const side& peer, int rounds) {
  if (!wants(spec.name)) return;
  row r{.spec = spec, .has_peer = true};
  const int n = s_->rounds_for(rounds);
  std::vector<double> our_values, peer_values, ratios;
  std::vector<std::uint32_t> our_ns, peer_ns;
  std::fprintf(stderr, "%s.%s\n", s_->name.c_str(), spec.name.c_str());
  ours();
  peer();
  for (int i = 0; i < n; ++i) {
    our_values.push_back(s_->take(ours, r.ours, our_ns).value);
    peer_values.push_back(s_->take(peer, r.peer, peer_ns).value);
    ratios.push_back(our_values.back() / peer_values.back());
  }
  r.ours.value = summarize(std::move(our_values));
  r.peer.value = summarize(std::move(peer_values));
  r.ours.latency = summarize_latency(our_ns);
  r.peer.latency = summarize_latency(peer_ns);
  r.pair_ratio = summarize(std::move(ratios));
  r.ratio = r.ours.value.median / r.peer.value.median;
  keep(r);
}

void program::measure(const row_spec& spec, const side& ours, int rounds) {
  if (!wants(spec.name)) return;
  row r{.spec = spec};
  const int n = s_->rounds_for(rounds);
  std::vector<double> values;
  std::vector<std::uint32_t> ns;
  std::fprintf(stderr, "%s.%s\n", s_->name.c_str(), spec.name.c_str());
  ours();
  for (int i = 0; i < n; ++i) values.push_back(s_->take(ours, r.ours, ns).value);
  r.ours.value = summarize(std::move(values));
  r.ours.latency = summarize_latency(ns);
  keep(r);
}

void program::measure(const row_spec& spec, double value) {
  measure(
      spec,
      [value] {
        return turn{value, {}, 0};
      },
      1);
}

void program::left_out(const row_spec& spec, const std::string& why) {
  if (!wants(spec.name)) return;
  row r{.spec = spec};
  r.left_out = why;
  keep(r);
}

void program::keep(const row& r) {
  print_row(stdout, r);
  std::fflush(stdout);
  if (s_->json == nullptr) return;
  fmt::print(s_->json, "{}\n", json_line(s_->facts, r));
  if (std::fflush(s_->json) != 0) throw std::system_error(errno, std::generic_category(), "writing " + s_->json_path);
}

int program::run(const std::function<void()>& work) {
  try {
    s_->facts = facts_of_this_run(s_->name);
    s_->facts.quick = s_->quick;
    s_->facts.pinned = s_->pinned;
    if (!s_->json_path.empty() && (s_->json = std::fopen(s_->json_path.c_str(), "w")) == nullptr)
      throw std::system_error(errno, std::generic_category(), "writing " + s_->json_path);
    print_head(stdout, s_->facts);
    work();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_%s: %s\n", s_->name.c_str(), e.what());
    return 1;
  }
  return 0;
}

}  // namespace fm::bench
