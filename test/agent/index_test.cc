// Indexing: what a well-formed batch does to entries, and what every malformed one does not do.
#include "fixture.h"

using namespace store_test;

TEST_CASE("an indexed batch is found by slot, with its bytes and the page of hints", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  CHECK(r.generation == 1);
  CHECK(r.bytes == 64_KiB);
  CHECK(r.readable_bytes == 0);
  batch_builder b;
  b.object(type_word, 5, 1, 0x1234).object(type_line, 700, 8, 3).array(type_bytes, 6, 11, 2);
  REQUIRE(o.append(b, r, 0).ok());

  const reply f = o.fetch(5, true);
  REQUIRE(f.ok());
  const auto a = f.as<fetch_slot_answer>();
  const home_address at = home_address::unpack(a.entry);
  CHECK((at == home_address{r.region, 1, b.offsets[5], detail::size_class::of(16)}));
  REQUIRE(a.page_entries == 512);
  REQUIRE(a.bytes == 16);
  CHECK(f.as<word_t>(sizeof a + 5 * 8) == a.entry);
  CHECK(home_address::unpack(f.as<word_t>(sizeof a + 6 * 8)).offset == b.offsets[6]);
  CHECK(f.as<word_t>(sizeof a + 7 * 8) == 0);
  CHECK(f.as<std::uint64_t>(sizeof a + 4096) == detail::header::pack(type_word, 5));
  CHECK(f.as<std::uint64_t>(sizeof a + 4096 + 8) == 0x1234);

  SECTION("a copy larger than asked for is answered with its hint only") {
    const auto hint = o.fetch(700, false, 64).as<fetch_slot_answer>();
    CHECK(hint.bytes == 0);
    CHECK(home_address::unpack(hint.entry).offset == b.offsets[700]);
  }
  SECTION("a granted slot without a copy is 0, a slot that was not granted is free") {
    CHECK(o.entry(9) == 0);
    CHECK(o.entry(65536 * 9) == detail::word::free);
  }
  SECTION("read_entries shows the same") {
    const reply e = o.send(message_type::read_entries, read_entries_body{0, 1000, 0});
    REQUIRE(e.body.size() == 8000);
    CHECK(e.as<word_t>(5 * 8) == a.entry);
    CHECK(e.as<word_t>(8 * 8) == 0);
    const reply free = o.send(message_type::read_entries, read_entries_body{65536, 1, 0});
    CHECK(free.as<word_t>() == detail::word::free);
  }
  const audit_answer audit = o.audit();
  CHECK(audit.objects == 3);
  CHECK(audit.live_bytes == 16 + 72 + 32);
  CHECK(audit.garbage_bytes == sizeof(batch_header));
}

TEST_CASE("a later copy wins and the older one becomes garbage", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder first, second;
  first.object(type_line, 1, 8, 1).object(type_line, 2, 8, 1);
  second.object(type_line, 1, 8, 2).object(type_line, 1, 8, 3);  // twice in one batch: the last counts
  REQUIRE(o.append(first, r, 0).ok());
  REQUIRE(o.append(second, r, first.bytes.size()).ok());
  CHECK(o.value(1) == 3);
  CHECK(o.value(2) == 1);
  const audit_answer a = o.audit();
  CHECK(a.objects == 2);
  CHECK(a.live_bytes == 2 * 72);
  CHECK(a.garbage_bytes == 2 * 72 + 2 * sizeof(batch_header));
}

TEST_CASE("an index message is applied once and in sequence", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder one, two;
  one.object(type_word, 1, 1, 1);
  two.object(type_word, 1, 1, 2);
  const index_body first = one.finish(o.incarnation, 1, r, 0);
  const index_body second = two.finish(o.incarnation, 2, r, one.bytes.size());
  REQUIRE(o.write(r, 0, one.bytes));
  REQUIRE(o.write(r, one.bytes.size(), two.bytes));

  const reply ahead = o.send(message_type::index, second);
  CHECK(ahead.returned == errc::ok);
  CHECK(ahead.code == errc::stale);
  CHECK(o.entry(1) == 0);
  REQUIRE(o.send(message_type::index, first).ok());
  REQUIRE(o.send(message_type::index, second).ok());
  const word_t newest = o.entry(1);
  const reply again = o.send(message_type::index, first);
  REQUIRE(again.ok());
  CHECK(again.as<index_answer>().applied_seq == 2);
  CHECK(o.entry(1) == newest);
  CHECK(o.value(1) == 2);
  o.audit();
}

