// An agent session when things break: connections at every step of a batch, refusals, answers that are none, heaps that
// are gone. What must hold throughout: one outcome a batch, in sequence, and an agent that saw the numbers 1, 2, 3, ...
#include "base/limits.h"
#include "fixture.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::remote;
using namespace fm::remote::test;

namespace {

verdict nth_index(message_type t, std::uint64_t nth, std::uint64_t which, verdict v) {
  return t == message_type::index && nth == which ? v : verdict{};
}

}  // namespace

TEST_CASE("a connection that breaks before an index message is handled costs nothing but sending again") {
  const auto which = GENERATE(1u, 3u, 10u);
  linked x;  // last: its agent calls the hook until it is destroyed
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return nth_index(t, nth, which, {verdict::break_before});
  };
  x.open();
  for (std::uint64_t s = 1; s <= 10; ++s) x.write(s);
  x.flush();
  x.check_outcomes(10);
  x.check_agent();
  CHECK(x.agent.log.size() == 10);
  CHECK(x.l->stats().reconnects == 1);
  CHECK(x.l->stats().batches_resent >= 1);
  for (std::uint64_t s = 1; s <= 10; ++s) CHECK(x.agent.entries.count(s) == 1);
}

TEST_CASE("a batch that was applied before the connection broke is acknowledged by the handshake, once") {
  const auto which = GENERATE(1u, 3u, 10u);
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return nth_index(t, nth, which, {verdict::break_after});
  };
  x.open();
  for (std::uint64_t s = 1; s <= 10; ++s) x.write(s);
  x.flush();
  x.check_outcomes(10);
  x.check_agent();
  CHECK(x.agent.log.size() == 10);
  CHECK(x.agent.count(message_type::index) == 10);  // the applied one was not sent again
}

TEST_CASE("connections that break again and again, the handshake included, lose and repeat nothing") {
  linked x(256 << 10, 200);
  x.options.batches_in_flight = 8;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    if (t == message_type::index && nth % 5 == 0)
      return verdict{nth % 2 == 0 ? verdict::break_after : verdict::break_before};
    if (t == message_type::open_heap && nth % 3 == 2) return verdict{verdict::break_after};
    if (t == message_type::region_info && nth % 4 == 3) return verdict{verdict::break_before};
    return verdict{};
  };
  x.open();
  for (std::uint64_t s = 1; s <= 60; ++s) x.write(s, 1024);
  x.flush();
  x.check_outcomes(60);
  x.check_agent();
  CHECK(x.agent.log.size() == 60);
  CHECK(x.told.lost.empty());
}

TEST_CASE("a batch under construction survives a reconnect") {
  linked x;
  x.open();
  x.write(1);
  x.flush();
  batch* b = x.begin();
  const auto at = put(*b, 2, 64);
  x.l->session().drop_connection(x.l->session().generation());
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  put(*b, 3, 64);
  x.l->submit(b);
  x.flush();
  x.check_outcomes(2);
  CHECK(x.agent.entries.at(2) == at.pack());
  x.check_agent();
}

TEST_CASE("a batch that the agent refuses is told so, its number is skipped, and those behind it are indexed") {
  const errc code = GENERATE(errc::quota_exceeded, errc::corrupt, errc::stale, errc::access_denied);
  std::uint64_t refused = 0;
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte> body) {
    if (t != message_type::index) return verdict{};
    index_body m;
    std::memcpy(&m, body.data(), sizeof m);
    if (m.seq != 3 || (m.flags & index_abandoned) != 0) return verdict{};
    ++refused;
    return verdict{verdict::refuse, code};
  };
  x.open();
  for (std::uint64_t s = 1; s <= 8; ++s) x.write(s);
  x.flush();
  const auto all = x.told.take();
  REQUIRE(all.size() == 8);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].seq == i + 1);
    CHECK(all[i].code == (i == 2 ? code : errc::ok));
  }
  CHECK(refused == (code == errc::stale ? 2 : 1));
  REQUIRE(x.agent.until([&] { return x.agent.log.size() == 8; }));
  CHECK(x.agent.log[2].abandoned);
  CHECK(x.agent.entries.count(3) == 0);
  x.check_agent();
  CHECK_FALSE(x.l->lost());
  x.write(9);
  x.flush();
  CHECK(x.l->readable(0) == 9 * (64 + sizeof(batch_header)));
}

