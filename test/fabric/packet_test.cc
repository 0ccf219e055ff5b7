// The packets of verbs://: what a decoder refuses, and putting messages together. No device is needed for any of it.
#include "fabric/wire/packet.h"
#include "fabric/client/client.h"
#include "fabric/doctor.h"
#include "fabric/server/server.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

using namespace fm;
using namespace fm::fabric;
using packet::type;

namespace {

constexpr std::uint32_t cap = 100'000;

packet::header of(type t, std::uint32_t length = 0, std::uint32_t total = 0, std::uint8_t flags = 0) {
  packet::header h{};
  h.type = std::uint8_t(t);
  h.length = length;
  h.total = total;
  h.flags = flags;
  return h;
}

std::vector<std::byte> bytes_of(const packet::header& h, std::size_t payload) {
  std::vector<std::byte> b(sizeof h + payload);
  std::memcpy(b.data(), &h, sizeof h);
  return b;
}

errc decoded(const packet::header& h, wire::receiver to, std::size_t payload) {
  packet::header out;
  return packet::decode(bytes_of(h, payload), to, cap, out).code;
}

}  // namespace

TEST_CASE("packets of each type are taken by the side that they are for") {
  const auto both = std::uint8_t(packet::flag_first | packet::flag_last);
  struct {
    packet::header h;
    std::size_t payload;
    bool server, client;
  } const cases[] = {
      {of(type::message, 5, 5, both), 5, true, false},
      {of(type::message, 0, 0, both), 0, true, false},
      {of(type::answer, 5, 9, packet::flag_first), 5, false, true},
      {of(type::notice, 5, 5, both), 5, false, true},
      {of(type::notice_ack), 0, true, false},
      {of(type::credit), 0, true, true},
  };
  for (const auto& c : cases) {
    INFO(int(c.h.type));
    CHECK((decoded(c.h, wire::receiver::server, c.payload) == errc::ok) == c.server);
    CHECK((decoded(c.h, wire::receiver::client, c.payload) == errc::ok) == c.client);
  }
}

TEST_CASE("a packet that does not follow the protocol is refused") {
  const auto first = packet::flag_first;
  const auto server = wire::receiver::server;
  packet::header out;
  CHECK(packet::decode(std::span<const std::byte>(), server, cap, out).code == errc::bad_frame);
  CHECK(packet::decode(std::vector<std::byte>(31), server, cap, out).code == errc::bad_frame);
  CHECK(packet::decode(std::vector<std::byte>(packet::bytes_max + 1), server, cap, out).code == errc::bad_frame);
  CHECK(decoded(of(type(0)), server, 0) == errc::bad_frame);
  CHECK(decoded(of(type(6)), server, 0) == errc::bad_frame);
  CHECK(decoded(of(type::message, 6, 6, first), server, 5) == errc::bad_frame);  // another length than it has
  CHECK(decoded(of(type::message, 5, 4, first), server, 5) == errc::bad_frame);  // longer than its message
  CHECK(decoded(of(type::message, 0, 4, first), server, 0) == errc::bad_frame);  // brings nothing
  CHECK(decoded(of(type::message, 5, cap + 1, first), server, 5) == errc::too_large);
  CHECK(decoded(of(type::message, 5, 5, 8), server, 5) == errc::bad_frame);
  CHECK(decoded(of(type::message, 5, 5, packet::flag_key), server, 5) == errc::bad_frame);
  CHECK(decoded(of(type::credit, 0, 0, first), server, 0) == errc::bad_frame);
  auto h = of(type::credit);
  h.credits = packet::credits_max;
  CHECK(decoded(h, server, 0) == errc::ok);
  ++h.credits;
  CHECK(decoded(h, server, 0) == errc::bad_frame);
  h = of(type::notice_ack);
  h.value = wire::notices_max + 1;
  CHECK(decoded(h, server, 0) == errc::too_large);
  h = of(type::message, 5, 5, first);
  h.zero = 1;
  CHECK(decoded(h, server, 5) == errc::bad_frame);
  h = of(type::message, 5, 5, first);
  h.value = 1;
  CHECK(decoded(h, server, 5) == errc::bad_frame);
  h = of(type::notice, 5, 5, first);
  h.op = 1;
  CHECK(decoded(h, wire::receiver::client, 5) == errc::bad_frame);
}

