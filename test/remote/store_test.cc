// An agent session and the real store in one process: what is written back can be read, audited, and comes through
// reconnects.
#include "fixture.h"

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::remote;
using namespace fm::remote::test;

TEST_CASE("a link and a store agree on what was written, across reconnects and until regions come back") {
  outcomes told;
  store_options so;
  so.region_bytes = 64 << 10;
  so.memory_bytes = 4 << 20;
  const auto agent = fm::agent::store::create(so);

  detail::type_descriptor d;
  d.bytes = 56;
  d.layout_hash = 77;
  d.name = "link_store_test::object";
  const std::uint32_t type = detail::register_type(d).id;

  agent_session_options o = options_for(told);
  o.in_process = agent.get();
  const auto l = agent_session::open("local:", o);
  REQUIRE(l->grant_tablets(0, 1) == errc::ok);
  CHECK(l->region_bytes() == so.region_bytes);

  constexpr std::uint64_t objects = 600;
  std::vector<detail::home_address> at(objects + 1);
  // Each round writes every object again, so that whole regions become garbage and are asked back.
  for (int round = 0; round < 6; ++round) {
    for (std::uint64_t slot = 1; slot <= objects;) {
      errc why = errc::ok;
      batch* b = l->begin_batch(64, soon(), why);
      REQUIRE(b);
      b->owner = &told;
      b->on_acknowledged = outcomes::acknowledged;
      for (; slot <= objects && b->fits(64); ++slot) at[slot] = put(*b, slot, 64, type);
      l->submit(b);
    }
    l->session().drop_connection(l->session().generation());
    REQUIRE(l->flush(soon()) == errc::ok);
  }
  const auto all = told.take();
  for (std::size_t i = 0; i < all.size(); ++i) CHECK((all[i].seq == i + 1 && all[i].code == errc::ok));

  std::vector<detail::word_t> words;
  REQUIRE(l->read_entries(1, objects, words) == errc::ok);
  for (std::uint64_t slot = 1; slot <= objects; ++slot) CHECK(words[slot - 1] == at[slot].pack());
  const slot_answer a = l->fetch_slot(17, true, 4096, soon());
  REQUIRE(a.status == errc::ok);
  CHECK(is_copy(a.copy.data(), 17, 64));

  REQUIRE(told.until([&] { return !told.retire_asked.empty(); }));
  const std::uint32_t region = told.retire_asked.front();
  CHECK(l->region_generation(region) == 0);
  l->retired(region, 1);

  audit_answer audit{};
  std::string text;
  REQUIRE(l->audit(audit, text) == errc::ok);
  INFO(text);
  CHECK(audit.faults == 0);
  CHECK(audit.objects == objects);
  l->close();
}