TEST_CASE("bytes that were changed behind the checksum are refused as corrupt") {
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte> body) {
    if (t == message_type::index && nth == 1) {
      index_body m;
      std::memcpy(&m, body.data(), sizeof m);
      const std::lock_guard lock(x.agent.mutex);
      x.agent.regions.at(m.region).memory.base()[m.offset + m.length - 1] ^= std::byte{1};
    }
    return verdict{};
  };
  x.open();
  x.write(1);
  x.flush();
  x.write(2);
  x.flush();
  const auto all = x.told.take();
  REQUIRE(all.size() == 2);
  CHECK(all[0].code == errc::corrupt);
  CHECK(all[1].code == errc::ok);
  x.check_agent();
}

TEST_CASE("a batch for which the agent closes every connection is given up, and the next ones get through") {
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte> body) {
    if (t != message_type::index) return verdict{};
    index_body m;
    std::memcpy(&m, body.data(), sizeof m);
    return m.seq == 2 && (m.flags & index_abandoned) == 0 ? verdict{verdict::break_before} : verdict{};
  };
  x.open();
  for (std::uint64_t s = 1; s <= 4; ++s) x.write(s);
  x.flush();
  const auto all = x.told.take();
  REQUIRE(all.size() == 4);
  CHECK(all[0].code == errc::ok);
  CHECK(all[1].code == errc::disconnected);
  CHECK(all[2].code == errc::ok);
  CHECK(all[3].code == errc::ok);
  CHECK_FALSE(x.l->lost());
  x.check_agent();
}

TEST_CASE("an index answer that is none costs the agent its connection and the batch is acknowledged afterwards") {
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return nth_index(t, nth, 2, {verdict::garbage});
  };
  x.open();
  for (std::uint64_t s = 1; s <= 4; ++s) x.write(s);
  x.flush();
  x.check_outcomes(4);
  x.check_agent();
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
}

TEST_CASE("a heap that is not there any more on resume loses the link, and every batch is told") {
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    if (t == message_type::index && nth == 1) {
      x.agent.forget_heap();
      return verdict{verdict::break_before};
    }
    return verdict{};
  };
  x.open();
  std::vector<batch*> batches;  // nobody gets one after the loss
  for (std::uint64_t s = 1; s <= 3; ++s) put(*batches.emplace_back(x.begin()), s, 64);
  for (batch* b : batches) x.l->submit(b);
  CHECK(x.l->flush(soon()) == errc::agent_lost);
  x.check_outcomes(3, errc::agent_lost);
  REQUIRE(x.told.until([&] { return !x.told.lost.empty(); }));
  CHECK(x.told.lost == std::vector<errc>{errc::agent_lost});
  CHECK(x.l->lost());
  errc why = errc::ok;
  CHECK(x.l->begin_batch(64, soon(), why) == nullptr);
  CHECK(why == errc::agent_lost);
  CHECK(x.l->fetch_slot(1, false, 64, soon()).status == errc::agent_lost);
}

TEST_CASE("an agent that forgot what it acknowledged loses the link") {
  linked x;
  x.open();
  x.write(1);
  x.flush();
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.applied_seq = 0;
  }
  x.l->session().drop_connection(x.l->session().generation());
  REQUIRE(x.told.until([&] { return !x.told.lost.empty(); }));
  CHECK(x.l->lost());
}

TEST_CASE("a fetch by slot is repeated across a reconnect, and not beyond its deadline") {
  linked x;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return t == message_type::fetch_slot && nth <= 2 ? verdict{verdict::break_before} : verdict{};
  };
  x.open();
  x.write(1);
  x.flush();
  const auto a = x.l->fetch_slot(1, false, 4096, soon());
  REQUIRE(a.status == errc::ok);
  CHECK(is_copy(a.copy.data(), 1, 64));
  CHECK(x.l->stats().reconnects == 2);
  x.agent.hook = nullptr;
}

