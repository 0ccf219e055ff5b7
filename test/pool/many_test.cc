// Reads of many objects at a time, and lists of all: against what a map says, over every transport, beside compaction.
#include <map>
#include <random>
#include <set>
#include <thread>

#include "pool/fixture.h"

namespace {

using namespace pool_test;

using value = checked<8>;

std::map<std::uint64_t, std::uint32_t> everything(pool& p, std::size_t most) {
  std::map<std::uint64_t, std::uint32_t> found;
  for (pool_cursor c; !c.done;) {
    const auto some = p.list(c, most);
    REQUIRE(some.size() <= most);
    for (const pool_listing& o : some) {
      pool_address a = o.at;
      const auto bytes = p.read_bytes(a);
      REQUIRE(bytes.size() == o.bytes);
      std::uint64_t id = 0;
      std::memcpy(&id, bytes.data(), sizeof id);
      REQUIRE(found.emplace(id, o.bytes).second);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("many objects are read at a time, each with its own result") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const std::uint32_t versions = GENERATE(0u, ~0u);
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.versions_upto = versions;
  pool p(o), other(o);
  std::vector<pool_ptr<value>> all;
  for (std::uint64_t i = 0; i < 500; ++i) all.push_back(p.alloc(value::make(i, 0)));
  const auto whole = [&](std::vector<result<value>> r, const std::set<std::uint64_t>& freed) {
    REQUIRE(r.size() == all.size());
    for (std::uint64_t i = 0; i < r.size(); ++i) {
      if (freed.contains(i)) {
        REQUIRE_FALSE(r[i].has_value());
        CHECK(r[i].error().code() == errc::not_found);
      } else {
        REQUIRE(r[i].has_value());
        CHECK((r[i]->id == i && r[i]->whole()));
      }
    }
  };
  whole(other.read_many(std::span(all)), {});
  CHECK(other.stats().direct_reads >= 500);
  CHECK(other.stats().rpc_reads == 0);
  CHECK(other.read_many(std::span<pool_ptr<value>>()).empty());
  std::set<std::uint64_t> freed;
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (i % 7 != 0) {
      p.free(all[i]);
      freed.insert(i);
    }
  p.compact();
  whole(other.read_many(std::span(all)), freed);
  CHECK(other.stats().corrected_reads > 0);
  // The pointers were corrected.
  for (std::uint64_t i = 0; i < all.size(); i += 7) {
    value v;
    CHECK(other.direct_read(all[i], v) == pool_read::ok);
  }

  // An item that is wrong does not make others fail.
  std::vector<std::byte> right(sizeof(value)), small(8), huge(1_MiB);
  std::array<pool_read_item, 5> items{pool_read_item{all[0].address(), right},
                                      {pool_address{}, right},
                                      {all[7].address(), small},
                                      {all[14].address(), huge},
                                      {all[1].address(), right}};
  items[4].to = {};
  other.read_many_into(items);
  CHECK(items[0].code == errc::ok);
  CHECK(items[1].code == errc::access_denied);
  CHECK(items[2].code == errc::layout_mismatch);
  CHECK(items[3].code == errc::layout_mismatch);
  CHECK(items[4].code == errc::not_found);
  check_sound(p);
}

TEST_CASE("many large objects, of two agents, are read at a time") {
  const place one("tcp"), two("tcp");
  pool_options o = one.options();
  o.agents.push_back(two.url());
  o.versions_upto = GENERATE(0u, ~0u);
  pool p(o);
  std::vector<pool_read_item> items;
  std::vector<std::vector<std::byte>> bytes;
  for (std::size_t i = 0; i < 150; ++i) bytes.push_back(pattern(1 + i * i * 3, i));
  std::vector<std::vector<std::byte>> read(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    read[i].resize(bytes[i].size());
    items.push_back({p.alloc_bytes(bytes[i]), read[i]});
  }
  CHECK(items[0].at.instance() != items[1].at.instance());
  p.read_many_into(items);
  for (std::size_t i = 0; i < items.size(); ++i) {
    CHECK(items[i].code == errc::ok);
    CHECK(read[i] == bytes[i]);
  }
  // A broken connection is made again.
  p.drop_connections();
  for (auto& r : read) std::fill(r.begin(), r.end(), std::byte{0});
  p.read_many_into(items);
  for (std::size_t i = 0; i < items.size(); ++i) {
    CHECK(items[i].code == errc::ok);
    CHECK(read[i] == bytes[i]);
  }
  std::set<std::uint32_t> instances;
  std::size_t listed = 0;
  for (pool_cursor c; !c.done;)
    for (const auto& found : p.list(c, 7)) {
      instances.insert(found.at.instance());
      ++listed;
    }
  CHECK(listed == items.size());
  CHECK(instances.size() == 2);
}

TEST_CASE("a list has every object once, whatever the pieces are") {
  const std::string scheme = GENERATE("local", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.identity = GENERATE(pool_identity::birth, pool_identity::random_16);
  pool p(o);
  CHECK(everything(p, 10).empty());
  std::mt19937_64 random(3);
  std::map<std::uint64_t, std::pair<pool_address, std::uint32_t>> all;
  const auto make = [&](std::uint64_t id) {
    std::vector<std::byte> b(8 + random() % 200);
    std::memcpy(b.data(), &id, sizeof id);
    all[id] = {p.alloc_bytes(b), static_cast<std::uint32_t>(b.size())};
  };
  for (std::uint64_t i = 0; i < 700; ++i) make(i);
  const auto check = [&](std::size_t most) {
    const auto found = everything(p, most);
    REQUIRE(found.size() == all.size());
    for (const auto& [id, o2] : all) CHECK(found.at(id) == o2.second);
  };
  check(1);
  check(64);
  for (std::uint64_t i = 0; i < 700; ++i)
    if (random() % 5 != 0) {
      p.free(all[i].first);
      all.erase(i);
    }
  p.compact();
  check(3);
  check(1'000'000);
  pool_cursor c;
  CHECK(p.try_list(c, 0).error().code() == errc::invalid_argument);
  c.agent = 9;
  CHECK(p.try_list(c).error().code() == errc::invalid_argument);
  check_sound(p);
}

TEST_CASE("a list beside compaction and changes has what stays exactly once") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  pool p(o), other(o);
  std::vector<pool_ptr<value>> stays, goes;
  for (std::uint64_t i = 0; i < 300; ++i) {
    stays.push_back(p.alloc(value::make(i, 0)));
    for (int k = 0; k < 3; ++k) goes.push_back(p.alloc(value::make(1'000'000, 0)));
  }
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0}, failed{0};
  std::thread changing([&] {
    try {
      std::mt19937_64 random(9);
      while (!stop.load()) {
        std::shuffle(goes.begin(), goes.end(), random);
        for (std::size_t i = 0; i < goes.size() * 4 / 5; ++i) p.free(goes[i]);
        p.compact();
        for (std::size_t i = 0; i < goes.size() * 4 / 5; ++i) goes[i] = p.alloc(value::make(1'000'000, 0));
        rounds.fetch_add(1);
      }
    } catch (const error&) {
      failed.fetch_add(1);
    }
  });
  std::map<pool_address, int, bool (*)(const pool_address&, const pool_address&)> seen(
      [](const pool_address& a, const pool_address& b) {
        return std::tuple(a.who, a.what << 16) < std::tuple(b.who, b.what << 16);
      });
  for (int list = 0; list < 6 || (rounds.load() < 3 && failed.load() == 0); ++list) {
    seen.clear();
    for (pool_cursor c; !c.done;)
      for (const auto& found : other.list(c, 16)) ++seen[found.at];
    for (const auto& s : stays) REQUIRE(seen[s.address()] == 1);
    for (const auto& [a, times] : seen) REQUIRE(times == 1);
    const auto values = other.read_many(std::span(stays));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      REQUIRE(values[i].has_value());
      REQUIRE((values[i]->id == i && values[i]->whole()));
    }
  }
  stop.store(true);
  changing.join();
  CHECK(failed.load() == 0);
  CHECK(p.stats().agents[0].classes.at(0).objects_moved > 0);
  check_sound(p);
}
