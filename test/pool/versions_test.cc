// Versions of objects, and writes that name one: over every transport, beside compaction, with answers that are lost, and
// with an agent that does not know of them. And pointers that say whether they are old.
#include <mutex>
#include <thread>

#include "pool/fixture.h"
#include "support/served_store.h"

namespace {

using namespace pool_test;
using protocol::message_type;

struct count {
  std::uint64_t value = 0, copy = 0;
  std::array<std::uint64_t, 20> rest{};
};

/// An agent that loses answers to changes, or speaks version 3.0 of the protocol.
class odd_agent final : public fm::test::served_store {
 public:
  explicit odd_agent(bool is_old = false) : served_store(options()), is_old_(is_old) { serve(); }
  ~odd_agent() override { stop(); }
  odd_agent(const odd_agent&) = delete;
  odd_agent& operator=(const odd_agent&) = delete;

  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    const message_type type = type_of(payload);
    if (is_old_ && type > message_type::pool_epoch) {
      strangers.fetch_add(1);
      return errc::bad_frame;  // as any message that it does not know
    }
    std::vector<std::byte> changed(payload.begin(), payload.end());
    if (is_old_ && type == message_type::pool_open) {
      const std::uint16_t none = 0;
      std::memcpy(changed.data() + sizeof(protocol::message_head) + offsetof(protocol::pool_open_body, minor), &none,
                  sizeof none);
    }
    const errc e = served_store::message(p, changed, out);
    if (type == message_type::pool_write_if && lose_each != 0 && handled.fetch_add(1) % lose_each == 0)
      return lose(p, "a lost answer");
    return e;
  }
  std::atomic<unsigned> lose_each{0}, handled{0}, strangers{0};

 private:
  static fm::agent::store_options options() {
    fm::agent::store_options o;
    o.memory_bytes = 32_MiB;
    o.region_bytes = 1_MiB;
    return o;
  }
  const bool is_old_;
};

pool_options options_of(const odd_agent& a) {
  pool_options o;
  o.agents = {a.url()};
  o.tenant = pool_tenant::random();
  o.compact_above = 0;
  o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(60);
  return o;
}

}  // namespace

TEST_CASE("a write takes the place of the version that was read, and of no other") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.versions_upto = versions;
  pool p(o), other(o);
  auto a = p.alloc(count{1, 1, {}});
  auto theirs = a;
  const auto first = p.read_versioned(a);
  CHECK(first.value.value == 1);
  CHECK(other.read_versioned(theirs).version == first.version);
  const pool_version second = p.write_if(a, first.version, count{2, 2, {}});
  CHECK_FALSE(second == first.version);
  CHECK(other.read_versioned(theirs).version == second);
  const auto refused = other.try_write_if(theirs, first.version, count{3, 3, {}});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == errc::conflict);
  CHECK(p.read(a).value == 2);
  CHECK(other.read_versioned(theirs).version == second);
  // A write that names no version gives a new one, also if the value is the same.
  p.write(a, count{2, 2, {}});
  CHECK(other.try_write_if(theirs, second, count{4, 4, {}}).error().code() == errc::conflict);
  const pool_version third = p.read_versioned(a).version;
  CHECK_FALSE(third == second);
  CHECK_FALSE(third == first.version);
  CHECK_FALSE(p.write_if(a, third, count{5, 5, {}}) == third);
  // The wrong size, and what is not there.
  const std::uint64_t word = 0;
  const auto small = p.try_write_bytes_if(a.address(), third, std::as_bytes(std::span(&word, 1)));
  CHECK(small.error().code() == errc::layout_mismatch);
  CHECK(p.read(a).value == 5);
  p.free(a);
  CHECK(p.try_read_versioned(a).error().code() == errc::not_found);
  CHECK(p.try_write_if(a, third, count{}).error().code() == errc::not_found);
  pool_ptr<count> null;
  CHECK(p.try_write_if(null, third, count{}).error().code() == errc::access_denied);
  check_sound(p);
}

TEST_CASE("compaction changes no version, and tells which pointers are old until they are released") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.arenas = 1;
  pool p(o), other(o);
  using value = checked<8>;
  std::vector<pool_ptr<value>> all;
  std::vector<pool_version> version;
  for (std::uint64_t i = 0; i < 600; ++i) all.push_back(p.alloc(value::make(i, 0)));
  for (auto& a : all) version.push_back(other.read_versioned(a).version);
  for (const auto& a : all) REQUIRE_FALSE(other.is_old(a));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 9 != 0) p.free(all[i]);
  p.compact();
  std::size_t old = 0;
  for (std::size_t i = 0; i < all.size(); i += 9) {
    auto mine = all[i];
    CHECK(other.read_versioned(mine).version == version[i]);
    // Whether it is old is whether releasing it changes it.
    const bool is_old = other.is_old(mine);
    const auto before = mine;
    if (is_old) {
      ++old;
      const pool_version next = other.write_if(mine, version[i], value::make(i, 1));
      other.release(mine);
      CHECK_FALSE(mine == before);
      CHECK(other.try_write_if(all[i], next, value::make(i, 2)).error().code() == errc::not_found);
    } else {
      other.release(mine);
      CHECK(mine == before);
    }
    CHECK_FALSE(other.is_old(mine));
    CHECK(other.read(mine).id == i);
  }
  CHECK(old > 10);
  CHECK(old < 60);
  CHECK(p.try_is_old(pool_address{}).error().code() == errc::access_denied);
  const auto a = all[0].address();
  const pool_address never = pool_address::make(a.instance(), 1u << 20, 1, 0, 0);
  CHECK(p.try_is_old(never).error().code() == errc::not_found);
  check_sound(p);
}