TEST_CASE("an answer to a fetch that is none is bad_frame and costs the agent its connection") {
  linked x;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return t == message_type::fetch_slot && nth == 1 ? verdict{verdict::garbage} : verdict{};
  };
  x.open();
  x.write(1);
  x.flush();
  CHECK(x.l->fetch_slot(1, false, 4096, soon()).status == errc::bad_frame);
  CHECK(x.l->fetch_slot(1, false, 4096, soon()).status == errc::ok);
}

TEST_CASE("an acknowledgement of a retired region is said again when its answer was lost") {
  linked x;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    return t == message_type::retired_region && nth == 1 ? verdict{verdict::break_before} : verdict{};
  };
  x.open();
  x.agent.make_region(40, 4096, true);
  REQUIRE(x.l->learn_region(40) == errc::ok);
  x.agent.ask_back(40);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  x.l->retired(40, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
  CHECK(x.l->region_generation(40) == 0);
}

TEST_CASE(
    "of thousands of regions that retire at once a bounded number is acknowledged at a time, and in the end all") {
  std::mutex m;
  std::condition_variable changed;
  bool held = false, let_go = false;
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    if (t != message_type::retired_region || nth != 1) return verdict{};
    std::unique_lock lock(m);
    held = true;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::minutes(10), [&] { return let_go; });
    return verdict{};
  };
  x.options.session.operation_within = std::chrono::minutes(10);
  x.open("tcp");
  constexpr std::uint32_t regions = 1'000;
  x.l->retired(1'000, 1);
  {
    std::unique_lock lock(m);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(10), [&] { return held; }));
  }
  for (std::uint32_t n = 1; n < regions; ++n) x.l->retired(1'000 + n, 1);
  const auto give_up = clock::now() + std::chrono::minutes(10);
  while (x.l->stats().errands_most < detail::limits::errands_max && clock::now() < give_up) std::this_thread::yield();
  CHECK(x.l->stats().retired == 0);
  {
    const std::lock_guard lock(m);
    let_go = true;
    changed.notify_all();
  }
  while (x.l->stats().retired < regions && clock::now() < give_up) std::this_thread::yield();
  CHECK(x.l->stats().retired == regions);
  // Those of other kinds have no turn to wait for: one to open a region, one for the lease, one for types.
  CHECK(x.l->stats().errands_most >= detail::limits::errands_max);
  CHECK(x.l->stats().errands_most <= detail::limits::errands_max + 3);
}

TEST_CASE("many regions are attached again, though that takes longer than the deadline of an attempt") {
  std::mutex m;
  std::condition_variable changed;
  bool slow = false;
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte>) {
    // The agent is slow until the attempt has ended: its answers together take longer than a deadline, and none alone.
    std::unique_lock lock(m);
    if (slow && t == message_type::region_info)
      changed.wait_for(lock, std::chrono::milliseconds(25), [&] { return !slow; });
    return verdict{};
  };
  const auto be_slow = [&](bool how) {
    const std::lock_guard lock(m);
    slow = how;
    changed.notify_all();
  };
  x.options.session.connect_within = std::chrono::seconds(2);
  x.options.session.reconnect_for = x.options.session.operation_within = std::chrono::seconds(30);
  x.open("tcp");
  constexpr std::uint32_t regions = 128;
  for (std::uint32_t n = 100; n < 100 + regions; ++n) {
    x.agent.make_region(n, 0, true);
    REQUIRE(x.l->learn_region(n) == errc::ok);
  }
  be_slow(true);
  x.l->session().drop_connection(x.l->session().generation());
  const errc granted = x.l->grant_tablets(7, 1);
  be_slow(false);
  REQUIRE(granted == errc::ok);
  CHECK(x.l->stats().reconnects == 1);
}

TEST_CASE("a notice that does not follow the protocol costs the agent its connection") {
  linked x;
  x.open();
  const std::byte junk[3] = {};
  x.agent.notify_raw(junk);
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  x.write(1);
  x.flush();
  x.check_outcomes(1);
}