TEST_CASE("a message is put together from its packets, and from nothing else") {
  std::vector<std::byte> whole(10'000);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = std::byte(i * 7);
  packet::assembly a;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t at = 0; at < whole.size();) {
      const auto n = std::min<std::size_t>(packet::payload_max, whole.size() - at);
      auto h = of(type::message, std::uint32_t(n), std::uint32_t(whole.size()));
      if (at == 0) h.flags |= packet::flag_first;
      if (at + n == whole.size()) h.flags |= packet::flag_last;
      REQUIRE(a.take(h, std::span<const std::byte>(whole).subspan(at, n)).code == errc::ok);
      at += n;
      CHECK(a.complete() == (at == whole.size()));
    }
    CHECK(std::equal(whole.begin(), whole.end(), a.whole().begin(), a.whole().end()));
    if (round == 0) CHECK(a.take_whole() == whole);
  }

  const std::span<const std::byte> five(whole.data(), 5);
  const auto first = packet::flag_first, last = packet::flag_last;
  a.reset();
  CHECK(a.take(of(type::message, 5, 10), five).code == errc::bad_frame);  // the middle of nothing
  REQUIRE(a.take(of(type::message, 5, 10, first), five).code == errc::ok);
  CHECK(a.take(of(type::message, 5, 10, first), five).code == errc::bad_frame);
  CHECK(a.take(of(type::message, 5, 10), five).code == errc::bad_frame);                 // complete, and not said to be
  CHECK(a.take(of(type::message, 4, 10, last), five.first(4)).code == errc::bad_frame);  // said to be, and not complete
  CHECK(a.take(of(type::notice, 5, 10, last), five).code == errc::bad_frame);
  CHECK(a.take(of(type::message, 5, 11, last), five).code == errc::bad_frame);
  CHECK(a.take(of(type::message, 5, 10, last), five).code == errc::ok);
  CHECK(a.complete());
}

TEST_CASE("what begins a verbs session is checked, padding of private data included") {
  packet::join j{};
  j.magic = packet::magic;
  j.major = packet::version_major;
  j.length = sizeof j;
  j.lane = 2;
  j.credits = 10;
  std::vector<std::byte> padded(56);
  packet::join out;
  const auto of_join = [&] {
    std::memcpy(padded.data(), &j, sizeof j);
    return packet::decode_join(padded, out).code;
  };
  CHECK(of_join() == errc::ok);
  CHECK(packet::decode_join(std::span<const std::byte>(padded).first(31), out).code == errc::bad_frame);
  j.length = 31;
  CHECK(of_join() == errc::bad_frame);
  j.length = sizeof j;
  j.major = 9;
  CHECK(of_join() == errc::version_mismatch);
  j.major = packet::version_major;
  j.credits = packet::credits_max + 1;
  CHECK(of_join() == errc::bad_frame);
  j.credits = 0;
  CHECK(of_join() == errc::bad_frame);
  j.credits = 1;
  j.lane = packet::lanes_max;
  CHECK(of_join() == errc::bad_frame);

  packet::hello h{};
  packet::hello h_out;
  h.magic = packet::magic;
  h.major = packet::version_major;
  h.lanes = 4;
  h.generation = 1;
  const auto of_hello = [&] {
    std::array<std::byte, sizeof h> b;
    std::memcpy(b.data(), &h, sizeof h);
    return packet::decode_hello(b, h_out).code;
  };
  CHECK(of_hello() == errc::ok);
  for (const int lanes : {0, 2, int(packet::lanes_max) + 1}) {
    h.lanes = std::uint16_t(lanes);
    CHECK(of_hello() == errc::bad_frame);
  }
  h.lanes = 4;
  h.generation = 0;
  CHECK(of_hello() == errc::bad_frame);
  h.generation = 1;
  h.message_bytes_max = wire::message_bytes_limit + 1;
  CHECK(of_hello() == errc::too_large);
}

TEST_CASE("verbs:// without its library, or without a device, says what is missing") {
  struct : session_events {
    errc connected(session&, std::uint32_t) override { return errc::ok; }
    void disconnected(session&, std::uint32_t, errc) noexcept override {}
    void lost(session&, errc) noexcept override {}
    void notice(session&, std::span<const std::byte>) noexcept override {}
  } events;
  ::setenv("FARMEM_VERBS_LIBRARY", "/nowhere/libfarmem-verbs.so", 1);
  try {
    connect("verbs://127.0.0.1:1", {}, events);
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::unsupported);
    CHECK_THAT(e.what(), Catch::Contains("librdmacm-dev") && Catch::Contains("/nowhere/libfarmem-verbs.so"));
  }
  ::unsetenv("FARMEM_VERBS_LIBRARY");
}

TEST_CASE("the doctor names a fix for whatever is wrong, with and without rdma-core") {
  const auto wrongs_have_fixes = [](const std::vector<finding>& all) {
    for (const finding& f : all)
      if (f.is == finding::level::wrong && f.fix.empty()) return false;
    return !all.empty();
  };
  const auto found = doctor();
  CHECK(wrongs_have_fixes(found));
  const std::string text = readable(found);
  CHECK((text.find("can be used\n") != std::string::npos) == is_healthy(found));
  for (const finding& f : found) CHECK(text.find(f.what) != std::string::npos);
  CHECK(is_healthy({}));
  CHECK_FALSE(is_healthy({{finding::level::good, "a", {}}, {finding::level::wrong, "b", "c"}}));
}
