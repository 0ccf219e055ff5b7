// What an agent does with heaps that their owners leave: who gets them, in which state, and for how long they stay.
#include "fixture.h"

#include <string_view>

using namespace store_test;

namespace {

template <class Body>
void put_names(Body& b, std::string_view name, std::string_view secret) {
  name.copy(b.name, sizeof b.name);
  secret.copy(b.secret, sizeof b.secret);
}

reply detach(owner& o, std::string_view name = "kept", std::uint64_t keep_ms = 60'000,
             std::string_view record = "a record", std::uint64_t lineage = 0) {
  detach_heap_body b{
      {}, {}, {lineage != 0 ? lineage : o.incarnation, 1}, keep_ms, static_cast<std::uint32_t>(record.size()), 0};
  put_names(b, name, "secret");
  std::vector<std::byte> m(sizeof b + record.size());
  std::memcpy(m.data(), &b, sizeof b);
  std::memcpy(m.data() + sizeof b, record.data(), record.size());
  return o.send(message_type::detach_heap, m.data(), m.size());
}
reply attach(owner& o, bool take, std::string_view name = "kept", std::string_view secret = "secret") {
  attach_heap_body b{protocol_major, protocol_minor, take, {}, {}, o.incarnation, "next"};
  put_names(b, name, secret);
  const reply r = o.send(message_type::attach_heap, b);
  if (r.ok() && take) o.seq = r.as<attach_heap_answer>().opened.applied_seq + 1;
  return r;
}
std::string_view record_of(const reply& r) {
  return {reinterpret_cast<const char*>(r.body.data()) + sizeof(attach_heap_answer),
          r.body.size() - sizeof(attach_heap_answer)};
}

/// With an object in slot 5, in a region that is not sealed.
region_answer make_heap(owner& o) {
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 5, 8, 42);
  REQUIRE(o.append(b, r, 0).ok());
  return r;
}

/// A heap that its owner has left, and somebody else.
struct left_heap {
  left_heap() {
    next.incarnation = 78;
    REQUIRE(detach(first).ok());
  }
  std::unique_ptr<fm::agent::store> s = fm::agent::store::create(small());
  owner first{*s, 1}, next{*s, 2};
  const region_answer region = make_heap(first);
};

}  // namespace

TEST_CASE("a next owner gets the heap as it was left, and its batches go on", "[store]") {
  left_heap left;
  owner &first = left.first, &next = left.next;
  CHECK(record_of(attach(next, false)) == "a record");
  CHECK(first.peer->closed() == errc::ok);  // that was a look
  CHECK(next.send(message_type::audit).returned == errc::bad_frame);

  const reply got = attach(next, true);
  REQUIRE(got.ok());
  CHECK(got.as<attach_heap_answer>().heap_id[0] == 1);
  CHECK(got.as<attach_heap_answer>().opened.applied_seq == 1);
  CHECK(first.peer->closed() == errc::stale);
  CHECK(first.fetch(5).returned == errc::stale);
  first.disconnect();
  CHECK(next.value(5) == 42);
  batch_builder late;
  late.object(type_line, 6, 8, 1);
  CHECK_FALSE(next.write(left.region, 4096, late.bytes));  // its region takes nothing any more
  const region_answer fresh = next.open_region();
  batch_builder b;
  b.object(type_line, 6, 8, 43);
  REQUIRE(next.append(b, fresh, 0).ok());
  CHECK(next.seq == 3);
  CHECK(next.value(6) == 43);
  next.audit();
}

TEST_CASE("a heap is attached only in the state in which it was left", "[store]") {
  left_heap left;
  owner &first = left.first, &next = left.next;
  const region_answer& r = left.region;
  SECTION("not after a batch") {
    batch_builder b;
    b.object(type_line, 6, 8, 1);
    REQUIRE(first.append(b, r, 4096).ok());
  }
  SECTION("not after a cycle has begun") { REQUIRE(first.send(message_type::begin_cycle, cycle_name{1}).ok()); }
  SECTION("not with other tablets") {
    const message_type how = GENERATE(message_type::grant_tablets, message_type::replicate_tablets,
                                      message_type::promote_tablets, message_type::leave_tablets);
    (void)first.send(how, grant_tablets_body{how == message_type::promote_tablets ? 0u : 1u, 1});
  }
  SECTION("not with other types") {
    type_list t;
    t.add({9, 0, 15, 16}, {}, "other");
    REQUIRE(first.send(message_type::register_types, t.bytes.data(), t.bytes.size()).ok());
  }
  SECTION("not when it was claimed") { REQUIRE(first.send(message_type::claim_heap).ok()); }
  CHECK(attach(next, false).code == errc::conflict);
  CHECK(attach(next, true).code == errc::conflict);
  CHECK(first.value(5) == 42);
  REQUIRE(detach(first).ok());  // again
  CHECK(attach(next, true).ok());
}

