// Heaps: opening, resuming, leases, types, tablets, and messages that no correct owner sends.
#include <atomic>
#include <thread>

#include "fixture.h"
#include "support/await.h"

using namespace store_test;

TEST_CASE("opening a heap is answered with what the agent gives", "[store]") {
  store_options options = small();
  options.quota_default_bytes = 512_KiB;
  options.lease_default_ms = 700;
  options.lease_max_ms = 900;
  auto s = fm::agent::store::create(options);
  owner a(*s, 1), b(*s, 2), c(*s, 3);
  const auto given = a.open().as<open_heap_answer>();
  CHECK(given.region_bytes == 64_KiB);
  CHECK(given.quota_bytes == 512_KiB);
  CHECK(given.lease_ms == 700);
  CHECK(given.applied_seq == 0);
  const auto wanted = b.open(128_KiB, false, 5000).as<open_heap_answer>();
  CHECK(wanted.quota_bytes == 128_KiB);
  CHECK(wanted.lease_ms == 900);
  CHECK(c.open(1024_KiB).code == errc::quota_exceeded);
  CHECK(c.open(4096).code == errc::quota_exceeded);
}

TEST_CASE("another major version is refused with a text that names both", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  open_heap_body b = o.open_body(0, false, 0);
  b.major = 9;
  const reply r = o.send(message_type::open_heap, b);
  CHECK(r.code == errc::version_mismatch);
  CHECK(r.text().find("9." + std::to_string(protocol_minor)) != std::string::npos);
}

TEST_CASE("the agent has a limit of heaps", "[store]") {
  store_options options = small();
  options.heaps_max = 2;
  auto s = fm::agent::store::create(options);
  owner a(*s, 1), b(*s, 2), c(*s, 3);
  CHECK(a.open().ok());
  CHECK(b.open().ok());
  CHECK(c.open().code == errc::agent_full);
  CHECK(a.send(message_type::close_heap).ok());
  CHECK(c.open().ok());
}

TEST_CASE("an owner that comes back within its lease finds everything", "[store]") {
  manual_clock time;
  store_options options = small();
  options.lease_default_ms = 1000;
  options.hooks.now = manual_clock::read;
  options.hooks.context = &time;
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b, next;
  b.object(type_line, 1, 8, 42);
  next.object(type_line, 2, 8, 43);
  REQUIRE(o.append(b, r, 0).ok());
  o.disconnect();
  time.advance(std::chrono::milliseconds(999));
  settle(*s);
  o.connect();

  SECTION("the same incarnation resumes") {
    const reply back = o.open(0, true);
    REQUIRE(back.ok());
    CHECK(back.as<open_heap_answer>().applied_seq == 1);
    CHECK(o.value(1) == 42);
    CHECK(o.info(r.region, r.generation).ok());
    CHECK(o.append(next, r, b.bytes.size()).ok());
    time.advance(std::chrono::hours(10));  // connected: no lease runs
    settle(*s);
    CHECK(o.value(1) == 42);
    o.audit();
  }
  SECTION("another incarnation does not") {
    o.incarnation = 78;
    CHECK(o.open(0, true).code == errc::stale);
    CHECK(o.open(0, false).code == errc::stale);
  }
  SECTION("opening it anew does not") { CHECK(o.open(0, false).code == errc::refused); }
  SECTION("after the lease it is gone, and its memory is free") {
    time.advance(std::chrono::milliseconds(1));
    settle(*s);
    CHECK(o.open(0, true).code == errc::not_found);
    CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
    CHECK(s->statistics().find("\"heaps_expired\":1,") != std::string::npos);
    CHECK(o.open(0, false).ok());
    CHECK(o.entry(1) == detail::word::free);
  }
}

TEST_CASE("an owner that never got the answer to its first open asks again", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  REQUIRE(o.open().ok());
  o.disconnect();
  o.connect();
  CHECK(o.open().ok());
}

