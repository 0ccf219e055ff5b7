// Reading and generating edges; see edges.h.
#include "edges.h"

#include <fmt/format.h>

#include <charconv>
#include <farmem/base/error.h>
#include <farmem/base/units.h>
#include <fstream>
#include <string_view>

#include "distinct_counter.h"
#include "machine.h"

namespace fm::example {

namespace {

constexpr std::uint64_t bytes_per_vertex = 250, bytes_per_edge = 37, objects_per_vertex = 6;
constexpr std::size_t quoted_bytes = 40;

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Takes a number off the front; false when there is none, or it is not ended by a blank or the end.
bool take_number(std::string_view& text, std::uint64_t& value) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{}) return false;
  text.remove_prefix(std::size_t(end - text.data()));
  return text.empty() || is_blank(text.front());
}

/// The line for an error message: short, and without characters that would reach the terminal.
std::string excerpt_of(std::string_view line) {
  std::string out(line.substr(0, quoted_bytes));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  return '\'' + out + (line.size() > quoted_bytes ? "...'" : "'");
}

class snap_edges final : public edge_source {
 public:
  explicit snap_edges(std::string path) : path_(std::move(path)) {}

  void for_each(const std::function<bool(const edge&)>& f) const override {
    std::ifstream in(path_, std::ios::binary);
    if (!in) throw error(errc::not_found, "no file " + path_);
    std::uint64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      std::string_view rest = line;
      while (!rest.empty() && is_blank(rest.back())) rest.remove_suffix(1);
      if (rest.empty() || rest.front() == '#') continue;
      edge e;
      if (!take_number(rest, e.from) || !take_number(rest, e.to) || !rest.empty())
        throw error(errc::invalid_argument,
                    fmt::format("{}:{}: two vertex numbers are wanted, not {}", path_, number, excerpt_of(line)));
      if (!f(e)) return;
    }
    if (in.bad() || !in.eof()) throw error(errc::corrupt, fmt::format("{}:{}: reading fails", path_, number + 1));
  }
  [[nodiscard]] std::string describe() const override { return path_; }

 private:
  std::string path_;
};

class rmat_edges final : public edge_source {
 public:
  rmat_edges(unsigned scale, std::uint64_t per_vertex, std::uint64_t seed)
      : scale_(scale), per_vertex_(per_vertex), seed_(seed) {}

  void for_each(const std::function<bool(const edge&)>& f) const override {
    const std::uint64_t n = per_vertex_ << scale_;
    std::uint64_t state = mix(seed_);
    for (std::uint64_t i = 0; i < n; ++i) {
      edge e;
      for (unsigned bit = 0; bit < scale_; ++bit) {
        const double at = double(mix(state++) >> 11) * 0x1p-53;
        const bool down = at >= 0.76, right = (at >= 0.57 && at < 0.76) || at >= 0.95;
        e.from = e.from << 1 | std::uint64_t(down);
        e.to = e.to << 1 | std::uint64_t(right);
      }
      if (!f(e)) return;
    }
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("RMAT of scale {} with {} edges a vertex, seed {}", scale_, per_vertex_, seed_);
  }

 private:
  unsigned scale_;
  std::uint64_t per_vertex_, seed_;
};

}  // namespace

void declare(CLI::App& app, edge_options& o) {
  auto* snap =
      app.add_option("--snap", o.snap, "read this edge list in SNAP's form: lines FROM<TAB>TO, comments with #")
          ->type_name("FILE");
  app.add_option("--rmat", o.scale, "without --snap: generate a graph of up to 2^SCALE vertices")
      ->check(CLI::Range(1, 32))
      ->type_name("SCALE")
      ->capture_default_str()
      ->excludes(snap);
  app.add_option("--edges-per-vertex", o.edges_per_vertex, "of the generated graph")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->excludes(snap);
  app.add_option("--seed", o.seed, "of the generated graph, and of other choices")->capture_default_str();
}

std::unique_ptr<edge_source> edges_of(const edge_options& o) {
  return o.snap.empty() ? rmat(o.scale, o.edges_per_vertex, o.seed) : snap_file(o.snap);
}

std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::unique_ptr<edge_source> snap_file(const std::string& path) { return std::make_unique<snap_edges>(path); }
std::unique_ptr<edge_source> rmat(unsigned scale, std::uint64_t edges_per_vertex, std::uint64_t seed) {
  return std::make_unique<rmat_edges>(scale, edges_per_vertex, seed);
}

std::uint64_t edge_survey::graph_bytes() const noexcept { return vertices * bytes_per_vertex + edges * bytes_per_edge; }
std::uint64_t edge_survey::graph_objects() const noexcept { return vertices * objects_per_vertex; }

edge_survey survey_edges(const edge_source& edges) {
  const time_point begin = clock::now();
  edge_survey s;
  distinct_counter vertices;
  edges.for_each([&](const edge& e) {
    ++s.edges;
    vertices.add(mix(e.from));
    vertices.add(mix(e.to));
    return !stop_requested.load(std::memory_order_relaxed);
  });
  if (s.edges != 0) s.vertices = std::uint64_t(vertices.estimate());
  s.seconds = std::chrono::duration<double>(clock::now() - begin).count();
  return s;
}

}  // namespace fm::example
