// Pools, channels and paged ranges over verbs://, in a lab machine: the same things that their own tests do over the other
// transports, each for a short time. Everything is emulated there, so nothing here has a deadline that is tight.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "channel/fixture.h"
#include "paged/fixture.h"
#include "pool/fixture.h"
#include "support/served_store.h"

using namespace fm::literals;

namespace {

std::string here() {
  const char* address = std::getenv("LAB_ADDRESS");
  REQUIRE(address != nullptr);
  return "verbs://" + std::string(address) + ":0";
}

struct agent final : fm::test::served_store {
  explicit agent(std::uint64_t region) : served_store({.memory_bytes = 64_MiB, .region_bytes = region}) {
    serve(here());
  }
  ~agent() override { stop(); }
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
};

}  // namespace

TEST_CASE("a pool is read one-sidedly over verbs://, while it is written, freed and compacted") {
  agent a(1_MiB);
  fm::pool_options o;
  o.agents = {a.url()};
  o.tenant = fm::pool_tenant::random();
  o.name = "lab";
  o.block = 4_KiB;
  o.compact_above = 0;
  o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(60);
  fm::pool writing(o), reading(o);
  using value = pool_test::checked<10>;
  constexpr std::size_t objects = 400;
  std::vector<fm::pool_ptr<value>> all;
  std::vector<fm::pool_ptr<value>> between;
  for (std::size_t i = 0; i < objects; ++i) {
    all.push_back(writing.alloc(value::make(i, 0)));
    for (int k = 0; k < 3; ++k) between.push_back(writing.alloc(value::make(objects + i, 1)));
  }
  std::array<std::atomic<std::uint64_t>, objects> versions{};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0}, wrong{0}, failed{0};
  std::thread reader([&, mine = all]() mutable {
    std::mt19937_64 random(1);
    while (!stop.load()) {
      const std::size_t i = random() % objects;
      const std::uint64_t written = versions[i].load();
      value v;
      if (reading.read_into(mine[i].address(), std::as_writable_bytes(std::span(&v, 1))) != fm::errc::ok)
        failed.fetch_add(1);
      else if (!v.whole() || v.id != i || v.version < written)
        wrong.fetch_add(1);
      reads.fetch_add(1);
    }
  });
  const fm::pool_ptr<value> gone = between.back();
  for (auto& p : between) writing.free(p);
  std::mt19937_64 random(2);
  const fm::time_point until = fm::clock::now() + std::chrono::seconds(2), at_most = until + std::chrono::seconds(60);
  std::uint64_t writes = 0;
  while (fm::clock::now() < until || ((reads.load() < 200 || writes < 200) && fm::clock::now() < at_most)) {
    const std::size_t i = random() % objects;
    const value v = value::make(i, versions[i].load() + 1);
    writing.write(all[i], v);
    versions[i].store(v.version);
    if (++writes % 50 == 0) (void)writing.compact();
  }
  stop.store(true);
  reader.join();
  CHECK(wrong.load() == 0);
  CHECK(failed.load() == 0);
  CHECK(reads.load() >= 200);
  std::uint64_t merges = 0;
  for (const auto& c : writing.stats().agents.at(0).classes) merges += c.merges_made;
  CHECK(merges > 0);
  for (std::size_t i = 0; i < objects; ++i) {
    const value v = reading.read(all[i]);
    CHECK((v.whole() && v.id == i && v.version == versions[i].load()));
  }
  value none;
  fm::pool_address freed = gone.address();
  CHECK(reading.read_into(freed, std::as_writable_bytes(std::span(&none, 1))) == fm::errc::not_found);
  CHECK(reading.stats().direct_reads > 0);
}

TEST_CASE("graphs arrive over verbs://, in both directions, between heaps with agents and without") {
  const bool with_agents = GENERATE(false, true);
  agent a(1_MiB), b(1_MiB);
  auto at_sender = channel_test::small(), at_receiver = channel_test::small();
  if (with_agents) {
    at_sender.agents = {a.url()};
    at_receiver.agents = {b.url()};
    at_sender.cache = at_receiver.cache = 2_MiB;
  }
  fm::channel_options o;
  o.insecure = true;
  fm::heap from(at_sender), to(at_receiver);
  fm::channel_listener listener(to, here(), o);
  fm::channel tx = fm::channel::connect(from, listener.url(), o);
  fm::channel rx = listener.accept();
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{20000}}) {
    channel_test::beside sender([&] { tx.send(channel_test::make_list(from, n)); });
    const fm::ptr<channel_test::node> there = rx.recv<channel_test::node>();
    channel_test::require_ok(sender);
    channel_test::require_list(there, n);
    channel_test::beside answer([&] { rx.send(there); });
    const fm::ptr<channel_test::node> back = tx.recv<channel_test::node>();
    channel_test::require_ok(answer);
    channel_test::require_list(back, n);
  }
  channel_test::require_sound(from);
  channel_test::require_sound(to);
}

TEST_CASE("a paged range over verbs:// keeps what is written to it") {
  agent a(256_KiB);
  fm::paged_options o;
  o.agents = {a.url()};
  o.capacity = 2_MiB;
  o.local = 512_KiB;
  o.block = 16_KiB;
  o.name = "lab";
  o.tracking = fm::dirty_tracking::none;  // the lab has Debian's own kernel
  fm::paged p(o);
  paged_test::mirror m(p);
  for (int i = 0; i < 200; ++i) m.write(20000);
  CHECK(m.all_right());
  const fm::paged_stats s = p.stats(true);
  INFO(s.text());
  CHECK(s.faults_away > 0);
  CHECK(s.written_bytes > 0);
  CHECK(s.failed == 0);
  CHECK(p.verify() == "");
}