TEST_CASE("a resumed heap is taken from a connection that looks alive", "[store]") {
  auto s = fm::agent::store::create(small());
  owner first(*s), second(*s);  // the same process on two connections: the first has broken unnoticed
  first.open_ready();
  const region_answer r = first.open_region();
  batch_builder b, late;
  b.object(type_line, 1, 8, 1);
  late.object(type_line, 1, 8, 2);
  REQUIRE(first.append(b, r, 0).ok());
  const index_body late_message = late.finish(first.incarnation, 2, r, b.bytes.size());

  SECTION("and what comes late on it is refused") {
    REQUIRE(first.write(r, b.bytes.size(), late.bytes));
    REQUIRE(second.open(0, true).ok());
    CHECK(first.peer->closed() == errc::stale);
    CHECK(first.send(message_type::index, late_message).returned == errc::stale);
    CHECK(s->memory(*first.peer, {r.region, r.generation, 8192}, 8, fabric::access::write) == nullptr);
    CHECK(second.value(1) == 1);
    first.disconnect();  // and its end does not start the lease of the heap that it lost
    settle(*s);
    CHECK(s->statistics().find("\"connected\":true") != std::string::npos);
    second.audit();
  }
  SECTION("but not while one of its writes is running") {
    std::byte* to = s->memory(*first.peer, {r.region, r.generation, b.bytes.size()}, 64, fabric::access::write);
    REQUIRE(to != nullptr);
    CHECK(second.open(0, true).code == errc::timed_out);
    s->memory_done(*first.peer, r.region);
    CHECK(second.open(0, true).ok());
  }
}

TEST_CASE("closing a heap frees everything at once", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8);
  REQUIRE(o.append(b, r, 0).ok());
  REQUIRE(o.send(message_type::close_heap).ok());
  CHECK(s->statistics().find("\"regions_in_use\":0,") != std::string::npos);
  CHECK(o.fetch(1).code == errc::not_found);
  CHECK(o.send(message_type::open_region).code == errc::not_found);
  CHECK(s->memory(*o.peer, {r.region, r.generation, 0}, 8, fabric::access::read) == nullptr);
}

TEST_CASE("a type may be registered again as it is, and not otherwise", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  REQUIRE(o.open().ok());
  const auto send = [&](type_record t, std::vector<std::uint32_t> refs, const std::string& name) {
    type_list l;
    l.add(t, std::move(refs), name);
    return o.send(message_type::register_types, l.bytes.data(), l.bytes.size());
  };
  REQUIRE(send({1, 0, 5, 24}, {0, 16}, "pair").ok());
  CHECK(send({1, 0, 5, 24}, {0, 16}, "pair").ok());
  CHECK(send({1, 0, 6, 24}, {0, 16}, "pair").code == errc::layout_mismatch);
  CHECK(send({1, 0, 5, 24}, {0, 8}, "pair").code == errc::layout_mismatch);
  CHECK(send({1, 0, 5, 32}, {0, 16}, "pair").code == errc::layout_mismatch);
  CHECK(send({1, 1, 5, 24}, {0, 16}, "pair").code == errc::layout_mismatch);
  CHECK(send({1, 0, 5, 24}, {0, 16}, "pear").code == errc::layout_mismatch);
  CHECK(send({2, 0, 5, 70000}, {}, "larger than a region").code == errc::too_large);
}

TEST_CASE("malformed type records end the connection", "[store]") {
  const int which = GENERATE(range(0, 10));
  auto s = fm::agent::store::create(small());
  owner o(*s);
  REQUIRE(o.open().ok());
  type_list l;
  if (which == 0) l.add({0, 0, 1, 8}, {}, "number 0");
  if (which == 1) l.add({1u << 24, 0, 1, 8}, {}, "number too large");
  if (which == 2) l.add({1, 2, 1, 8}, {}, "no such kind");
  if (which == 3) l.add({1, 0, 1, 8}, {8}, "reference outside");
  if (which == 4) l.add({1, 0, 1, 24}, {8, 8}, "references overlap");
  if (which == 5) l.add({1, 0, 1, 8}, {0xffffffff}, "offset that would overflow");
  if (which == 6) {
    l.add({1, 0, 1, 8}, {}, "length beyond the message");
    const std::uint32_t huge = 0xffffff00;
    std::memcpy(l.bytes.data() + sizeof(register_types_body) + offsetof(type_record, name_bytes), &huge, 4);
  }
  if (which == 7) {
    l.add({1, 0, 1, 8}, {}, "fewer records than announced");
    const register_types_body two{2, 0};
    std::memcpy(l.bytes.data(), &two, sizeof two);
  }
  if (which == 8) l.add({1, 0, 1, 24}, {4}, "reference across words");
  if (which == 9) l.add({1, 1, 1, 12}, {0}, "references across words in an array");
  CHECK(o.send(message_type::register_types, l.bytes.data(), l.bytes.size()).returned == errc::bad_frame);
}

