// Objects of a pool that expire, as programs see them: over every transport, with agents that have no such thing, and with writers,
// readers and compaction beside. Where a test waits for an agent's clock, it waits for the effect.
#include <thread>

#include "pool/fixture.h"
#include "support/await.h"
#include "support/served_store.h"

namespace {

using namespace pool_test;
using fm::test::await;
using protocol::message_type;
using std::chrono::hours;
using std::chrono::milliseconds;
using value = checked<8>;

pool_agent_stats agent_of(const pool& p) { return p.stats().agents.at(0); }

/// An agent whose version of the protocol is an earlier one.
class older_agent final : public fm::test::served_store {
 public:
  explicit older_agent(std::uint16_t minor)
      : served_store({.memory_bytes = 16_MiB, .region_bytes = 1_MiB}), minor_(minor) {
    serve();
  }
  ~older_agent() override { stop(); }
  older_agent(const older_agent&) = delete;
  older_agent& operator=(const older_agent&) = delete;

  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    const message_type type = type_of(payload);
    if (type > (minor_ == 0 ? message_type::pool_epoch : message_type::pool_tune)) {
      strangers.fetch_add(1);
      return errc::bad_frame;  // as any message that it does not know
    }
    std::vector<std::byte> changed(payload.begin(), payload.end());
    if (type == message_type::pool_open)
      std::memcpy(changed.data() + sizeof(protocol::message_head) + offsetof(protocol::pool_open_body, minor), &minor_,
                  sizeof minor_);
    const errc e = served_store::message(p, changed, out);
    if (type == message_type::pool_open && minor_ != 0)
      std::memcpy(out.payload.data() + sizeof(protocol::answer_head) + sizeof(protocol::pool_open_answer), &minor_,
                  sizeof minor_);
    return e;
  }
  std::atomic<unsigned> strangers{0};

 private:
  const std::uint16_t minor_;
};

}  // namespace

TEST_CASE("an object that has expired is gone as if it had been freed, though nobody asks for it") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.versions_upto = versions;
  pool p(o), other(o);
  const auto stays = p.alloc(value::make(1, 0)), long_lived = p.alloc(value::make(2, 0), {.expires_after = hours(24)});
  std::vector<pool_ptr<value>> all;
  for (std::uint64_t i = 0; i < 300; ++i)
    all.push_back(p.alloc(value::make(i, 0), {.expires_after = milliseconds(1 + i % 3)}));
  CHECK(await([&] { return agent_of(other).expired == all.size(); }));
  CHECK(agent_of(other).expiring == 1);
  CHECK(agent_of(other).frees == all.size());
  value v;
  for (auto& a : all) {
    REQUIRE(p.try_read(a).error().code() == errc::not_found);
    REQUIRE(other.direct_read(a, v) != pool_read::ok);
  }
  auto a = all[7];
  CHECK(code_of([&] { (void)p.rpc_read(a); }) == errc::not_found);
  CHECK(p.try_write_bytes(a.address(), std::as_bytes(std::span(&v, 1))).error().code() == errc::not_found);
  CHECK(p.try_read_versioned(a).error().code() == errc::not_found);
  CHECK(p.try_free(a.address()).error().code() == errc::not_found);
  CHECK(p.try_release(a.address()).error().code() == errc::not_found);
  CHECK(p.try_keep(a.address()).error().code() == errc::not_found);
  CHECK(p.try_expire_after(a.address(), hours(1)).error().code() == errc::not_found);
  CHECK(other.read_many(std::span(&a, 1)).at(0).error().code() == errc::not_found);
  CHECK(p.read(stays).id == 1);
  CHECK(other.read(long_lived).id == 2);
  check_sound(p);
}

TEST_CASE("a program puts an object's time off, brings it forward, and takes it away") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool p(at.options()), other(at.options());
  const auto a = p.alloc(value::make(1, 0), {.expires_after = hours(1)}), b = p.alloc(value::make(2, 0));
  const pool_address c = p.alloc_bytes(pattern(100, 3), {.expires_after = hours(365 * 24)});
  CHECK(agent_of(p).expiring == 2);
  other.expire_after(b, hours(2));
  other.keep(a);
  other.keep(a);
  CHECK(agent_of(p).expiring == 2);
  other.expire_after(a, hours(3));
  CHECK(agent_of(p).expiring == 3);
  // Sooner than all that the agent was waiting for.
  p.expire_after(c, std::chrono::nanoseconds(1));
  p.expire_after(b, milliseconds(2));
  CHECK(await([&] { return agent_of(p).expired == 2; }));
  pool_address gone = c;
  CHECK(other.try_read_bytes(gone).error().code() == errc::not_found);
  CHECK(code_of([&] { (void)other.read(b); }) == errc::not_found);
  CHECK(other.read(a).id == 1);
  p.free(a);
  CHECK(agent_of(p).expiring == 0);
  CHECK(agent_of(p).expired == 2);
  check_sound(p);
}

