// Tables and JSON; see report.h.
#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <sys/utsname.h>

namespace fm::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", int(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// JSON has no infinities; a figure that cannot be is null.
std::string number(double v) { return std::isfinite(v) ? fmt::format("{:.6g}", v) : "null"; }

std::string short_number(double v) {
  const double a = std::abs(v);
  if (a >= 1000) return fmt::format("{:.0f}", v);
  if (a >= 100) return fmt::format("{:.1f}", v);
  return fmt::format("{:.2f}", v);
}

std::string goal_text(const goal& g) {
  switch (g.kind) {
    case goal_kind::none: return "";
    case goal_kind::ratio_at_most: return fmt::format("ratio <= {:g}", g.bound);
    case goal_kind::ratio_at_least: return fmt::format("ratio >= {:g}", g.bound);
    case goal_kind::value_at_most: return fmt::format("<= {:g}", g.bound);
    case goal_kind::value_at_least: return fmt::format(">= {:g}", g.bound);
    case goal_kind::median_ns_at_most: return fmt::format("p50 <= {:g} ns", g.bound);
  }
  return "";
}

std::string side_json(const side_result& s) {
  std::string out =
      fmt::format(R"({{"median":{},"min":{},"max":{},"p25":{},"p75":{},"mean":{},"rounds":{},"wall_s":{},"cpu_s":{})",
                  number(s.value.median), number(s.value.min), number(s.value.max), number(s.value.p25),
                  number(s.value.p75), number(s.value.mean), s.value.count, number(s.wall_s), number(s.cpu_s));
  if (s.latency.count != 0) {
    out += fmt::format(R"(,"latency_ns":{{"count":{},"mean":{},"p50":{},"p90":{},"p99":{},"p999":{},"max":{}}})",
                       s.latency.count, number(s.latency.mean), number(s.latency.p50), number(s.latency.p90),
                       number(s.latency.p99), number(s.latency.p999), number(s.latency.max));
  }
  return out + "}";
}

std::string with_spread(const side_result& s) {
  return fmt::format("{} [{}, {}]", short_number(s.value.median), short_number(s.value.min), short_number(s.value.max));
}

void print_latency(std::FILE* to, const char* side, const latency_summary& l) {
  if (l.count == 0) return;
  fmt::print(to,
             "      {:<6} ns per operation: mean {:.0f}, p50 {:.0f}, p90 {:.0f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f}, "
             "{} samples\n",
             side, l.mean, l.p50, l.p90, l.p99, l.p999, l.max, l.count);
}

std::string parameters_text(const row_spec& spec) {
  std::string out;
  for (const auto& [key, value] : spec.parameters) out += fmt::format("{}{}={}", out.empty() ? "" : " ", key, value);
  return out;
}

}  // namespace

bool row::met() const noexcept {
  switch (spec.wanted.kind) {
    case goal_kind::none: return true;
    case goal_kind::ratio_at_most: return ratio <= spec.wanted.bound;
    case goal_kind::ratio_at_least: return ratio >= spec.wanted.bound;
    case goal_kind::value_at_most: return ours.value.median <= spec.wanted.bound;
    case goal_kind::value_at_least: return ours.value.median >= spec.wanted.bound;
    case goal_kind::median_ns_at_most: return ours.latency.p50 <= spec.wanted.bound;
  }
  return true;
}

run_facts facts_of_this_run(const std::string& program) {
  run_facts f;
  f.program = program;
  f.cores = core_count();
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      f.processor = line.substr(line.find(": ") + 2);
      break;
    }
  }
  utsname names{};
  if (uname(&names) == 0) f.kernel = names.release;
#ifdef NDEBUG
  f.build = "release";
#else
  f.build = "debug";
#endif
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  f.time = text;
  const auto from_environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  f.commit = from_environment("FARMEM_BENCH_COMMIT");
  f.tree = from_environment("FARMEM_BENCH_TREE");
  return f;
}

