// An agent session over a healthy connection: opening, writing back, reading, regions from first to last byte, closing.
#include "fixture.h"

#include <set>
#include <thread>

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::remote;
using namespace fm::remote::test;

TEST_CASE("a batch is indexed and its objects can be read at their home addresses and by slot") {
  linked x;
  x.open();
  REQUIRE(x.l->grant_tablets(0, 1) == errc::ok);
  batch* b = x.begin();
  const auto at = put(*b, 5, 64);
  put(*b, 6, 200);
  x.l->submit(b);
  x.flush();
  x.check_outcomes(1);
  CHECK(x.l->batches_in_flight() == 0);
  CHECK(x.l->readable(at.region) == sizeof(batch_header) + 264);

  std::vector<std::byte> bytes(64);
  fabric::request r;
  REQUIRE(x.l->prepare_read(r, at, bytes.data(), bytes.size()));
  x.l->session().post(r);
  x.l->session().wait(r);
  REQUIRE(r.status == errc::ok);
  CHECK(is_copy(bytes.data(), 5, 64));

  const slot_answer a = x.l->fetch_slot(6, true, 4096, soon());
  REQUIRE(a.status == errc::ok);
  REQUIRE(a.copy.size() == 200);
  CHECK(is_copy(a.copy.data(), 6, 200));
  REQUIRE(a.page.size() == 512);
  CHECK(a.page[5] == at.pack());
  CHECK(a.page[6] == a.entry);
  CHECK(x.l->fetch_slot(6, false, 8, soon()).copy.empty());
  CHECK(x.l->fetch_slot(7, false, 8, soon()).entry == 0);

  std::vector<detail::word_t> words;
  REQUIRE(x.l->read_entries(4, 3, words) == errc::ok);
  CHECK(words == std::vector<detail::word_t>{0, at.pack(), a.entry});
  x.check_agent();
}

TEST_CASE("a read is refused under another generation and clipped at the end of its region") {
  linked x;
  x.open();
  const auto at = x.write(1);
  x.flush();
  fabric::request r;
  std::byte to[256];
  auto other = at;
  other.generation = 2;
  CHECK_FALSE(x.l->prepare_read(r, other, to, 64));
  other = at;
  other.region = 17;
  CHECK_FALSE(x.l->prepare_read(r, other, to, 64));
  other.region = detail::home_address::region_limit - 1;
  CHECK_FALSE(x.l->prepare_read(r, other, to, 64));
  other = at;
  other.offset = static_cast<std::uint32_t>(x.agent.region_bytes);
  CHECK_FALSE(x.l->prepare_read(r, other, to, 64));
  other.offset -= 64;
  REQUIRE(x.l->prepare_read(r, other, to, 256));
  CHECK(r.sg[0].bytes == 64);
}

TEST_CASE("a batch given back empty costs no number and its room is used again") {
  linked x;
  x.open();
  batch* b = x.begin();
  const auto offset = b->offset;
  const auto region = b->region;
  x.l->submit(b);
  b = x.begin();
  CHECK(b->offset == offset);
  CHECK(b->region == region);
  put(*b, 1, 64);
  x.l->submit(b);
  x.flush();
  x.check_outcomes(1);
  CHECK(x.agent.log.front().seq == 1);
}

TEST_CASE("room that batches leave unused is closed, so that the region can be walked") {
  linked x;
  x.options.batches_in_flight = 32;
  x.open();
  // All under construction at once, so that none is at the end of what is carved when it is submitted.
  std::vector<batch*> bs;
  for (int i = 0; i < 12; ++i) bs.push_back(x.begin());
  int slot = 1;
  for (batch* b : bs) {
    // Leaves more or less of its room unused; every third is given back empty.
    if (slot % 3 != 0)
      for (int k = 0; k < slot && b->fits(256); ++k) put(*b, std::uint64_t(slot * 100 + k), 256);
    ++slot;
  }
  for (std::size_t i = 0; i < bs.size(); i += 2) x.l->submit(bs[i]);
  for (std::size_t i = 1; i < bs.size(); i += 2) x.l->submit(bs[i]);
  for (std::uint64_t s = 5000; s < 5400; ++s) x.write(s, 512);
  x.flush();
  x.check_outcomes(8 + 400);
  x.check_agent();
  // Regions that were filled and sealed have no holes: everything up to the last batch can be walked.
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::seal_region] >= 2; }));
  const std::lock_guard lock(x.agent.mutex);
  for (auto& [n, r] : x.agent.regions) {
    if (!r.sealed) continue;
    std::uint64_t end = 0;
    for (auto& [offset, length] : r.extents) {
      CHECK(offset == end);
      end = offset + length;
    }
    CHECK(r.readable == end);
  }
}