TEST_CASE("an agent that asks more regions back than the heap can have loses its connection, and nothing grows") {
  linked x;
  x.agent.quota_bytes = 4 * x.agent.region_bytes;
  x.open();
  const auto most = static_cast<std::uint32_t>(4 * detail::limits::retiring_quotas);
  for (std::uint32_t n = 0; n < most; ++n) x.agent.ask_back(40 + n, 1);  // unknown ones
  REQUIRE(x.told.until([&] { return x.told.retire_asked.size() == most; }));
  CHECK(x.agent.messages[message_type::open_heap] == 1);
  x.agent.ask_back(40 + most, 1);
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  CHECK(x.told.retire_asked.size() == most);
  x.l->retired(40, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
  for (const time_point until = soon(); x.l->stats().retired == 0 && clock::now() < until;) std::this_thread::yield();
  x.agent.ask_back(40 + most, 1);
  REQUIRE(x.told.until([&] { return x.told.retire_asked.size() == most + 1; }));
}

TEST_CASE("a region that the owner has yet to give back is not opened again, in whichever generation") {
  linked x(64 << 10, 2);
  x.open();
  errc why = errc::ok;
  for (std::uint64_t slot = 1;; ++slot) {
    batch* b = x.l->begin_batch(4000, clock::now() + std::chrono::milliseconds(100), why);
    if (!b) break;
    b->owner = &x.told;
    b->on_acknowledged = outcomes::acknowledged;
    put(*b, slot, 4000);
    x.l->submit(b);
    REQUIRE(slot < 100);
  }
  CHECK(why == errc::agent_full);
  x.flush();
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::seal_region] >= 1; }));
  x.agent.ask_back(0);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  const std::uint32_t generation = GENERATE(1u, 2u);
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.reopens = {.region = 0, .generation = generation};
  }
  CHECK(x.l->begin_batch(4000, clock::now() + std::chrono::milliseconds(100), why) == nullptr);
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  CHECK(x.l->region_generation(0) == 0);
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.reopens.region = ~0u;
  }
  x.l->retired(0, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
  x.write(200, 4000);
  x.flush();
}

TEST_CASE("a region that was asked back before the owner knew it is not opened in that generation") {
  linked x(64 << 10, 2);
  x.open();
  x.agent.make_region(40, 0, false);
  x.agent.ask_back(40);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.reopens = {.region = 40, .generation = 1};
  }
  errc why = errc::ok;
  for (std::uint64_t slot = 1;; ++slot) {
    batch* b = x.l->begin_batch(4000, clock::now() + std::chrono::milliseconds(100), why);
    if (!b) break;
    b->owner = &x.told;
    b->on_acknowledged = outcomes::acknowledged;
    put(*b, slot, 4000);
    x.l->submit(b);
    REQUIRE(slot < 100);
  }
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  CHECK(x.l->region_generation(40) == 0);
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.reopens.region = ~0u;
  }
  x.l->retired(40, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
}

TEST_CASE("an agent that asks a region back that the owner never had, in two generations, loses its connection") {
  linked x;
  x.open();
  x.agent.ask_back(40, 1);
  REQUIRE(x.told.until([&] { return x.told.retire_asked.size() == 1; }));
  x.agent.ask_back(40, 2);
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::open_heap] >= 2; }));
  CHECK(x.told.retire_asked.size() == 1);
  x.l->retired(40, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
}

TEST_CASE("several writers go on through breaking connections") {
  linked x(256 << 10, 400);
  x.options.batches_in_flight = 8;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    if (t == message_type::index && nth % 23 == 0)
      return verdict{nth % 2 ? verdict::break_after : verdict::break_before};
    return verdict{};
  };
  x.open();
  std::atomic<int> submitted{0};
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t)
    writers.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 40; ++i) {
        errc why = errc::ok;
        batch* b = x.l->begin_batch(64, soon(), why);
        if (!b) return;
        b->owner = &x.told;
        b->on_acknowledged = outcomes::acknowledged;
        const std::uint64_t words[2] = {detail::header::pack(1, std::uint64_t(t + 1) * 1000 + i), 16};
        std::memcpy(b->data + b->used, words, sizeof words);
        b->used += sizeof words;
        ++b->count;
        x.l->submit(b);
        ++submitted;
      }
    });
  for (auto& t : writers) t.join();
  x.flush();
  REQUIRE(submitted == 120);
  x.check_outcomes(120);
  x.check_agent();
  const std::lock_guard lock(x.agent.mutex);
  for (std::uint64_t t = 1; t <= 3; ++t)
    for (std::uint64_t i = 0; i < 40; ++i) CHECK(x.agent.entries.count(t * 1000 + i) == 1);
}
