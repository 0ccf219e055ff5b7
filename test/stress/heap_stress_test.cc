// The managed heap under everything at once: eight threads, a cache of a few MiB in tiny segments, two agents in tiny
// regions that go round all the time, connections that break between append and index, and an oracle that knows what every
// object must hold. One case per transport and shape.
//
//   FARMEM_SEED=...             a run's choices (not its interleaving), 1; `random` takes another each time, and prints it
//   FARMEM_STRESS_SECONDS=...   how long each case is stressed at least; 3
#include "heap/heap_core.h"
#include <catch2/catch.hpp>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "program.h"

using namespace fm::literals;

namespace {

std::uint64_t seed() {
  static const std::uint64_t s = [] {
    const char* text = std::getenv("FARMEM_SEED");
    const std::uint64_t value = !text                                ? 1
                                : text == std::string_view("random") ? std::random_device{}()
                                                                     : std::strtoull(text, nullptr, 0);
    std::fprintf(stderr, "FARMEM_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return s;
}

double seconds() {
  const char* text = std::getenv("FARMEM_STRESS_SECONDS");
  return text ? std::strtod(text, nullptr) : 3.0;
}

/// Two agents in this process, reached over a transport.
class agents {
 public:
  explicit agents(const stress::plan& p) {
    for (int i = 0; i < 2 && p.transport != "local:"; ++i) {
      const std::string at = p.transport == "tcp"
                                 ? "tcp://127.0.0.1:0"
                                 : "shm:///tmp/farmem-stress-" + std::to_string(::getpid()) + "-" + std::to_string(i);
      agents_.push_back(std::make_unique<stress::breaking_agent>(
          fm::agent::store_options{.memory_bytes = p.agent_memory, .region_bytes = p.region}, at));
      all.push_back(agents_.back().get());
      urls.push_back(agents_.back()->url());
    }
    if (urls.empty()) urls = {"local:", "local:"};
  }
  std::vector<std::string> urls;
  std::vector<stress::breaking_agent*> all;

  [[nodiscard]] std::uint64_t lost_messages() const {
    std::uint64_t n = 0;
    for (const auto& a : agents_) n += a->lost_messages.load();
    return n;
  }
  [[nodiscard]] std::uint64_t lost_answers() const {
    std::uint64_t n = 0;
    for (const auto& a : agents_) n += a->lost_answers.load();
    return n;
  }

 private:
  std::vector<std::unique_ptr<stress::breaking_agent>> agents_;
};

void stress_heap(stress::plan p) {
  p.seed = seed();
  p.run_for = std::chrono::duration_cast<fm::duration>(std::chrono::duration<double>(seconds()));
  const agents servers(p);
  fm::heap h({.cache = p.cache,
              .agents = servers.urls,
              .local_memory = 2 * p.agent_memory,
              .local_region = p.region,
              .name = "stress",
              .segment = p.segment,
              .hit = p.hit,
              .hit_residents = 512,  // never mind whether it pays
              .collect_every = 128_KiB,
              .access_within = std::chrono::seconds(60),
              .memory_within = std::chrono::seconds(60),
              .reconnect_within = std::chrono::seconds(30)});
  stress::program program(h, p, servers.all);
  const auto evict = [&] {
    // A connection that broke a moment ago has failed write-backs to tell of first.
    const fm::time_point deadline = fm::clock::now() + std::chrono::minutes(10);
    fm::errc e = h.evict_all();
    while (e != fm::errc::ok && fm::clock::now() < deadline) e = h.evict_all();
    return e;
  };
  const auto settled = [&](const char* when) {
    UNSCOPED_INFO(when << "\n"
                       << h.stats().text() << program.operations.load() << " operations, " << program.breaks.load()
                       << " breaks by the owner, " << servers.lost_messages() << " batches and "
                       << servers.lost_answers() << " acknowledgements lost by agents");
    if (program.wrong.any()) FAIL(program.wrong.text());
    const fm::errc evicted = evict();
    UNSCOPED_INFO("after evicting\n" << h.stats().text());
    REQUIRE(evicted == fm::errc::ok);
    const fm::verify_report v = h.verify();
    for (const auto& m : v.messages) UNSCOPED_INFO(m);
    REQUIRE(v.ok());
    program.compare();
    if (program.wrong.any()) FAIL(program.wrong.text());
  };
  program.build();
  settled("after building");
  // However slow the machine or the sanitizer: until everything that is to be stressed has happened. Comparing is left for the
  // end, because where everything is slow it takes several times as long.
  const fm::time_point enough = fm::clock::now() + std::chrono::minutes(10);
  const bool over_connection =
      p.transport != "local:";  // the agent in this process answers before a break can come between
  const auto complete = [&](const fm::heap_stats& s) {
    return s.collections > s.collections_failed && s.regions_retired > 0 && s.reconnects > 0 &&
           s.hit_pages_opened_again > 0 && s.cancelled_drops > 0 &&
           (!over_connection || (servers.lost_messages() > 0 && servers.lost_answers() > 0));
  };
  std::atomic<bool> over{false};
  std::thread collecting(
      [&] {  // cycles beside the ones that start by themselves: broken connections, every page on its way
        for (int n = 0; !over.load(); ++n) {
          h.collect_young("stress");
          h.collect("stress", n % 2 == 0 ? fm::evacuate::all : fm::evacuate::sparse);
        }
      });
  do {
    program.run();
  } while (!program.wrong.any() && !complete(h.stats()) && fm::clock::now() < enough);
  over = true;
  collecting.join();
  settled("after running");
  REQUIRE(evict() == fm::errc::ok);
  REQUIRE(h.verify().ok());
  for (const auto& link : h.core().cache().agents())  // whatever was lost has been sent again then
    REQUIRE(link->flush(fm::clock::now() + std::chrono::minutes(10)) == fm::errc::ok);
  const fm::heap_stats s = h.stats();
  if (std::getenv("FARMEM_STRESS_VERBOSE"))
    std::fprintf(stderr, "%s%llu operations, %llu batches and %llu acknowledgements lost by agents\n", s.text().c_str(),
                 static_cast<unsigned long long>(program.operations.load()),
                 static_cast<unsigned long long>(servers.lost_messages()),
                 static_cast<unsigned long long>(servers.lost_answers()));
  CHECK(s.collections > s.collections_failed);
  CHECK(s.misses > 0);
  CHECK(s.segments_released > 0);
  CHECK(s.hit_pages_opened_again > 0);
  CHECK(s.regions_retired > 0);
  CHECK(s.reconnects > 0);
  CHECK(s.cancelled_drops > 0);
  if (over_connection) {
    CHECK(servers.lost_messages() > 0);
    CHECK(servers.lost_answers() > 0);
    CHECK(s.batches_resent >= servers.lost_messages());
  }
}

}  // namespace

TEST_CASE("a stressed heap loses nothing over local:, segments of 64 KiB") { stress_heap({.transport = "local:"}); }
TEST_CASE("a stressed heap loses nothing over local:, segments of 16 KiB") {
  stress_heap({.transport = "local:", .segment = 16_KiB, .region = 64_KiB, .cache = 2_MiB, .agent_memory = 7 << 19});
}
TEST_CASE("a stressed heap loses nothing over shm://, segments of 64 KiB") { stress_heap({.transport = "shm"}); }
TEST_CASE("a stressed heap loses nothing over shm://, segments of 16 KiB") {
  stress_heap({.transport = "shm", .segment = 16_KiB, .region = 64_KiB, .cache = 2_MiB, .agent_memory = 7 << 19});
}
TEST_CASE("a stressed heap loses nothing over tcp://, segments of 64 KiB") { stress_heap({.transport = "tcp"}); }
TEST_CASE("a stressed heap loses nothing over tcp://, segments of 16 KiB") {
  stress_heap({.transport = "tcp", .segment = 16_KiB, .region = 64_KiB, .cache = 2_MiB, .agent_memory = 7 << 19});
}