void print_head(std::FILE* to, const run_facts& facts) {
  fmt::print(to, "bench_{}: {} cores, {}, Linux {}, {} build, {}{}\n", facts.program, facts.cores, facts.processor,
             facts.kernel, facts.build,
             facts.pinned ? "program on core 0, agents and servers on core 1" : "nothing pinned",
             facts.quick ? ", quick sizes" : "");
  fmt::print(to, "{:<34} {:>26} {:>26} {:>8} {:>22}  {:<14} {:<4}  cpu/wall s ours, peer\n", "row", "ours [min, max]",
             "peer [min, max]", "unit", "ratio [min, max]", "goal", "");
}

void print_row(std::FILE* to, const row& r) {
  if (!r.left_out.empty()) {
    fmt::print(to, "{:<34} left out: {}\n      {}\n", r.spec.name, r.left_out, parameters_text(r.spec));
    return;
  }
  const std::string ratio = r.has_peer
                                ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", r.ratio, r.pair_ratio.min, r.pair_ratio.max)
                                : std::string("-");
  const std::string wanted = goal_text(r.spec.wanted);
  fmt::print(to, "{:<34} {:>26} {:>26} {:>8} {:>22}  {:<14} {:<4}  {:.2f}/{:.2f}{}\n", r.spec.name, with_spread(r.ours),
             r.has_peer ? with_spread(r.peer) : "-", r.spec.unit, ratio, wanted,
             wanted.empty() ? ""
             : r.met()      ? "yes"
                            : "NO",
             r.ours.cpu_s, r.ours.wall_s,
             r.has_peer ? fmt::format(", {:.2f}/{:.2f}", r.peer.cpu_s, r.peer.wall_s) : "");
  std::string note = parameters_text(r.spec);
  if (r.has_peer && !r.spec.peer_name.empty())
    note += fmt::format("{}against {}", note.empty() ? "" : "; ", r.spec.peer_name);
  if (!note.empty()) fmt::print(to, "      {}\n", note);
  print_latency(to, "ours", r.ours.latency);
  print_latency(to, "peer", r.peer.latency);
}

std::string json_line(const run_facts& facts, const row& r) {
  std::string out = fmt::format(R"({{"name":{},"parameters":{{)", quoted(facts.program + "." + r.spec.name));
  bool first = true;
  for (const auto& [key, value] : r.spec.parameters) {
    out += fmt::format("{}{}:{}", first ? "" : ",", quoted(key), quoted(value));
    first = false;
  }
  out += fmt::format(R"(}},"unit":{})", quoted(r.spec.unit));
  if (!r.left_out.empty()) {
    out += fmt::format(R"(,"left_out":{})", quoted(r.left_out));
  } else {
    out += fmt::format(R"(,"ours":{},"ours_detail":{})", number(r.ours.value.median), side_json(r.ours));
    if (r.has_peer) {
      out += fmt::format(
          R"(,"peer":{},"peer_name":{},"peer_detail":{},"ratio":{},"ratio_min":{},"ratio_max":{},"ratio_p25":{},"ratio_p75":{})",
          number(r.peer.value.median), quoted(r.spec.peer_name), side_json(r.peer), number(r.ratio),
          number(r.pair_ratio.min), number(r.pair_ratio.max), number(r.pair_ratio.p25), number(r.pair_ratio.p75));
    } else {
      out += R"(,"peer":null,"ratio":null)";
    }
    if (r.spec.wanted.kind != goal_kind::none) {
      out += fmt::format(R"(,"goal":{},"met":{})", quoted(goal_text(r.spec.wanted)), r.met() ? "true" : "false");
    }
  }
  out += fmt::format(R"(,"quick":{},"pinned":{},"build":{},"cores":{},"processor":{},"kernel":{},"time":{})",
                     facts.quick, facts.pinned, quoted(facts.build), facts.cores, quoted(facts.processor),
                     quoted(facts.kernel), quoted(facts.time));
  if (!facts.commit.empty()) out += fmt::format(R"(,"commit":{},"tree":{})", quoted(facts.commit), quoted(facts.tree));
  return out + "}";
}

}  // namespace fm::bench
