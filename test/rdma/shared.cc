// Pools, channels and paged ranges over verbs://, in a lab machine: the same things that their own tests do over the other
// transports, each for a short time. Everything is emulated there, so nothing here has a deadline that is tight.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "channel/fixture.h"
#include "here.h"
#include "paged/fixture.h"
#include "pool/checked.h"
#include "pool/stress.h"
#include "support/served_store.h"

using namespace fm::literals;

namespace {

struct agent final : fm::test::served_store {
  explicit agent(std::uint64_t region) : served_store({.memory_bytes = 64_MiB, .region_bytes = region}) {
    serve(here());
  }
  ~agent() override { stop(); }
  agent(const agent&) = delete;
  agent& operator=(const agent&) = delete;
};

}  // namespace

TEST_CASE("nobody reads a wrong byte of a pool over verbs://, while it is written, freed and compacted") {
  const char* const seconds =
      std::getenv("FARMEM_STRESS_SECONDS");  // of each mode; without it three of them, for a moment
  const fm::duration run_for = seconds == nullptr ? fm::duration(std::chrono::milliseconds(500))
                                                  : fm::duration(std::chrono::seconds(std::max(std::atoi(seconds), 1)));
  for (const pool_test::stress_mode mode : pool_test::stress_modes) {
    using enum pool_test::stress_mode;
    if (seconds == nullptr && mode != checksums && mode != versions_over_lines && mode != random_ids) continue;
    agent a(1_MiB);
    fm::pool_options o;
    o.agents = {a.url()};
    o.tenant = fm::pool_tenant::random();
    o.name = "lab";
    o.compact_above = 0;
    o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::minutes(10);
    const pool_test::stress_report r = pool_test::stress(o, mode, run_for);
    if (seconds != nullptr) std::printf("%s: %s\n", pool_test::name_of(mode), r.text().c_str());
    INFO(pool_test::name_of(mode) << ": " << r.text());
    CHECK(r.good());
    CHECK(r.reads > r.rpc_reads);
  }
}

TEST_CASE("what was freed, and what another tenant made, is refused over verbs://") {
  agent a(1_MiB);
  fm::pool_options o;
  o.agents = {a.url()};
  o.tenant = fm::pool_tenant::random();
  o.name = "lab";
  o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::minutes(10);
  fm::pool mine(o);
  using value = pool_test::checked<10>;
  auto p = mine.alloc(value::make(1, 1)), kept = mine.alloc(value::make(2, 1));
  fm::pool_address freed = p.address();
  mine.free(p);
  value v;
  const auto bytes = std::as_writable_bytes(std::span(&v, 1));
  CHECK(mine.read_into(freed, bytes) == fm::errc::not_found);
  o.tenant = fm::pool_tenant::random();
  fm::pool theirs(o);
  fm::pool_address strange = kept.address();
  CHECK(theirs.read_into(strange, bytes) != fm::errc::ok);
  CHECK(mine.read(kept).whole());
  CHECK(mine.stats().direct_reads > 0);
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
  CHECK(s.faults_remote > 0);
  CHECK(s.written_bytes > 0);
  CHECK(s.failed == 0);
  CHECK(p.verify() == "");
}
