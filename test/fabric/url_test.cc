#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include <catch2/catch.hpp>

#include "memory_service.h"

using namespace fm;
using namespace fm::fabric;

TEST_CASE("addresses of every transport are split into their parts") {
  CHECK(parse_url("local:")->scheme == "local");
  CHECK(parse_url("shm:///run/farmem.sock")->path == "/run/farmem.sock");
  const auto tcp = parse_url("tcp://10.0.0.2:7070");
  REQUIRE(tcp);
  CHECK(tcp->host == "10.0.0.2");
  CHECK(tcp->port == 7070);
  const auto six = parse_url("tcp://[::1]:0");
  REQUIRE(six);
  CHECK(six->host == "::1");
  CHECK(format_url("tcp", six->host, 7) == "tcp://[::1]:7");
}

TEST_CASE("a malformed address is refused with its text in the error") {
  for (const char* url :
       {"", "nonsense", "tcp://", "tcp://host", "tcp://host:", "tcp://host:99999", "tcp://host:7x", "tcp://:7",
        "tcp://::1:7", "tcp://[::1]", "tcp://[[]:7", "tcp://h[:7", "shm://", "local:x", "tcp:/h:1", "TCP://h:1"}) {
    const auto a = parse_url(url);
    REQUIRE_FALSE(a);
    CHECK(a.error().code() == errc::invalid_argument);
  }
  CHECK_FALSE(parse_url("shm://" + std::string(200, 'x')));
  CHECK_FALSE(parse_url(std::string("tcp://a\0b:1", 11)));
}

TEST_CASE("connect names the scheme that nobody serves, and the package that verbs needs") {
  test::recorded_events events;
  try {
    connect("carrier-pigeon://x", {}, events);
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::unknown_scheme);
    CHECK(std::string(e.what()).find("carrier-pigeon") != std::string::npos);
  }
  try {
    connect("verbs://10.0.0.1:7", {}, events);
    FAIL("connected");
  } catch (const error& e) {
    CHECK((e.code() == errc::unsupported || e.code() == errc::unreachable));
    // The library is not there, or it is and there is no device.
    if (e.code() == errc::unsupported)
      CHECK_THAT(e.what(), Catch::Contains("libfarmem-verbs") || Catch::Contains("RDMA"));
  }
}
