// Tablets of which the agent is a backup: what it keeps, what it forgets, and that another agent traces them.
#include "trace_fixture.h"

using namespace store_test;

namespace {

constexpr slot_t backed = 65536 + 5;  ///< in tablet 1

reply replicate(owner& o, std::uint32_t first, std::uint32_t count) {
  return o.send(message_type::replicate_tablets, grant_tablets_body{first, count});
}
reply promote(owner& o, std::uint32_t first, std::uint32_t count) {
  return o.send(message_type::promote_tablets, grant_tablets_body{first, count});
}

/// Appends the batch as an import.
reply import(owner& o, batch_builder& b, const region_answer& r, std::uint64_t offset) {
  index_body m = b.finish(o.incarnation, o.seq, r, offset);
  m.flags = index_import;
  REQUIRE(o.write(r, offset, b.bytes));
  reply a = o.send(message_type::index, m);
  if (a.ok()) ++o.seq;
  return a;
}

}  // namespace

TEST_CASE("a backup takes batches, and whoever becomes one again has nothing of before", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  batch_builder b;
  b.object(type_line, 1, 8, 1).object(type_line, backed, 8, 2);
  CHECK(o.append(b, r, 0).returned == errc::bad_frame);  // its tablet was not granted
  REQUIRE(replicate(o, 1, 2).ok());
  batch_builder again;
  again.object(type_line, 1, 8, 1).object(type_line, backed, 8, 2);
  REQUIRE(o.append(again, r, 0).ok());
  CHECK(o.value(backed) == 2);
  CHECK(o.audit().objects == 2);

  REQUIRE(replicate(o, 1, 2).ok());
  CHECK(o.entry(backed) == 0);
  CHECK(o.value(1) == 1);
  CHECK(o.audit().objects == 1);
}

TEST_CASE("the primary of a tablet does not become its backup, and a grant forgets what a backup had", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  REQUIRE(replicate(o, 1, 1).ok());
  batch_builder b;
  b.object(type_line, 1, 8, 1).object(type_line, backed, 8, 2);
  REQUIRE(o.append(b, r, 0).ok());
  CHECK(replicate(o, 0, 1).code == errc::refused);
  CHECK(replicate(o, 0, 2).code == errc::refused);
  CHECK(o.value(backed) == 2);
  REQUIRE(o.grant(0, 2).ok());
  CHECK(o.value(1) == 1);
  CHECK(o.entry(backed) == 0);
  CHECK(replicate(o, 1, 1).code == errc::refused);
  CHECK(promote(o, 1, 2).code == errc::not_found);
  CHECK(promote(o, 1, 0).returned == errc::bad_frame);
  CHECK(replicate(o, 1u << 24, 1).returned == errc::bad_frame);
  o.audit();
}

TEST_CASE("an import fills empty slots and replaces nothing", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  REQUIRE(replicate(o, 1, 1).ok());
  const region_answer r = o.open_region();
  batch_builder newer, older;
  newer.object(type_line, backed, 8, 2);
  older.object(type_line, backed, 8, 1).object(type_line, backed + 1, 8, 1);
  REQUIRE(o.append(newer, r, 0).ok());
  REQUIRE(import(o, older, r, newer.bytes.size()).ok());
  CHECK(o.value(backed) == 2);
  CHECK(o.value(backed + 1) == 1);
  const audit_answer a = o.audit();
  CHECK(a.objects == 2);
  CHECK(a.garbage_bytes == 72 + 2 * sizeof(batch_header));
}

TEST_CASE(
    "a backup's tablet is no part of a cycle: references to it are remote, and the owner alone says what dies there",
    "[store][trace]") {
  auto s = fm::agent::store::create(small());
  tracing_owner o(*s);
  o.open_ready();
  REQUIRE(replicate(o, 1, 1).ok());
  o.write({{1, {backed}}, {backed, {2}}, {2, {}}});
  REQUIRE(o.begin(1).ok());
  CHECK(o.trace_all({1}) == std::set<slot_t>{backed});
  CHECK(o.marks(0) == std::set<slot_t>{1});
  REQUIRE(o.release({backed}).ok());
  CHECK(o.entry(backed) == 0);
  REQUIRE(o.end(1).ok());
  o.audit();

  // As the primary it traces them.
  o.write({{backed, {2}}});
  REQUIRE(promote(o, 1, 1).ok());
  REQUIRE(o.begin(2).ok());
  CHECK(o.trace_all({1}).empty());
  CHECK(o.marks(0) == std::set<slot_t>{1, 2});
  CHECK(o.marks(1) == std::set<slot_t>{backed});
  REQUIRE(o.end(2).ok());
  o.audit();
}

TEST_CASE("an agent forgets the tablets that it leaves, as a primary or a backup, and may be asked again", "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const auto leave = [&](std::uint32_t first, std::uint32_t count) {
    return o.send(message_type::leave_tablets, grant_tablets_body{first, count});
  };
  const region_answer r = o.open_region();
  REQUIRE(replicate(o, 1, 1).ok());
  batch_builder b;
  b.object(type_line, 1, 8, 1).object(type_line, backed, 8, 2);
  REQUIRE(o.append(b, r, 0).ok());
  REQUIRE(leave(0, 2).ok());
  REQUIRE(leave(0, 2).ok());
  CHECK(leave(0, 0).returned == errc::bad_frame);
  CHECK(o.entry(1) == 0);
  CHECK(o.entry(backed) == 0);
  CHECK(o.audit().objects == 0);
  REQUIRE(o.grant(0, 1).ok());
  REQUIRE(replicate(o, 1, 1).ok());
  REQUIRE(leave(7, 1).ok());  // it never had it
}

TEST_CASE("an agent that is drained takes no heaps and no tablets, and what it has can be written and read",
          "[store]") {
  auto s = fm::agent::store::create(small());
  owner o(*s);
  o.open_ready();
  const region_answer r = o.open_region();
  s->drain(true);
  CHECK(s->heaps_left() == 1);
  CHECK(o.grant(5, 1).code == errc::agent_full);
  CHECK(replicate(o, 5, 1).code == errc::agent_full);
  batch_builder b;
  b.object(type_line, 1, 8, 1);
  REQUIRE(o.append(b, r, 0).ok());
  CHECK(o.value(1) == 1);
  owner late(*s, 2);
  CHECK(late.open().code == errc::refused);
  s->drain(false);
  CHECK(o.grant(5, 1).ok());
  CHECK(late.open().ok());
  CHECK(s->heaps_left() == 2);
}