TEST_CASE("batches of one region may be indexed in another order than they lie", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder low, high;
  low.object(type_line, 1, 8);
  high.object(type_line, 2, 8);
  REQUIRE(o.append(high, r, 4096).ok());
  CHECK(o.info(r.region).as<region_answer>().readable_bytes == 0);
  CHECK_FALSE(o.write(r, 4096 + 8, low.bytes));  // indexed bytes never change
  REQUIRE(o.append(low, r, 0).ok());
  CHECK(o.info(r.region).as<region_answer>().readable_bytes == low.bytes.size());
  o.audit();
  REQUIRE(o.seal(r).ok());
  CHECK(o.info(r.region).as<region_answer>().readable_bytes == 64_KiB);
  // The holes are closed with filler, so that a walk by batch headers meets every batch.
  const std::byte* base = s->memory(*o.peer, {r.region, r.generation, 0}, 64_KiB, fabric::access::read);
  REQUIRE(base != nullptr);
  std::uint64_t at = 0;
  int batches = 0, fillers = 0;
  while (at < 64_KiB) {
    batch_header h;
    std::memcpy(&h, base + at, sizeof h);
    REQUIRE(h.magic == batch_magic);
    (h.count ? batches : fillers) += 1;
    at += h.length;
  }
  s->memory_done(*o.peer, r.region);
  CHECK(at == 64_KiB);
  CHECK(batches == 2);
  CHECK(fillers == 2);
  o.audit();
}

TEST_CASE("an abandoned batch indexes nothing and keeps the sequence and the walk whole", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder lost, next;
  lost.object(type_line, 1, 8);
  next.object(type_line, 2, 8);
  index_body m = lost.finish(o.incarnation, 1, r, 0);
  m.flags = index_abandoned;
  REQUIRE(o.write(r, 0, std::span(lost.bytes).first(40)));  // half written
  REQUIRE(o.send(message_type::index, m).ok());
  o.seq = 2;
  CHECK(o.entry(1) == 0);
  REQUIRE(o.append(next, r, lost.bytes.size()).ok());
  const audit_answer a = o.audit();
  CHECK(a.objects == 1);
  CHECK(a.garbage_bytes == lost.bytes.size() + sizeof(batch_header));
}

namespace {

/// Sends `b` as the next batch at offset 0 after `damage` has had its way with the message and the bytes.
template <class Damage>
reply send_damaged(owner& o, const region_answer& r, batch_builder& b, bool fix_crc, Damage damage) {
  index_body m = b.finish(o.incarnation, o.seq, r, 0);
  damage(m, b.bytes);
  if (fix_crc) {
    batch_header h;
    std::memcpy(&h, b.bytes.data(), sizeof h);
    h.crc = 0;
    std::memcpy(b.bytes.data(), &h, sizeof h);
    h.crc = m.crc = detail::crc32c(b.bytes.data(), b.bytes.size());
    std::memcpy(b.bytes.data(), &h, sizeof h);
  }
  REQUIRE(o.write(r, 0, b.bytes));
  return o.send(message_type::index, m);
}

}  // namespace

TEST_CASE("bytes that are not the batch are refused as corrupt, and nothing is applied", "[store]") {
  const int which = GENERATE(range(0, 5));
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8).object(type_line, 2, 8);
  const reply a = send_damaged(o, r, b, false, [&](index_body& m, std::vector<std::byte>& bytes) {
    if (which == 0) bytes[100] ^= std::byte{1};  // a payload byte
    if (which == 1) bytes[0] ^= std::byte{1};    // the magic
    if (which == 2) m.crc ^= 1;
    if (which == 3) m.count += 1;
    if (which == 4) m.length += 8;
  });
  CHECK(a.returned == errc::ok);
  CHECK(a.code == errc::corrupt);
  CHECK(o.entry(1) == 0);
  CHECK(o.audit().objects == 0);
  // The same number, written properly, goes through.
  batch_builder good;
  good.object(type_line, 1, 8);
  CHECK(o.append(good, r, 0).ok());
}

