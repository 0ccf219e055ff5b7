// The agent session over every transport: bytes written in place (local, shm) and from staging buffers (tcp), with
// connections that break before and after a batch is applied.
#include <thread>

#include "fixture.h"

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::remote;
using namespace fm::remote::test;

TEST_CASE("writers, readers and breaking connections over every transport") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  INFO(scheme);
  linked x(256 << 10, 400);
  x.options.batches_in_flight = 8;
  x.options.batch_bytes = 32 << 10;
  x.agent.hook = [](message_type t, std::uint64_t nth, std::span<const std::byte>) {
    if (t == message_type::index && nth % 11 == 0)
      return verdict{nth % 2 ? verdict::break_after : verdict::break_before};
    return verdict{};
  };
  x.open(scheme);
  std::vector<detail::home_address> at(61);
  for (std::uint64_t s = 1; s <= 60; ++s) at[s] = x.write(s, s % 7 == 0 ? 100000 : 1024);
  x.flush();
  x.check_outcomes(60);
  x.check_agent();
  CHECK(x.agent.log.size() == 60);
  CHECK((x.agent.one_sided_writes == 0) == (scheme != "tcp"));

  for (std::uint64_t s = 1; s <= 60; ++s) {
    const std::uint32_t bytes = s % 7 == 0 ? 100000 : 1024;
    std::vector<std::byte> to(bytes);
    fabric::request r;
    REQUIRE(x.l->prepare_read(r, at[s], to.data(), to.size()));
    x.l->session().post(r);
    x.l->session().wait(r);
    REQUIRE(r.status == errc::ok);
    CHECK(is_copy(to.data(), s, bytes));
    CHECK(x.l->fetch_slot(s, false, 0, soon()).entry == at[s].pack());
  }
}

TEST_CASE("closing cancels what is in flight over every transport") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  INFO(scheme);
  linked x;
  x.agent.hook = [](message_type t, std::uint64_t, std::span<const std::byte>) {
    return t == message_type::index ? verdict{verdict::break_before} : verdict{};
  };
  x.options.session.reconnect_for = std::chrono::seconds(30);
  x.open(scheme);
  for (std::uint64_t s = 1; s <= 5; ++s) x.write(s);
  x.l->close();
  x.check_outcomes(5, errc::cancelled);
}