TEST_CASE("tablets are granted once, repeated and overlapping grants are harmless", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  REQUIRE(o.open().ok());
  REQUIRE(o.types().ok());
  REQUIRE(o.grant(4, 2).ok());
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 5 * 65536, 8, 9);
  REQUIRE(o.append(b, r, 0).ok());
  REQUIRE(o.grant(3, 4).ok());
  CHECK(o.value(5 * 65536) == 9);
  CHECK(o.entry(3 * 65536) == 0);
  CHECK(o.entry(7 * 65536) == detail::word::free);
  REQUIRE(o.grant((1u << 24) - 1, 1).ok());
  CHECK(o.entry(detail::slot_limit - 1) == 0);
  CHECK(o.grant(0, 2u << 20).code == errc::quota_exceeded);
  CHECK(o.grant(1u << 24, 1).returned == errc::bad_frame);
  CHECK(o.grant(1, 1u << 24).returned == errc::bad_frame);
  CHECK(o.grant(1, 0).returned == errc::bad_frame);
  o.audit();
}

// Each tablet costs the agent memory and the time of whoever walks them all: a small quota must not buy a million.
TEST_CASE("a heap is granted as many tablets as its quota is worth", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  const std::uint64_t quota = small().region_bytes;
  REQUIRE(o.open(quota).ok());
  const auto most = static_cast<std::uint32_t>(1024 + quota / (16u << 10));
  CHECK(o.grant(0, most + 1).code == errc::quota_exceeded);
  REQUIRE(o.grant(0, most - 1).ok());
  REQUIRE(o.grant(most - 2, 2).ok());
  CHECK(o.grant(most, 1).code == errc::quota_exceeded);
  CHECK(o.entry(std::uint64_t{most} * 65536) == detail::word::free);
  REQUIRE(o.grant(0, most).ok());
  o.audit();
}

TEST_CASE("messages that no owner sends end the connection and nothing else", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s), fresh(*s, 2);
  CHECK(fresh.send(message_type::renew).returned == errc::bad_frame);  // before open_heap
  CHECK(fresh.fetch(1).returned == errc::bad_frame);
  o.open_ready();
  CHECK(o.send(message_type::renew).ok());
  CHECK(o.open().returned == errc::bad_frame);  // twice on one session
  CHECK(o.send(static_cast<message_type>(0)).returned == errc::bad_frame);
  CHECK(o.send(static_cast<message_type>(999)).returned == errc::bad_frame);
  CHECK(o.send(message_type::retire_region, region_name{0, 1}).returned == errc::bad_frame);
  CHECK(o.send(message_type::traced, cycle_name{1}).returned == errc::bad_frame);
  CHECK(o.fetch(0).returned == errc::bad_frame);
  CHECK(o.fetch(detail::slot_limit).returned == errc::bad_frame);
  CHECK(o.send(message_type::fetch_slot, fetch_slot_body{1, 2, 0}).returned == errc::bad_frame);
  CHECK(o.send(message_type::read_entries, read_entries_body{0, 65537, 0}).returned == errc::bad_frame);
  CHECK(o.send(message_type::read_entries, read_entries_body{detail::slot_limit - 1, 2, 0}).returned ==
        errc::bad_frame);
  for (int type = 1; type <= 23; ++type) {
    const std::byte odd[3] = {};
    CHECK(o.send(static_cast<message_type>(type), odd, sizeof odd).returned == errc::bad_frame);
  }
  std::byte raw[16] = {};
  const message_head wrong_length{static_cast<std::uint16_t>(message_type::renew), 0, 4};
  std::memcpy(raw, &wrong_length, sizeof wrong_length);
  CHECK(o.send_raw(std::span(raw).first(8)).returned == errc::bad_frame);
  CHECK(o.send_raw(std::span(raw).first(3)).returned == errc::bad_frame);
  const message_head reserved{static_cast<std::uint16_t>(message_type::renew), 1, 0};
  std::memcpy(raw, &reserved, sizeof reserved);
  CHECK(o.send_raw(std::span(raw).first(8)).returned == errc::bad_frame);
  CHECK(o.send(message_type::renew).ok());
}

