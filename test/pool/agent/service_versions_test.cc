// The additions of version 3.1 of the protocol of pools, spoken to by hand: changes by version, names, settings of the maker.
#include "pool/agent/service_fixture.h"

using namespace service_test;

TEST_CASE("a change by version is made once, and in time, and refused when the version is another") {
  world w;
  client one(w, 1), two(w, 2);
  one.open();
  two.open();
  const pool_object at = one.make(1);
  const auto version_of = [&](client& c) {
    return c.ask<pool_read_version_answer>(message_type::pool_read_version, pool_read_body{at, 8, 0}).version;
  };
  const auto write = [&](client& c, std::uint64_t number, std::uint64_t version, std::uint64_t value,
                         std::uint64_t deadline = never, std::vector<std::byte>* answer = nullptr) {
    return c.say(message_type::pool_write_if, pool_write_if_body{{number, 3, 0, deadline}, at, 8, 0, version}, answer,
                 std::as_bytes(std::span(&value, 1)));
  };
  const std::uint64_t first = version_of(one);
  std::vector<std::byte> made, again;
  REQUIRE(write(one, 1, first, 2, never, &made) == errc::ok);
  const std::uint64_t second = version_of(two);
  CHECK(second != first);
  pool_write_if_answer a{};
  REQUIRE(made.size() == sizeof a);
  std::memcpy(&a, made.data(), sizeof a);
  CHECK(a.version == second);
  // The same change again, as after a lost answer, when another one has been made since.
  REQUIRE(write(two, 1, second, 3) == errc::ok);
  CHECK(write(one, 1, first, 2, never, &again) == errc::ok);
  CHECK(again == made);
  CHECK(version_of(one) != second);
  CHECK(one.statistics().writes == 2);
  // A refusal is no answer that is kept: it is found out anew, and comes to the same.
  CHECK(write(one, 2, second, 4) == errc::conflict);
  CHECK(write(one, 2, second, 4) == errc::conflict);
  CHECK(one.statistics().writes == 2);
  const std::uint64_t third = version_of(one);
  const std::uint64_t late = one.opened.now + 1'000'000;
  w.now_ns += 5'000'000;
  CHECK(write(one, 3, third, 5, late) == errc::timed_out);
  CHECK(version_of(one) == third);
  CHECK(write(one, 3, third, 5) == errc::ok);
  // Freed, and another object in its place.
  REQUIRE(one.free(at) == errc::ok);
  const pool_object other = one.make(6);
  CHECK(other.index != at.index);
  CHECK(write(one, 4, third, 7) == errc::not_found);
}

TEST_CASE("the agent tells its minor version to clients that have one, and its maker may tune a pool once") {
  world w;
  client plain(w, 1);
  std::vector<std::byte> b;
  REQUIRE(plain.say(message_type::pool_open, plain.opening(), &b) == errc::ok);
  CHECK(b.size() == sizeof(pool_open_answer));
  client second(w, 2);
  pool_open_body o = second.opening();
  o.minor = 1;
  const auto more_of = [&](client& c, const pool_open_body& body) {
    std::vector<std::byte> a;
    REQUIRE(c.say(message_type::pool_open, body, &a) == errc::ok);
    pool_open_more more{};
    REQUIRE(a.size() == sizeof(pool_open_answer) + sizeof more);
    std::memcpy(&more, a.data() + sizeof(pool_open_answer), sizeof more);
    return more;
  };
  const pool_open_more joined = more_of(second, o);
  CHECK(joined.minor == pool_protocol_minor);
  CHECK(joined.may_tune == 0);
  CHECK(second.say(message_type::pool_tune, pool_tune_body{}) == errc::access_denied);
  auto maker = std::make_unique<client>(w, 3);
  o = maker->opening();
  o.minor = 7;  // of a later library
  std::strcpy(o.name, "tuned");
  CHECK(more_of(*maker, o).may_tune == 1);
  maker = std::make_unique<client>(w, 3);  // its connection broke before it could
  CHECK(more_of(*maker, o).may_tune == 1);
  pool_tune_body t{};
  t.compact_above[0] = 65537;
  CHECK(maker->say(message_type::pool_tune, t) == errc::bad_frame);
  maker = std::make_unique<client>(w, 3);
  CHECK(more_of(*maker, o).may_tune == 1);
  t.compact_above[0] = 65536;
  CHECK(maker->say(message_type::pool_tune, t) == errc::ok);
  CHECK(maker->say(message_type::pool_tune, t) == errc::access_denied);
  maker = std::make_unique<client>(w, 3);
  CHECK(more_of(*maker, o).may_tune == 0);
}

TEST_CASE("a name is bound once, in time, and the same pointer with another hint is the same") {
  world w;
  client one(w, 1);
  one.open();
  const std::string_view name = "root";
  const auto bytes = std::as_bytes(std::span(name));
  const auto bind = [&](std::uint64_t number, std::uint64_t who, std::uint64_t what, std::uint32_t replace,
                        std::uint64_t deadline = never) {
    return one.say(message_type::pool_bind, pool_bind_body{{number, 3, 0, deadline}, who, what, replace, 4}, nullptr,
                   bytes);
  };
  const auto bound = [&] {
    std::array<char, 4> text{'r', 'o', 'o', 't'};
    std::vector<std::byte> b;
    pool_lookup_answer a{};
    const errc e = one.say(message_type::pool_lookup, text, &b);
    if (e == errc::ok) std::memcpy(&a, b.data(), sizeof a);
    return std::pair(e, a.who);
  };
  CHECK(bound().first == errc::not_found);
  w.now_ns += 5'000'000;
  CHECK(bind(1, 7, 8, 0, one.opened.now + 1'000'000) == errc::timed_out);
  CHECK(bound().first == errc::not_found);
  CHECK(bind(1, 7, 8, 0) == errc::ok);
  CHECK(bind(1, 7, 8, 0) == errc::ok);
  CHECK(bound() == std::pair(errc::ok, std::uint64_t{7}));
  CHECK(bind(2, 7, 8 | std::uint64_t{3} << 48, 0) == errc::ok);
  CHECK(bind(3, 7, 9, 0) == errc::conflict);
  CHECK(bind(3, 8, 8, 0) == errc::conflict);
  CHECK(bind(3, 8, 8, 1) == errc::ok);
  CHECK(bound() == std::pair(errc::ok, std::uint64_t{8}));
  const auto unbind = [&](std::uint64_t number) {
    return one.say(message_type::pool_unbind, pool_unbind_body{{number, 3, 0, never}, 4, 0}, nullptr, bytes);
  };
  CHECK(unbind(4) == errc::ok);
  CHECK(unbind(4) == errc::ok);
  CHECK(bound().first == errc::not_found);
  CHECK(unbind(5) == errc::not_found);
}
