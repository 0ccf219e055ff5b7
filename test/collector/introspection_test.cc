// What a heap tells of itself: objects by type, pauses and utilisation, and the verification of cycles.
#include "fixture.h"
#include "heap/heap_core.h"

#include <thread>

using namespace gc_test;
using namespace std::chrono_literals;

namespace {

struct told_leaf {
  std::array<std::uint64_t, 5> words{};
};

fm::heap_options verified(std::size_t agents) {
  auto o = small(agents);
  o.verify_cycles = true;
  return o;
}

const fm::type_stats* find(const fm::heap_stats& s, std::string_view part, bool array = false) {
  for (const fm::type_stats& t : s.types)
    if (t.name.find(part) != std::string::npos && t.name.ends_with("[]") == array) return &t;
  return nullptr;
}

}  // namespace

TEST_CASE("objects are counted by type, wherever they are, and once") {
  for (const std::size_t agents : {1, 2}) {
    fm::heap h(verified(agents));
    REQUIRE(h.stats().types.empty());
    REQUIRE(h.stats(fm::detail_level::types).types.empty());
    auto list = make_list(h, 30'000);  // some are evicted already
    std::vector<fm::ptr<told_leaf>> leaves;
    for (int i = 0; i < 500; ++i) leaves.push_back(h.make<told_leaf>());
    const auto numbers = h.array<std::uint64_t>(100);
    const auto check = [&](std::uint64_t nodes, std::uint64_t resident_only) {
      const fm::heap_stats s = h.stats(fm::detail_level::types);
      REQUIRE(s.agents_not_counted == 0);
      const auto *n = find(s, "gc_node"), *l = find(s, "told_leaf"), *a = find(s, "", true);
      REQUIRE(n);
      REQUIRE(l);
      REQUIRE(a);
      REQUIRE(n->objects == nodes);
      REQUIRE(n->bytes == nodes * 64);
      REQUIRE(l->objects == 500);
      REQUIRE(l->bytes == 500 * 48);
      REQUIRE(a->objects == 1);
      REQUIRE(a->bytes == 8 + 8 + 800);
      REQUIRE(s.types.front().name == n->name);
      if (resident_only == 0) REQUIRE(n->resident_only_objects + l->resident_only_objects == 0);
      if (resident_only != 0) REQUIRE(l->resident_only_objects == resident_only);
    };
    check(30'000, 500);
    REQUIRE(h.evict_all() == fm::errc::ok);
    check(30'000, 0);
    for (auto& l : leaves) l.write()->words[0] = 1;  // resident and dirty, and at home as well
    check(30'000, 0);
    for (int i = 0; i < 20'000; ++i) list = list->left;
    check(30'000, 0);
    collect(h);
    check(10'000, 0);
  }
}

TEST_CASE("objects whose words are aside are counted, too") {
  auto o = verified(1);
  o.cache = 4_MiB;
  o.hit = 8 * 4096;
  fm::heap h(o);
  std::vector<fm::ptr<told_leaf>> kept;
  for (int i = 0; i < 40'000; ++i) {
    auto p = h.make<told_leaf>();
    if (i % 256 == 0) kept.push_back(p);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (const auto& p : kept) REQUIRE(p->words[0] == 0);  // resident, few on each page
  const auto deadline = fm::clock::now() + 600s;
  while (h.stats().hit_words_aside == 0 && fm::clock::now() < deadline) h.core().cache().eviction().help();
  REQUIRE(h.stats().hit_words_aside > 0);
  const fm::heap_stats s = h.stats(fm::detail_level::types);
  REQUIRE(find(s, "told_leaf")->objects == 40'000);
  require_sound_at_home(h);
}

TEST_CASE("objects are counted beside a program that makes and drops them") {
  fm::heap h(verified(2));
  const auto list = make_list(h, 10'000);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load())
      for (int i = 0; i < 100; ++i) (void)h.make<told_leaf>();
  });
  std::vector<std::uint64_t> nodes;
  bool collected = true;
  for (int i = 0; i < 10; ++i) {
    const fm::heap_stats s = h.stats(fm::detail_level::types);
    const auto* n = find(s, "gc_node");
    nodes.push_back(n ? n->objects : 0);
    if (i % 3 == 0) collected = collected && h.collect("test").ok();
  }
  stop = true;
  other.join();
  REQUIRE(collected);
  for (const std::uint64_t n : nodes) REQUIRE(n == 10'000);  // wherever they were
  REQUIRE(find(h.stats(fm::detail_level::types), "gc_node")->objects == 10'000);
}

TEST_CASE("pauses are recorded, with what threads waited for them, and give the utilisation") {
  fm::heap h(verified(1));
  const auto list = make_list(h, 5'000);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::thread reader([&] {
    while (!stop.load()) {
      (void)list->id;
      ++reads;
    }
  });
  bool collected = true;
  for (int i = 0; i < 20; ++i) collected = collected && h.collect("test").ok();
  // However the threads run: a pause in which the reader comes to the gate.
  const auto deadline = fm::clock::now() + 600s;
  while (h.stats().gate_ns.count == 0 && fm::clock::now() < deadline)
    fm::detail::epochs::pause(
        1s,
        [](void* done) {
          const auto& so_far = *static_cast<std::atomic<std::uint64_t>*>(done);
          const std::uint64_t before = so_far.load();
          for (int i = 0; i < 100'000 && so_far.load() < before + 2; ++i) fm::detail::cpu_relax();
        },
        &reads);
  stop = true;
  reader.join();
  REQUIRE(collected);
  const fm::heap_stats s = h.stats();
  REQUIRE(s.gate_ns.count > 0);
  REQUIRE(s.recent_pauses.size() >= 40);
  REQUIRE(s.pause_ns.count <= s.recent_pauses.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < s.recent_pauses.size(); ++i) {
    sum += s.recent_pauses[i].ns;
    REQUIRE(s.recent_pauses[i].begin >= s.observed_from);
    if (i != 0) REQUIRE(s.recent_pauses[i].begin >= s.recent_pauses[i - 1].begin);
  }
  const double overall = 1 - double(sum) / double(std::chrono::nanoseconds(s.observed_until - s.observed_from).count());
  REQUIRE(s.bmu(10ms) <= s.bmu(100ms));
  REQUIRE(s.bmu(1h) == Approx(overall));
  REQUIRE(s.text().find("utilisation") != std::string::npos);
}

TEST_CASE("a verified cycle reports a home copy that was damaged") {
  fm::heap h(verified(1));
  const auto list = make_list(h, 100);
  REQUIRE(h.evict_all() == fm::errc::ok);
  collect(h, "whole");
  // The copy of an object that is remote is made to name another slot, behind everybody's back.
  const fm::detail::word_t w = fm::detail::word_at(list.slot()).load();
  REQUIRE(fm::detail::word::is_remote(w));
  const auto at = fm::detail::home_address::unpack(w);
  std::byte* region = h.core().cache().link_of(list.slot()).session().direct(at.region);
  REQUIRE(region);
  std::uint64_t header = 0;
  std::memcpy(&header, region + at.offset, sizeof header);
  const std::uint64_t damaged = header ^ 1;
  std::memcpy(region + at.offset, &damaged, sizeof damaged);
  const auto r = h.collect("damaged");
  INFO(r.text());
  REQUIRE_FALSE(r.ok());
  REQUIRE(r.status == fm::errc::corrupt);
  REQUIRE(r.faults > 0);
  REQUIRE(r.fault_texts.size() > 0);
  REQUIRE(r.failure.find("names slot") != std::string::npos);
  REQUIRE(r.freed == 0);  // what was behind the damage is not lost
  std::memcpy(region + at.offset, &header, sizeof header);
  REQUIRE(collect(h, "repaired").marked == 100);
}