TEST_CASE("an owner is told how busy the agent is, and one that does not know of it is not", "[store]") {
  auto options = small();
  options.hooks.busy = [](void*) { return 1.25; };
  auto s = fm::agent::store::create(options);
  owner o(*s);
  o.open_ready();
  const reply told = o.send(message_type::renew);
  REQUIRE(told.ok());
  REQUIRE(told.body.size() == sizeof(renew_answer));
  CHECK(told.as<renew_answer>().busy_permille == 1250);
  CHECK(s->statistics().find("\"busy\":1.250") != std::string::npos);

  owner old(*s, 2);
  open_heap_body b = old.open_body(0, false, 0);
  b.minor = minor_of_detaching;
  REQUIRE(old.send(message_type::open_heap, b).ok());
  const reply nothing = old.send(message_type::renew);
  CHECK(nothing.ok());
  CHECK(nothing.body.empty());
}

TEST_CASE("options out of range are named", "[store]") {
  const auto fails = [](auto change) {
    store_options o = small();
    change(o);
    try {
      (void)fm::agent::store::create(o);
    } catch (const error& e) {
      return e.code() == errc::invalid_argument;
    }
    return false;
  };
  CHECK(fails([](store_options& o) { o.region_bytes = 100'000; }));
  CHECK(fails([](store_options& o) { o.region_bytes = 32_KiB; }));
  CHECK(fails([](store_options& o) {
    o.region_bytes = 64_MiB;
    o.memory_bytes = 1_GiB;
  }));
  CHECK(fails([](store_options& o) { o.memory_bytes = 64_KiB; }));
  CHECK(fails([](store_options& o) { o.quota_default_bytes = 1; }));
  CHECK(fails([](store_options& o) { o.heaps_max = 0; }));
  CHECK(fails([](store_options& o) { o.lease_default_ms = 0; }));
  CHECK(fails([](store_options& o) { o.clean_below_live_ratio = 1.0; }));
  CHECK(fails([](store_options& o) { o.clean_reserve = -1; }));
  CHECK(fails([](store_options& o) { o.trace_threads = 0; }));
  CHECK(fails([](store_options& o) { o.trace_queue_slots = 63; }));
  CHECK(fails([](store_options& o) { o.trace_references_max = 1; }));
}

namespace {

/// A connection whose end takes as long as a test wants: until then the heap is held.
class slow_to_close final : public fabric::peer {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte>) noexcept override { return true; }
  void close(errc, std::string_view) noexcept override {
    closing_.store(true);
    closing_.notify_all();
    go_on_.wait(false);
  }
  void until_closing() { closing_.wait(false); }
  void let_go() {
    go_on_.store(true);
    go_on_.notify_all();
  }

 private:
  std::string name_ = "slow to close";
  std::atomic<bool> closing_{false}, go_on_{false};
};

errc open_by_hand(fm::agent::store& s, fabric::peer& p, const open_heap_body& body) {
  struct {
    message_head head;
    open_heap_body body;
  } m{{static_cast<std::uint16_t>(message_type::open_heap), 0, sizeof body}, body};
  fabric::answer a;
  return s.message(p, std::as_bytes(std::span(&m, 1)), a);
}

}  // namespace

TEST_CASE("while a heap is held others are opened, found and closed, and detached ones are looked for", "[store]") {
  auto s = fm::agent::store::create(small());
  slow_to_close slow;
  REQUIRE(s->connected(slow) == errc::ok);
  owner again(*s, 1);
  REQUIRE(open_by_hand(*s, slow, again.open_body(0, false, 0)) == errc::ok);
  std::atomic<bool> resumed{false}, others{false};
  std::thread resuming([&] { resumed = open_by_hand(*s, *again.peer, again.open_body(0, true, 0)) == errc::ok; });
  slow.until_closing();  // under the heap's mutex
  std::thread other([&] {
    owner fresh(*s, 2);
    bool good = open_by_hand(*s, *fresh.peer, fresh.open_body(0, false, 0)) == errc::ok;
    fresh.disconnect();
    fresh.connect();
    good = good && open_by_hand(*s, *fresh.peer, fresh.open_body(0, true, 0)) == errc::ok;
    owner next(*s, 3);
    const attach_heap_body b{protocol_major, protocol_minor, 0, "nobody's", "", next.incarnation, "next"};
    good = good && next.send(message_type::attach_heap, b).code == errc::not_found;
    others = good;
  });
  const bool in_time = fm::test::await([&] { return others.load(); });
  slow.let_go();
  other.join();
  resuming.join();
  REQUIRE(in_time);
  REQUIRE(resumed);
  s->disconnected(slow);
}