TEST_CASE("what reads changes nothing: the heap can still be attached", "[store]") {
  left_heap left;
  owner &first = left.first, &next = left.next;
  const region_answer& r = left.region;
  REQUIRE(first.fetch(5, true).ok());
  REQUIRE(first.info(r.region).ok());
  REQUIRE(first.types().ok());  // the same again
  REQUIRE(first.send(message_type::renew).ok());
  first.audit();
  CHECK(attach(next, true).ok());
}

TEST_CASE("one owner has a heap, and leaves it to others if it has changed nothing", "[store]") {
  left_heap left;
  owner &next = left.next, third(*left.s, 3);
  third.incarnation = 79;
  left.first.disconnect();
  REQUIRE(attach(next, true).ok());
  const reply refused = attach(third, true);
  CHECK(refused.code == errc::conflict);
  CHECK(refused.text().find("next at fake") != std::string::npos);
  CHECK(attach(third, false).code == errc::conflict);
  CHECK(attach(next, true).returned == errc::bad_frame);  // a session opens one heap

  next.disconnect();
  next.connect();
  CHECK(next.open(0, true).code == errc::not_found);  // resuming needs the heap's own id
  CHECK(attach(next, true).ok());                     // the answer may have been lost
  next.disconnect();
  CHECK(attach(third, true).ok());
  CHECK(third.value(5) == 42);
}

TEST_CASE("a name, a secret and a record have their bounds, and a name is one heap's", "[store]") {
  auto s = fm::agent::store::create(small());
  owner first(*s, 1), other(*s, 2);
  other.incarnation = 78;
  make_heap(first);
  make_heap(other);
  CHECK(detach(first, "").returned == errc::bad_frame);
  CHECK(detach(first, std::string(64, 'n')).returned == errc::bad_frame);
  CHECK(detach(first, "kept", 1, "").returned == errc::bad_frame);
  detach_heap_body b{{'k'}, {'s'}, {}, 1, 9, 0};
  CHECK(first.send(message_type::detach_heap, b).returned == errc::bad_frame);  // a record of nine bytes
  REQUIRE(detach(first, std::string(63, 'n')).ok());
  REQUIRE(detach(first).ok());
  CHECK(detach(other).code == errc::conflict);
  CHECK(detach(other, "another").ok());
  owner next(*s, 3);
  CHECK(attach(next, false, std::string(63, 'n')).code == errc::not_found);  // it has another name now
  CHECK(attach(next, false, "").returned == errc::bad_frame);
  CHECK(attach(next, false, std::string(64, 'k')).returned == errc::bad_frame);
  CHECK(attach(next, true, "kept", "").code == errc::access_denied);
  CHECK(attach(next, true, "kept", "secret!").code == errc::access_denied);
  CHECK(attach(next, true).ok());
}