TEST_CASE("objects up to half a region fit into a batch, larger ones are refused") {
  linked x;
  x.open();
  const auto half = static_cast<std::uint32_t>(x.agent.region_bytes / 2);
  for (std::uint64_t s = 1; s <= 5; ++s) {
    x.write(s, half);
    x.write(100 + s, 64);
  }
  errc why = errc::ok;
  CHECK(x.l->begin_batch(half + 8, soon(), why) == nullptr);
  CHECK(why == errc::too_large);
  x.flush();
  x.check_outcomes(10);
  x.check_agent();
  for (std::uint64_t s = 1; s <= 5; ++s) {
    const auto a = x.l->fetch_slot(s, false, 1 << 20, soon());
    REQUIRE(a.copy.size() == half);
    CHECK(is_copy(a.copy.data(), s, half));
  }
}

TEST_CASE("begin_batch waits for acknowledgements when too many batches are taken, until its deadline") {
  linked x;
  x.options.batches_in_flight = 2;
  x.open();
  batch* a = x.begin();
  batch* b = x.begin();
  errc why = errc::ok;
  CHECK(x.l->begin_batch(64, clock::now() + std::chrono::milliseconds(5), why) == nullptr);
  CHECK(why == errc::timed_out);
  std::thread other([&] {
    put(*a, 1, 64);
    x.l->submit(a);
  });
  batch* c = x.begin();
  other.join();
  CHECK(c != nullptr);
  x.l->submit(b);
  x.l->submit(c);
  x.flush();
}

TEST_CASE("an agent without room is reported as such at the deadline, and used when a region comes back") {
  linked x(64 << 10, 2);
  x.open();
  errc why = errc::ok;
  std::uint64_t slot = 1;
  for (;; ++slot) {
    batch* b = x.l->begin_batch(4000, clock::now() + std::chrono::milliseconds(100), why);
    if (!b) break;
    b->owner = &x.told;
    b->on_acknowledged = outcomes::acknowledged;
    put(*b, slot, 4000);
    x.l->submit(b);
    REQUIRE(slot < 100);
  }
  CHECK(why == errc::agent_full);
  CHECK(slot > 28);  // both regions were filled
  x.flush();
  // Sealed, emptied, asked back, given back: then there is room again.
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::seal_region] >= 1; }));
  x.agent.ask_back(0);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  x.l->retired(0, 1);
  x.write(slot, 4000);
  x.flush();
}

TEST_CASE("types are registered before the first batch that may need them") {
  bool in_order = true;
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte>) {
    const std::lock_guard lock(x.agent.mutex);
    if (t == message_type::index && x.agent.types.size() < detail::type_count()) in_order = false;
    return verdict{};
  };
  x.open();
  static std::atomic<int> serial{0};
  const auto fresh = [&] {
    detail::type_descriptor d;
    d.bytes = 48;
    d.layout_hash = 5;
    d.ref_offsets = {8, 16, 32};
    d.name = "link_test::type" + std::to_string(serial++);
    return detail::register_type(d).id;
  };
  fresh();
  x.write(1);
  fresh();
  const auto last = fresh();
  x.write(2);
  x.flush();
  CHECK(in_order);
  CHECK(x.agent.types.size() == last);
  fresh();
  CHECK(x.l->register_types() == errc::ok);
  CHECK(x.agent.types.size() == last + 1);
  const auto before = x.agent.count(message_type::register_types);
  CHECK(x.l->register_types() == errc::ok);
  CHECK(x.agent.count(message_type::register_types) == before);
  x.check_outcomes(2);
}