TEST_CASE("increments by versions are neither lost nor made twice, while objects are moved") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.versions_upto = versions;
  pool p(o), other(o);
  constexpr std::size_t counters = 8;
  constexpr std::uint64_t increments = 60;
  std::vector<pool_ptr<count>> shared;
  std::vector<pool_ptr<count>> filler;
  for (std::size_t i = 0; i < counters; ++i) {
    shared.push_back(p.alloc(count{}));
    for (int k = 0; k < 40; ++k) filler.push_back(p.alloc(count{}));
  }
  std::atomic<unsigned> running{3};
  std::atomic<bool> moved{false};
  std::atomic<std::uint64_t> conflicts{0}, torn{0};
  std::array<std::array<std::uint64_t, counters>, 3> made{};
  std::vector<std::thread> threads;
  std::array<errc, 3> failed{};
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      pool& mine = t == 0 ? p : other;
      auto ptrs = shared;
      // At least so many, and until some were made beside a merge.
      for (std::uint64_t n = 0; (n < increments * counters || !moved.load()) && failed[t] == errc::ok;) {
        auto& c = ptrs[n % counters];
        const auto seen = mine.try_read_versioned(c);
        if (!seen) {
          failed[t] = seen.error().code();
          break;
        }
        if (seen->value.value != seen->value.copy) torn.fetch_add(1);
        const std::uint64_t next = seen->value.value + 1;
        const auto done = mine.try_write_if(c, seen->version, count{next, next, {}});
        if (done)
          ++made[t][n++ % counters];
        else if (done.error().code() == errc::conflict)
          conflicts.fetch_add(1);
        else
          failed[t] = done.error().code();
      }
      running.fetch_sub(1);
    });
  std::size_t freed = 0;
  const auto give_up = clock::now() + std::chrono::minutes(10);
  const auto objects_moved = [&] { return p.stats().agents[0].classes.at(0).objects_moved; };
  while (running.load() != 0) {
    for (int k = 0; k < 10 && freed < filler.size(); ++k) p.free(filler[(freed++ * 7) % filler.size()]);
    p.compact();
    if (objects_moved() > 0 || clock::now() > give_up) moved = true;
    if (freed == filler.size())
      for (freed = 0; auto& f : filler) f = p.alloc(count{});
  }
  for (auto& t : threads) t.join();
  for (const errc e : failed) CHECK(e == errc::ok);
  CHECK(torn.load() == 0);
  for (std::size_t i = 0; i < counters; ++i) CHECK(p.rpc_read(shared[i]).value == made[0][i] + made[1][i] + made[2][i]);
  CHECK(objects_moved() > 0);
  check_sound(p);
}

TEST_CASE("a write_if whose answer is lost is made once, and its caller is told") {
  odd_agent agent;
  pool p(options_of(agent)), other(options_of(agent));
  auto a = p.alloc(count{});
  agent.lose_each = 3;
  pool_version v = p.read_versioned(a).version;
  for (std::uint64_t i = 1; i <= 40; ++i) v = p.write_if(a, v, count{i, i, {}});
  agent.lose_each = 0;
  CHECK(p.read(a).value == 40);
  CHECK(p.read_versioned(a).version == v);
  CHECK(p.stats().reconnects > 5);
  CHECK(p.stats().agents[0].writes == 40);
}

TEST_CASE("an agent of version 3.0 is asked for nothing that it does not know") {
  odd_agent agent(true);
  pool_options o = options_of(agent);
  pool p(o);
  auto a = p.alloc(count{7, 7, {}});
  CHECK(p.read(a).value == 7);
  CHECK(p.try_read_versioned(a).error().code() == errc::unsupported);
  CHECK(p.try_write_if(a, {}, count{}).error().code() == errc::unsupported);
  CHECK(p.try_is_old(a.address()).error().code() == errc::unsupported);
  CHECK(p.try_bind("name", a.address()).error().code() == errc::unsupported);
  CHECK(p.try_unbind("name").error().code() == errc::unsupported);
  CHECK(p.try_lookup_address("name").error().code() == errc::unsupported);
  pool_cursor c;
  CHECK(p.try_list(c).error().code() == errc::unsupported);
  CHECK(p.read_many(std::span(&a, 1)).at(0)->value == 7);
  p.write(a, count{8, 8, {}});
  CHECK(p.rpc_read(a).value == 8);
  CHECK(agent.strangers.load() == 0);
  CHECK(p.stats().reconnects == 0);
  o.name = "with thresholds";
  o.compact_above_by_class = {{64, 0.25}};
  const auto refused = pool::open(o);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == errc::unsupported);
  CHECK(std::string(refused.error().what()).find("compact_above_by_class") != std::string::npos);
}