TEST_CASE("a batch whose contents break the protocol ends the connection, and nothing is applied", "[store]") {
  const int which = GENERATE(range(0, 8));
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8).object(type_word, 2, 1).array(type_bytes, 3, 16, 2);
  const auto set = [](std::vector<std::byte>& bytes, std::size_t at, std::uint64_t v) {
    std::memcpy(bytes.data() + at, &v, 8);
  };
  const reply a = send_damaged(o, r, b, true, [&](index_body& m, std::vector<std::byte>& bytes) {
    using detail::header::pack;
    if (which == 0) set(bytes, b.offsets[2], pack(99, 2));              // unknown type
    if (which == 1) set(bytes, b.offsets[2], pack((1u << 24) - 1, 2));  // unknown type, the largest number
    if (which == 2) set(bytes, b.offsets[2], pack(type_word, 65536));   // tablet not granted
    if (which == 3) set(bytes, b.offsets[2], pack(type_word, 0));       // null slot
    if (which == 4) set(bytes, b.offsets[3] + 8, 17);                   // array beyond its batch
    if (which == 5) set(bytes, b.offsets[3] + 8, ~std::uint64_t{0});    // length that would overflow
    if (which == 6) set(bytes, b.offsets[3] + 8, 8);                    // bytes left over
    if (which == 7) {                                                   // fewer objects than bytes
      batch_header h;
      std::memcpy(&h, bytes.data(), sizeof h);
      h.count = m.count = 2;
      std::memcpy(bytes.data(), &h, sizeof h);
    }
  });
  CHECK(a.returned == errc::bad_frame);
  CHECK(o.entry(1) == 0);
  CHECK(o.audit().objects == 0);
}

TEST_CASE("an index message with impossible fields ends the connection", "[store]") {
  const int which = GENERATE(range(0, 8));
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8);
  index_body m = b.finish(o.incarnation, 1, r, 0);
  REQUIRE(o.write(r, 0, b.bytes));
  if (which == 0) m.offset = 4;
  if (which == 1) m.length = 20;
  if (which == 2) m.length = 16;
  if (which == 3) m.offset = 64_KiB;
  if (which == 4) m.offset = ~std::uint64_t{7};
  if (which == 5) m.flags = 4;
  if (which == 6) m.seq = 0;
  if (which == 7) m.count = 0xffffffff;
  CHECK(o.send(message_type::index, m).returned == errc::bad_frame);
  CHECK(o.audit().objects == 0);
}

TEST_CASE("an index message for the wrong region, generation or incarnation is refused", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s), other(*s, 2);
  o.open_ready();
  other.open_ready();
  const region_answer r = o.open_region();
  const region_answer theirs = other.open_region();
  batch_builder b;
  b.object(type_line, 1, 8);
  index_body m = b.finish(o.incarnation, 1, r, 0);
  REQUIRE(o.write(r, 0, b.bytes));
  const auto code_of = [&](auto change) {
    index_body c = m;
    change(c);
    const reply a = o.send(message_type::index, c);
    CHECK(a.returned == errc::ok);
    return a.code;
  };
  CHECK(code_of([](index_body& c) { c.incarnation ^= 1; }) == errc::stale);
  CHECK(code_of([](index_body& c) { c.generation = 2; }) == errc::stale);
  CHECK(code_of([](index_body& c) { c.generation = 0; }) == errc::stale);
  CHECK(code_of([](index_body& c) { c.region = 200000; }) == errc::not_found);
  CHECK(code_of([&](index_body& c) { c.region = theirs.region; }) == errc::not_found);
  CHECK(o.audit().objects == 0);
  REQUIRE(o.send(message_type::index, m).ok());
  m.seq = 2;
  CHECK(o.send(message_type::index, m).code == errc::access_denied);  // overlaps what is indexed
  REQUIRE(o.seal(r).ok());
  m.offset = 4096;
  CHECK(o.send(message_type::index, m).code == errc::access_denied);  // sealed
}
