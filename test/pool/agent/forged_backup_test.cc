// What whoever calls itself the primary of a pool can bring an agent to.
#include "pool/agent/service_fixture.h"
#include "protocol/pool_replica_messages.h"
#include "support/await.h"

using namespace service_test;
using fm::test::await;

namespace {

message_type as_type(backup_message m) { return static_cast<message_type>(m); }

/// Says what a primary says, without being one.
struct forger : client {
  std::uint64_t last = 0;
  explicit forger(world& of) : client(of, 1) {}
  errc open_copy(std::uint32_t keep_ms) {
    open_backup_body b{};
    b.major = backup_protocol_major;
    b.slot = 1;
    b.instance = 7;
    b.tenant[0] = 5;
    b.primary = 9;
    b.term = 1;
    b.quota_bytes = 4_MiB;
    b.tenure_ms = 200;
    b.region_bytes = 256_KiB;
    b.settings = {4096, 0, 1, 0, keep_ms, {}, 0, {}};
    std::strcpy(b.name, "forged");
    return say(as_type(backup_message::open_backup), b);
  }
  template <class T>
  errc record(record_kind kind, const T& fixed, std::size_t tail = 0) {
    std::vector<std::byte> b(sizeof(record_head) + sizeof fixed + tail);
    const record_head h{static_cast<std::uint32_t>(b.size()), static_cast<std::uint16_t>(kind), 0, last + 1};
    std::memcpy(b.data(), &h, sizeof h);
    std::memcpy(b.data() + sizeof h, &fixed, sizeof fixed);
    const backup_records_body m{last, 1, static_cast<std::uint32_t>(b.size())};
    ++last;
    return say(as_type(backup_message::backup_records), m, nullptr, b);
  }
  errc take_over() {
    if (const errc e = say(as_type(backup_message::backup_joined), backup_joined_body{2}); e != errc::ok) return e;
    return say(as_type(backup_message::take_over), take_over_body{2});
  }
  [[nodiscard]] bool is(const std::string& role) const {
    return w.s->survive(7, 1'000'000).find(": " + role + ",") != std::string::npos;
  }
};

}  // namespace

TEST_CASE("an answer to a change that a primary sends is no longer than answers are") {
  world w(false, true);
  forger f(w);
  REQUIRE(f.open_copy(0) == errc::ok);
  const client_record c{{3, 4}, 1000, 0};
  REQUIRE(f.record(record_kind::client, c) == errc::ok);
  const std::size_t most = sizeof(answer_head) + sizeof(pool_alloc_answer);
  CHECK(f.record(record_kind::stream, stream_record{{3, 4}, 1, 0, 0}, most) == errc::ok);
  CHECK(f.record(record_kind::stream, stream_record{{3, 4}, 2, 0, 0}, most + 1) == errc::bad_frame);
}

TEST_CASE("a pool that a primary has handed over ends as others do when nobody has it open") {
  world w(false, true);
  forger f(w);
  REQUIRE(f.open_copy(UINT32_MAX) == errc::ok);
  REQUIRE(f.record(record_kind::client, client_record{{3, 4}, UINT32_MAX, 0}) == errc::ok);
  REQUIRE(f.take_over() == errc::ok);
  CHECK(await([&] { return f.is("alone"); }));
  w.pass(std::chrono::minutes(11));  // the client's lease, and a while in which it could have come back
  CHECK(f.is("alone"));
  w.pass(std::chrono::minutes(11));
  CHECK_FALSE(f.is("alone"));
}