TEST_CASE("a region that only a hint names is learned of once, however many ask") {
  linked x;
  x.open();
  x.agent.make_region(40, 4096, true);
  CHECK(x.l->region_generation(40) == 0);
  CHECK(x.l->learn_region(41) == errc::not_found);
  CHECK(x.l->learn_region(detail::home_address::region_limit) == errc::not_found);
  const auto before = x.agent.count(message_type::region_info);
  std::vector<std::thread> askers;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) askers.emplace_back([&] { good += x.l->learn_region(40) == errc::ok; });
  for (auto& t : askers) t.join();
  CHECK(good == 4);
  CHECK(x.agent.count(message_type::region_info) == before + 1);
  CHECK(x.l->region_generation(40) == 1);
  CHECK(x.l->readable(40) == x.agent.region_bytes);
}

TEST_CASE("the readable part of a region that the cleaner still fills is refreshed by asking again") {
  linked x;
  x.open();
  x.agent.make_region(40, 4096, false);
  REQUIRE(x.l->learn_region(40) == errc::ok);
  CHECK(x.l->readable(40) == 4096);
  {
    const std::lock_guard lock(x.agent.mutex);
    x.agent.regions[40].readable = 8192;
  }
  REQUIRE(x.l->learn_region(40) == errc::ok);
  CHECK(x.l->readable(40) == 8192);
}

TEST_CASE("a region that the agent wants back is unreadable at once and acknowledged only when the owner says so") {
  linked x;
  x.open();
  x.agent.make_region(40, 4096, true);
  REQUIRE(x.l->learn_region(40) == errc::ok);
  x.agent.ask_back(40);
  x.agent.ask_back(40);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  fabric::request r;
  std::byte to[64];
  CHECK_FALSE(x.l->prepare_read(r, {.region = 40, .generation = 1, .offset = 0, .size_class = 0}, to, 64));
  CHECK(x.l->region_generation(40) == 0);
  CHECK(x.l->learn_region(40) == errc::stale);
  CHECK(x.agent.count(message_type::retired_region) == 0);
  x.l->retired(40, 1);
  REQUIRE(x.agent.until([&] { return x.agent.retired.size() == 1; }));
  CHECK(x.agent.retired[0].region == 40);
  CHECK(x.l->session().direct(40) == nullptr);
  CHECK(x.told.retire_asked.size() == 1);
}

TEST_CASE("room after a retirement is what the agent tells, and never more than the quota") {
  linked x;
  x.open();
  const auto retire = [&](std::uint32_t region) {
    x.agent.make_region(region, 4096, true);
    REQUIRE(x.l->learn_region(region) == errc::ok);
    x.agent.ask_back(region);
    REQUIRE(x.told.until([&] { return x.told.retire_asked.size() == x.agent.retired.size() + 1; }));
    const std::uint64_t before = x.l->stats().retired;
    x.l->retired(region, 1);
    const time_point until = soon();
    while (x.l->stats().retired == before && clock::now() < until) std::this_thread::yield();
    return x.l->left_bytes();
  };
  CHECK(retire(40) == x.l->quota_bytes());  // an older agent does not tell
  CHECK(retire(41) == x.l->quota_bytes());
  x.agent.left_after_retirement = 5;
  CHECK(retire(42) == 6 * x.l->region_bytes());  // one is open ahead
  CHECK(retire(43) == 6 * x.l->region_bytes());
  x.agent.left_after_retirement = 0;
  CHECK(retire(44) == x.l->region_bytes());
}

TEST_CASE("a region that is being filled cannot be asked back") {
  linked x;
  x.open();
  const auto at = x.write(1);
  x.flush();
  x.agent.make_region(40, 0, true);
  x.agent.ask_back(at.region);
  x.agent.ask_back(40);
  REQUIRE(x.told.until([&] { return !x.told.retire_asked.empty(); }));
  CHECK(x.told.retire_asked == std::vector<std::uint32_t>{40});
  CHECK(x.l->region_generation(at.region) == at.generation);
  x.write(2);
  x.flush();
}

TEST_CASE("an idle link renews its lease by itself") {
  linked x;
  x.agent.lease_ms = 40;
  x.open();
  REQUIRE(x.agent.until([&] { return x.agent.messages[message_type::renew] >= 3; }));
}

