// The wire format, byte for byte, and what the decoder refuses.
#include "fabric/wire/wire.h"
#include <catch2/catch.hpp>

#include <cstring>
#include <string>

using namespace fm;
using namespace fm::fabric::wire;

namespace {

template <class T>
std::string hex(const T& t) {
  static const char* const digits = "0123456789abcdef";
  std::string s;
  for (const std::byte b : std::as_bytes(std::span(&t, 1))) {
    s += digits[std::size_t(b) >> 4];
    s += digits[std::size_t(b) & 15];
  }
  return s;
}

decoded decode(const frame_header& h, receiver to, frame_header& out, std::uint32_t cap = 1u << 20) {
  return decode_header(std::as_bytes(std::span(&h, 1)).subspan<0, sizeof h>(), to, cap, out);
}

errc verdict(const frame_header& h, receiver to, std::uint32_t cap = 1u << 20) {
  frame_header out;
  return decode(h, to, out, cap).code;
}

}  // namespace

TEST_CASE("golden frames: the bytes of every header are fixed") {
  auto read = make_header(frame_type::read);
  read.flags = flag_fence;
  read.bytes = 0x1234;
  read.op = 0x0102030405060708;
  read.region = 7;
  read.generation = 9;
  read.offset = 0x1000;
  CHECK(hex(read) ==
        "464d4631"
        "01000301"
        "00000000"
        "34120000"
        "0807060504030201"
        "07000000"
        "09000000"
        "0010000000000000"
        "0000"
        "000000000000");

  auto write = make_header(frame_type::write, 65536);
  write.op = 1;
  write.region = 2;
  write.generation = 3;
  write.offset = 4;
  CHECK(hex(write) ==
        "464d4631"
        "01000400"
        "00000100"
        "00000000"
        "0100000000000000"
        "02000000"
        "03000000"
        "0400000000000000"
        "0000"
        "000000000000");

  auto answer = make_header(frame_type::answer, 0);
  answer.op = 5;
  answer.status = std::uint16_t(errc::access_denied);
  CHECK(hex(answer) ==
        "464d4631"
        "01000800"
        "00000000"
        "00000000"
        "0500000000000000"
        "00000000"
        "00000000"
        "0000000000000000"
        "1600"
        "000000000000");

  hello_body hello{};
  hello.lane = 1;
  hello.lane_index = 2;
  hello.generation = 3;
  hello.token[0] = 4;
  hello.token[1] = 5;
  hello.message_bytes_max = 0x100000;
  CHECK(hex(hello) ==
        "0100"
        "0200"
        "03000000"
        "0400000000000000"
        "0500000000000000"
        "0000000000000000"
        "00001000"
        "00000000");

  welcome_body welcome{};
  welcome.token[0] = 1;
  welcome.incarnation = 2;
  welcome.message_bytes_max = 3;
  welcome.requests_in_flight = 4;
  CHECK(hex(welcome) ==
        "0100000000000000"
        "0000000000000000"
        "0000000000000000"
        "0200000000000000"
        "03000000"
        "04000000");

  CHECK(hex(atomic_body{1, 2}) ==
        "0100000000000000"
        "0200000000000000");
}

TEST_CASE("the numbers of frame types never change") {
  CHECK(int(frame_type::hello) == 1);
  CHECK(int(frame_type::welcome) == 2);
  CHECK(int(frame_type::read) == 3);
  CHECK(int(frame_type::write) == 4);
  CHECK(int(frame_type::compare_swap) == 5);
  CHECK(int(frame_type::fetch_add) == 6);
  CHECK(int(frame_type::message) == 7);
  CHECK(int(frame_type::answer) == 8);
  CHECK(int(frame_type::notice) == 9);
  CHECK(int(frame_type::notice_ack) == 10);
}

TEST_CASE("a well-formed header decodes to itself") {
  auto h = make_header(frame_type::message, 100);
  h.op = 42;
  frame_header out{};
  REQUIRE(decode(h, receiver::server, out).code == errc::ok);
  CHECK(std::memcmp(&out, &h, sizeof h) == 0);
}

TEST_CASE("a header of another protocol, version, type or direction is refused") {
  auto h = make_header(frame_type::read);
  CHECK(verdict(h, receiver::server) == errc::ok);
  CHECK(verdict(h, receiver::client) == errc::bad_frame);
  auto bad = h;
  bad.magic ^= 1;
  CHECK(verdict(bad, receiver::server) == errc::bad_frame);
  bad = h;
  bad.major += 1;
  CHECK(verdict(bad, receiver::server) == errc::version_mismatch);
  bad = h;
  bad.minor += 1;
  CHECK(verdict(bad, receiver::server) == errc::ok);  // a newer minor version only adds what was zero
  for (int type = 0; type < 256; ++type) {
    bad = h;
    bad.type = std::uint8_t(type);
    if (type == 0 || type > 10) CHECK(verdict(bad, receiver::server) == errc::bad_frame);
  }
}

