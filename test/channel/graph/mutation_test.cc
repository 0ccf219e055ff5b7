// Honest streams with words changed, left out and repeated, cut into parts anywhere: the reader refuses them with a typed error, or
// makes a sound graph of them. Seeded, so that a failure comes again.
#include "channel/graph/graph_reader.h"
#include "heap/heap_core.h"
#include <random>

#include "channel/fixture.h"
#include "channel/graph/recorder.h"

using namespace channel_test;
using namespace fm::detail;

namespace {

class cut_up final : public part_source {
 public:
  cut_up(const std::vector<std::uint64_t>& words, std::uint64_t objects, std::mt19937_64& random)
      : words_(words), objects_(objects), random_(random) {}
  part next() override {
    const std::size_t n = std::min<std::size_t>(words_.size() - at_, random_() % 40);
    const auto bytes = std::as_bytes(std::span(words_).subspan(at_, n));
    at_ += n;
    return {bytes, at_ == words_.size(), objects_};
  }

 private:
  const std::vector<std::uint64_t>& words_;
  const std::uint64_t objects_;
  std::mt19937_64& random_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("streams with anything changed are refused, or give a sound graph") {
  fm::heap from(small()), to(small(2_MiB));
  std::mt19937_64 random(20261122);
  const graph_schema& schema = schema_of<vertex>();
  std::uint64_t refused = 0, taken = 0;
  for (std::uint32_t graph = 0; graph < 4; ++graph) {
    edges expected;
    const fm::ptr<vertex> root = make_graph(from, 20 + graph * 20, 3 + graph, expected);
    recorder honest;
    graph_writer w(schema, {1u << 20, 1u << 30}, false, honest);
    w.write(root.slot());
    honest.keep(w.used());
    for (int round = 0; round < (sanitized ? 300 : 1000); ++round) {
      std::vector<std::uint64_t> words = honest.all;
      std::uint64_t objects = w.objects();
      const bool changed = round != 0;
      for (std::uint64_t changes = changed ? 1 + random() % 3 : 0; changes != 0; --changes) {
        const std::size_t at = random() % words.size();
        switch (random() % 6) {
          case 0: words[at] = random() % (objects + 3); break;
          case 1: words[at] += random() % 2 == 0 ? 1 : ~std::uint64_t{0}; break;
          case 2: words[at] ^= std::uint64_t{1} << random() % 64; break;
          case 3: words.erase(words.begin() + static_cast<std::ptrdiff_t>(at)); break;
          case 4: words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), words[random() % words.size()]); break;
          case 5: objects += random() % 3 - 1; break;
        }
        if (words.empty()) words.push_back(0);
      }
      cut_up parts(words, objects, random);
      graph_reader r(to.core().cache(), schema, {1u << 16, 1u << 20}, false, parts);
      fm::ptr<vertex> there;
      const thrown t = thrown_by([&] { there = fm::ptr<vertex>::from_slot(r.read(parts.next()).slot()); });
      if (t.code == fm::errc::ok) {
        ++taken;
        if (!changed) require_graph(there, expected);
      } else {
        ++refused;
        INFO(t.text);
        REQUIRE((t.code == fm::errc::bad_frame || t.code == fm::errc::too_large));
        REQUIRE(changed);
      }
    }
  }
  REQUIRE(refused > 100);
  REQUIRE(taken > 100);
  REQUIRE(objects_left(to) == 0);
  require_sound(to);
}