TEST_CASE("a name is free again when its heap has an owner", "[store]") {
  auto s = fm::agent::store::create(small());
  owner first(*s, 1), second(*s, 2), next(*s, 3), third(*s, 4);
  next.incarnation = 79;
  third.incarnation = 80;
  make_heap(first);
  make_heap(second);
  REQUIRE(detach(first, "kept", 60'000, "of the first").ok());
  CHECK(detach(second, "kept", 60'000, "of the second", 5).code == errc::conflict);
  REQUIRE(attach(next, true).ok());
  REQUIRE(next.send(message_type::claim_heap).ok());
  CHECK(attach(third, false).text().find("next at fake has it") != std::string::npos);
  REQUIRE(detach(second, "kept", 60'000, "of the second", 5).ok());
  CHECK(record_of(attach(third, false)) == "of the second");
  CHECK(detach(next, "kept", 60'000, "again").code == errc::conflict);
}

TEST_CASE("an earlier state of the same heap gives its name up, unless somebody takes it", "[store]") {
  auto s = fm::agent::store::create(small());
  owner left_out(*s, 1), goes_on(*s, 2), next(*s, 3);
  next.incarnation = 79;
  make_heap(left_out);
  make_heap(goes_on);
  constexpr std::uint64_t lineage = 1234;
  REQUIRE(detach(left_out, "kept", 60'000, "old", lineage).ok());
  CHECK(detach(goes_on, "kept", 60'000, "new", lineage + 1).code == errc::conflict);
  REQUIRE(attach(next, true).ok());
  CHECK(detach(goes_on, "kept", 60'000, "new", lineage).code == errc::conflict);
  next.disconnect();
  next.connect();
  const bool hangs_on = GENERATE(false, true);  // whose connection is broken, and the agent does not know it
  if (!hangs_on) left_out.disconnect();
  REQUIRE(detach(goes_on, "kept", 60'000, "new", lineage).ok());
  CHECK(s->heaps_left() == 1);
  CHECK(record_of(attach(next, true)) == "new");
}

TEST_CASE("a heap that was left stays for as long as its owner said, and the agent allows", "[store]") {
  manual_clock clock;
  auto options = small();
  options.hooks.now = manual_clock::read;
  options.hooks.context = &clock;
  options.keep_max_ms = 100'000;
  auto s = fm::agent::store::create(options);
  owner first(*s, 1), next(*s, 2);
  next.incarnation = 78;
  make_heap(first);
  const auto gone = [&](std::chrono::milliseconds after) {
    clock.advance(after);
    settle(*s);
    return attach(next, false).code == errc::not_found;
  };
  SECTION("as it said") {
    REQUIRE(detach(first, "kept", 50'000).ok());
    CHECK_FALSE(gone(std::chrono::hours(1)));  // it is still there itself
    first.disconnect();
    CHECK_FALSE(gone(std::chrono::milliseconds(49'999)));
    CHECK(gone(std::chrono::milliseconds(1)));
  }
  SECTION("at most as the agent allows") {
    REQUIRE(detach(first, "kept", ~std::uint64_t{0}).ok());
    first.disconnect();
    CHECK_FALSE(gone(std::chrono::milliseconds(99'999)));
    CHECK(gone(std::chrono::milliseconds(1)));
  }
  SECTION("and as any other heap when it has changed since") {
    REQUIRE(detach(first).ok());
    first.disconnect();
    REQUIRE(attach(next, true).ok());
    REQUIRE(next.send(message_type::claim_heap).ok());
    next.disconnect();
    next.connect();
    CHECK_FALSE(gone(std::chrono::milliseconds(14'999)));
    CHECK(attach(next, true).code == errc::conflict);  // its owner may come back
    CHECK(gone(std::chrono::milliseconds(1)));
  }
}

TEST_CASE("regions that nothing is in are free when a heap is attached", "[store]") {
  auto s = fm::agent::store::create(small());
  owner first(*s, 1), next(*s, 2);
  next.incarnation = 78;
  make_heap(first);
  (void)first.open_region();  // empty, and never sealed
  const region_answer dead = fill(first, 1000, 1);
  const region_answer fresh = first.open_region();
  std::uint64_t at = 0;
  supersede(first, fresh, at, 1000, per_region, 2);  // all but the first
  batch_builder b;
  b.object(type_word, 1000, 1, 2);
  REQUIRE(first.append(b, fresh, at).ok());
  REQUIRE(first.peer->retirements().size() == 1);  // of which the first owner says nothing
  REQUIRE(detach(first).ok());
  const auto regions = [&](owner& o) {
    const reply r = o.send(message_type::statistics);
    const std::size_t found = r.text().find("\"regions\":");
    REQUIRE(found != std::string::npos);
    return std::stoul(r.text().substr(found + 10));
  };
  const unsigned long before = regions(first);
  REQUIRE(attach(next, true).ok());
  CHECK(regions(next) == before - 2);
  CHECK(next.info(dead.region).code == errc::not_found);
  CHECK(next.peer->retirements().empty());
  next.audit();
}