TEST_CASE("closing delivers what is in flight as cancelled, frees the heap, and may be repeated") {
  linked x;
  x.agent.hook = [&](message_type t, std::uint64_t, std::span<const std::byte>) {
    // Nothing is indexed: the batches are on their way when the agent session is closed.
    return t == message_type::index ? verdict{verdict::break_before} : verdict{};
  };
  x.options.session.reconnect_for = std::chrono::seconds(30);
  x.open();
  for (std::uint64_t s = 1; s <= 3; ++s) x.write(s);
  batch* unfinished = x.begin();
  put(*unfinished, 9, 64);
  x.l->close();
  x.check_outcomes(3, errc::cancelled);
  x.l->submit(unfinished);
  x.check_outcomes(4, errc::cancelled);
  errc why = errc::ok;
  CHECK(x.l->begin_batch(64, soon(), why) == nullptr);
  CHECK(why == errc::heap_closed);
  CHECK(x.l->fetch_slot(1, false, 64, soon()).status == errc::heap_closed);
  x.l->close();
  CHECK_FALSE(x.l->lost());
  CHECK(x.told.lost.empty());
}

TEST_CASE("closing an idle link frees its heap on the agent") {
  linked x;
  x.open();
  x.l->close();
  CHECK(x.agent.count(message_type::close_heap) == 1);
  CHECK_FALSE(x.agent.heap_here);
}

TEST_CASE("an open that the agent refuses throws the agent's own reason and names the URL") {
  linked x;
  x.agent.hook = [](message_type, std::uint64_t, std::span<const std::byte>) {
    return verdict{verdict::refuse, errc::quota_exceeded};
  };
  try {
    x.open();
    FAIL("the open succeeded");
  } catch (const error& e) {
    CHECK(e.code() == errc::quota_exceeded);
    CHECK(std::string(e.what()).find("local:") != std::string::npos);
    CHECK(std::string(e.what()).find("scripted") != std::string::npos);
  }
}

TEST_CASE("introspection passes through") {
  linked x;
  x.open();
  audit_answer a{};
  std::string text;
  REQUIRE(x.l->audit(a, text) == errc::ok);
  CHECK(a.metadata_bytes == 3);
  REQUIRE(x.l->statistics(text) == errc::ok);
  CHECK(text == "{}");
  x.write(1);
  x.flush();
  const agent_session_stats s = x.l->stats();
  CHECK(s.batches == 1);
  CHECK(s.objects_written == 1);
  CHECK(s.batch_bytes == 64 + sizeof(batch_header));
  CHECK(s.regions >= 1);
}

TEST_CASE("several threads build batches at the same time and numbers leave without a gap") {
  const std::string scheme = GENERATE("local");
  linked x(256 << 10, 200);
  x.options.batches_in_flight = 8;
  x.open(scheme);
  constexpr int threads = 4, batches = 60;
  std::vector<std::thread> writers;
  for (int t = 0; t < threads; ++t)
    writers.emplace_back([&, t] {
      for (int i = 0; i < batches; ++i) {
        errc why = errc::ok;
        batch* b = x.l->begin_batch(64, soon(), why);
        if (!b) return;
        b->owner = &x.told;
        b->on_acknowledged = outcomes::acknowledged;
        if (i % 7 != 6) {
          const auto slot = std::uint64_t(t + 1) * 100000 + std::uint64_t(i) * 100;
          for (std::uint64_t k = 0; k < 20 && b->used + 128 <= b->capacity; ++k) {
            const std::uint64_t header = detail::header::pack(1, slot + k), n = 128;
            std::memset(b->data + b->used, 0, 128);
            std::memcpy(b->data + b->used, &header, 8);
            std::memcpy(b->data + b->used + 8, &n, 8);
            b->used += 128;
            ++b->count;
          }
        }
        x.l->submit(b);
      }
    });
  for (auto& t : writers) t.join();
  x.flush();
  x.check_outcomes(threads * (batches - batches / 7));
  x.check_agent();
  for (int t = 0; t < threads; ++t) CHECK(x.agent.entries.count(std::uint64_t(t + 1) * 100000) == 1);
}