TEST_CASE("reserved bits and fields that do not belong are refused") {
  for (const auto type : {frame_type::read, frame_type::message, frame_type::notice_ack}) {
    auto h = make_header(type);
    REQUIRE(verdict(h, receiver::server) == errc::ok);
    for (int i = 0; i < 6; ++i) {
      auto bad = h;
      bad.zero[i] = 1;
      CHECK(verdict(bad, receiver::server) == errc::bad_frame);
    }
    auto bad = h;
    bad.flags = 0x80;
    CHECK(verdict(bad, receiver::server) == errc::bad_frame);
    bad = h;
    bad.status = 1;
    CHECK(verdict(bad, receiver::server) == errc::bad_frame);
  }
  auto m = make_header(frame_type::message);
  m.region = 1;
  CHECK(verdict(m, receiver::server) == errc::bad_frame);
  m = make_header(frame_type::message);
  m.offset = 1;
  CHECK(verdict(m, receiver::server) == errc::bad_frame);
  auto a = make_header(frame_type::answer);
  a.flags = flag_fd;
  CHECK(verdict(a, receiver::client) == errc::bad_frame);
  a.flags = flag_fd | flag_key;
  CHECK(verdict(a, receiver::client) == errc::ok);
  a = make_header(frame_type::answer);
  a.status = 60000;
  CHECK(verdict(a, receiver::client) == errc::bad_frame);
  // Every errc is a status, and what has no name is none.
  const auto has_name = [](unsigned n) {
    return to_string(static_cast<errc>(n)) != to_string(static_cast<errc>(60000));
  };
  for (a.status = 1; has_name(a.status); ++a.status) CHECK(verdict(a, receiver::client) == errc::ok);
  CHECK(a.status == status_last + 1);
  CHECK(verdict(a, receiver::client) == errc::bad_frame);
  a.status = std::uint16_t(errc::stale);
  a.length = 1;
  CHECK(verdict(a, receiver::client) == errc::bad_frame);
  auto c = make_header(frame_type::compare_swap, sizeof(atomic_body));
  CHECK(verdict(c, receiver::server) == errc::ok);
  c.offset = 4;
  CHECK(verdict(c, receiver::server) == errc::bad_frame);
}

TEST_CASE("lengths are held against their caps before anything is allocated") {
  CHECK(verdict(make_header(frame_type::write, chunk_bytes), receiver::server) == errc::ok);
  CHECK(verdict(make_header(frame_type::write, chunk_bytes + 1), receiver::server) == errc::too_large);
  CHECK(verdict(make_header(frame_type::message, 1000), receiver::server, 1000) == errc::ok);
  CHECK(verdict(make_header(frame_type::message, 1001), receiver::server, 1000) == errc::too_large);
  CHECK(verdict(make_header(frame_type::message, ~0u), receiver::server, ~0u) == errc::too_large);
  CHECK(verdict(make_header(frame_type::read, 1), receiver::server) == errc::too_large);
  CHECK(verdict(make_header(frame_type::hello, sizeof(hello_body) - 1), receiver::server) == errc::bad_frame);
  auto r = make_header(frame_type::read);
  r.bytes = chunk_bytes + 1;
  CHECK(verdict(r, receiver::server) == errc::too_large);
  auto n = make_header(frame_type::notice_ack);
  n.bytes = notices_max + 1;
  CHECK(verdict(n, receiver::server) == errc::too_large);
}

TEST_CASE("hello and welcome are checked field by field") {
  hello_body good{}, out;
  good.generation = 1;
  const auto check = [&](const hello_body& b) { return decode_hello(std::as_bytes(std::span(&b, 1)), out).code; };
  CHECK(check(good) == errc::ok);
  auto b = good;
  b.lane = 4;
  CHECK(check(b) == errc::bad_frame);
  b = good;
  b.lane = 1;  // a fetch lane without a session
  CHECK(check(b) == errc::bad_frame);
  b.token[1] = 1;
  CHECK(check(b) == errc::ok);
  b = good;
  b.generation = 0;
  CHECK(check(b) == errc::bad_frame);
  b = good;
  b.zero = 1;
  CHECK(check(b) == errc::bad_frame);
  b = good;
  b.message_bytes_max = ~0u;
  CHECK(check(b) == errc::too_large);
  CHECK(decode_hello(std::as_bytes(std::span(&good, 1)).first(10), out).code == errc::bad_frame);
  welcome_body w{}, wout;
  CHECK(decode_welcome(std::as_bytes(std::span(&w, 1)), wout).code == errc::ok);
  w.features = 1;
  CHECK(decode_welcome(std::as_bytes(std::span(&w, 1)), wout).code == errc::bad_frame);
}