TEST_CASE("a time that is none is refused, and so is an object that is none") {
  const place at(GENERATE("local", "tcp"));
  pool p(at.options());
  const auto a = p.alloc(value::make(1, 0));
  const auto bytes = pattern(8, 1);
  const auto alloc = [&](duration d) { return p.try_alloc_bytes(bytes, {.expires_after = d}); };
  const auto expire = [&](duration d) { return p.try_expire_after(a.address(), d); };
  const duration longest = hours(365 * 24);
  for (const duration d : {duration(-1), duration::min(), longest + duration(1), duration::max()}) {
    CHECK(alloc(d).error().code() == errc::invalid_argument);
    CHECK(expire(d).error().code() == errc::invalid_argument);
  }
  CHECK(expire(duration::zero()).error().code() == errc::invalid_argument);
  CHECK(std::string(expire(duration(-5)).error().what()).find("-5 ns") != std::string::npos);
  CHECK(code_of([&] { (void)p.alloc(value{}, {.expires_after = -milliseconds(1)}); }) == errc::invalid_argument);
  CHECK(code_of([&] { p.expire_after(a, -milliseconds(1)); }) == errc::invalid_argument);
  CHECK(agent_of(p).allocations == 1);
  CHECK(agent_of(p).expiring == 0);
  CHECK(alloc(longest).has_value());
  CHECK(expire(longest).has_value());
  CHECK(agent_of(p).expiring == 2);
  CHECK(p.try_expire_after(pool_address{}, longest).error().code() == errc::access_denied);
  CHECK(p.try_keep(pool_address{}).error().code() == errc::access_denied);
  const pool_address n = a.address();
  const pool_address never = pool_address::make(n.instance(), n.block(), n.generation() + 9, n.index(), n.hint());
  CHECK(p.try_expire_after(never, longest).error().code() == errc::not_found);
  CHECK(p.try_keep(never).error().code() == errc::not_found);
}

TEST_CASE("an agent of an earlier version is asked for no object that expires") {
  const std::uint16_t minor = GENERATE(as<std::uint16_t>{}, 0, 1);
  older_agent agent(minor);
  pool_options o;
  o.agents = {agent.url()};
  o.tenant = pool_tenant::random();
  o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(60);
  pool p(o);
  const auto a = p.alloc(value::make(1, 0));
  const auto refused = p.try_alloc_bytes(pattern(8, 1), {.expires_after = milliseconds(1)});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == errc::unsupported);
  CHECK(std::string(refused.error().what()).find("version 3." + std::to_string(minor)) != std::string::npos);
  CHECK(p.try_expire_after(a.address(), milliseconds(1)).error().code() == errc::unsupported);
  CHECK(p.try_keep(a.address()).error().code() == errc::unsupported);
  CHECK(p.read(a).id == 1);
  CHECK(agent_of(p).expiring == 0);
  CHECK(agent_of(p).allocations == 1);
  CHECK(agent.strangers.load() == 0);
  CHECK(p.stats().reconnects == 0);
}

TEST_CASE("beside readers, writers, renewals and compaction, objects expire once and nothing else goes") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.compact_above = 0.3;
  pool p(o), other(o);
  constexpr std::uint64_t rounds = 400;
  std::atomic<unsigned> running{3};
  std::atomic<std::uint64_t> wrong{0}, freed{0}, made{0}, kept{0};
  std::array<std::vector<pool_ptr<value>>, 3> stay;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      pool& mine = t == 0 ? p : other;
      std::vector<pool_ptr<value>> some;
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const std::uint64_t id = t * rounds + i;
        if (i % 5 == 0) {
          stay[t].push_back(mine.alloc(value::make(id, 0)));
          continue;
        }
        auto a = mine.alloc(value::make(id, 0), {.expires_after = milliseconds(1 + id % 8)});
        made.fetch_add(1);
        some.push_back(a);
        auto& b = some[some.size() - 1 - id * 7 % std::min<std::size_t>(some.size(), 6)];
        // Each call finds the object whole, or not at all.
        const auto seen = mine.try_read(b);
        if (seen ? !seen->whole() : seen.error().code() != errc::not_found) wrong.fetch_add(1);
        const auto told = [&](const auto& r) {
          if (!r && r.error().code() != errc::not_found) wrong.fetch_add(1);
          return r.has_value();
        };
        switch (i % 8) {
          case 0:
            if (told(mine.try_free(b.address()))) freed.fetch_add(1);
            break;
          case 1:
            if (seen) {
              const value next = value::make(seen->id, i);
              told(mine.try_write_bytes(b.address(), std::as_bytes(std::span(&next, 1))));
            }
            break;
          case 2: told(mine.try_expire_after(b.address(), milliseconds(1 + id % 16))); break;
          case 3:
            if (told(mine.try_keep(b.address()))) kept.fetch_add(told(mine.try_expire_after(b.address(), hours(1))));
            break;
          default: break;
        }
      }
      running.fetch_sub(1);
    });
  while (running.load() != 0) p.compact();
  for (auto& t : threads) t.join();
  CHECK(wrong.load() == 0);
  CHECK(kept.load() > 0);
  // Those that are left expire in an hour; all others have gone, each once.
  const auto settled = [&] {
    const pool_agent_stats s = agent_of(p);
    return s.expired + freed.load() + s.expiring == made.load() && s.expiring <= kept.load();
  };
  CHECK(await(settled));
  CHECK(agent_of(p).expired + freed.load() == agent_of(p).frees);
  for (unsigned t = 0; t < 3; ++t)
    for (std::size_t i = 0; i < stay[t].size(); ++i) REQUIRE(p.read(stay[t][i]).id == t * rounds + i * 5);
  check_sound(p);
}
