// What a primary writes down makes the same pool at a backup: blocks of both in the test's hands, and no agents.
#include "pool/agent/blocks_fixture.h"

#include <algorithm>

using namespace blocks_test;
using fm::agent::pool_log;
using fm::protocol::record_head;
using fm::protocol::record_kind;
using std::chrono::milliseconds;

namespace {

/// An agent's, in the test's hands.
struct test_clock {
  std::int64_t now_ns;
  fm::agent::environment agent{options(this)};
  explicit test_clock(std::int64_t seconds) : now_ns(seconds * 1'000'000'000) {}
  test_clock(const test_clock&) = delete;
  test_clock& operator=(const test_clock&) = delete;

 private:
  static fm::agent::store_options options(test_clock* of) {
    fm::agent::store_options o;
    o.hooks.context = of;
    o.hooks.now = [](void* c) { return time_point(std::chrono::nanoseconds(static_cast<test_clock*>(c)->now_ns)); };
    return o;
  }
};

/// A primary with its log.
struct primary : world {
  pool_log log;
  const settings given;
  explicit primary(const settings& s = {}) : world(s), given(s) { blocks.keep_log(log); }
  void begin() {
    log.record(true);
    blocks.begin_image();
  }
  /// The rest of the image.
  void finish() {
    while (blocks.image_step(4096)) {
    }
    blocks.end_image();
  }
  std::vector<std::byte> take() {
    std::vector<std::byte> all;
    std::uint64_t after = 0;
    while (log.take(all, 64_KiB, after) != 0) {
    }
    const time_point now = given.agent != nullptr ? given.agent->now() : clock::now();
    fm::agent::tell_how_long(all, std::uint64_t(std::chrono::floor<milliseconds>(now.time_since_epoch()).count()));
    log.confirmed(log.end());
    return all;
  }
};

template <class F>
void each_record(std::span<const std::byte> all, F&& f) {
  while (!all.empty()) {
    record_head h;
    std::memcpy(&h, all.data(), sizeof h);
    f(static_cast<record_kind>(h.kind), h.number, all.subspan(sizeof h, h.bytes - sizeof h));
    all = all.subspan(h.bytes);
  }
}

void apply(world& backup, primary& from) {
  const auto all = from.take();
  each_record(all, [&](record_kind k, std::uint64_t number, std::span<const std::byte> b) {
    INFO("record " << number << " of kind " << static_cast<int>(k));
    REQUIRE(backup.blocks.apply(k, number, b) == errc::ok);
  });
}

/// Changes objects of all kinds at random.
struct user {
  primary& of;
  std::mt19937_64 random;
  std::vector<std::pair<where, std::vector<std::byte>>> all{};
  std::vector<where> gone{};

  std::vector<std::byte> some(std::size_t n) {
    std::vector<std::byte> b(n);
    for (auto& x : b) x = static_cast<std::byte>(random());
    return b;
  }
  void change() {
    const auto kind = random() % 16;
    if (all.empty() || kind < 6) {
      auto bytes = some(1 + random() % (random() % 8 == 0 ? 3000 : 100));
      where at;
      const errc e = *of.blocks.allocate(bytes, 0, at, fm::agent::held::exclusive, random() % 8 == 0 ? 3600'000 : 0);
      if (e == errc::ok) all.emplace_back(at, std::move(bytes));
      return;
    }
    const std::size_t i = random() % all.size();
    auto& [at, bytes] = all[i];
    if (kind < 9) {
      bytes = some(bytes.size());
      std::uint32_t n = 0;
      REQUIRE(of.blocks.write(at, bytes, n) == errc::ok);
    } else if (kind < 13) {
      REQUIRE(*of.blocks.free(at) == errc::ok);
      gone.push_back(at);
      std::swap(all[i], all.back());
      all.pop_back();
    } else if (kind == 13) {
      const where before = at;
      REQUIRE(*of.blocks.release(at) == errc::ok);
      if (before.id.vblock != at.id.vblock) gone.push_back(before);
    } else if (kind == 14) {
      REQUIRE(of.blocks.expire_after(at, random() % 2 * 3600'000) == errc::ok);
    } else if (random() % 64 == 0) {
      of.blocks.begin_round();
    } else {
      (void)of.blocks.compact_step(8);
    }
    of.blocks.reclaim(of.blocks.epoch());
  }
  void require_at(world& w) {
    for (auto& [at, bytes] : all) {
      where there = at;
      std::vector<std::byte> out;
      REQUIRE(w.blocks.read(there, out) == errc::ok);
      REQUIRE(out == bytes);
      REQUIRE(there.slot == of_slot(at));
      where here = at;
      out.clear();
      REQUIRE(of.blocks.read(here, out) == errc::ok);
      REQUIRE(here.version == there.version);
    }
    for (const where& at : gone) REQUIRE(w.code(at) == errc::not_found);
    REQUIRE(w.blocks.expiring() == of.blocks.expiring());
    w.check();
  }
  std::uint16_t of_slot(where at) {
    std::vector<std::byte> out;
    REQUIRE(of.blocks.read(at, out) == errc::ok);
    return at.slot;
  }
};

}  // namespace

TEST_CASE("a backup that follows has what its primary has, whatever that does") {
  for (const std::uint32_t versions : {0u, 200u}) {
    primary p({.versions_upto = versions});
    world backup({.versions_upto = versions});
    user u{p, std::mt19937_64(versions + 1)};
    p.begin();
    p.finish();
    for (int round = 0; round < 40; ++round) {
      for (int i = 0; i < 200; ++i) u.change();
      apply(backup, p);
    }
    p.check();
    u.require_at(backup);
    backup.blocks.stop_mirroring();
    u.require_at(backup);
  }
}

TEST_CASE("an image beside changes is what there is, and what is changed meanwhile") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    primary p;
    world backup;
    user u{p, std::mt19937_64(seed)};
    for (int i = 0; i < 3000; ++i) u.change();
    p.begin();
    bool more = true;
    while (more) {
      more = p.blocks.image_step(2000);
      for (int i = 0; i < 20; ++i) u.change();
      if (seed % 2 == 0) apply(backup, p);
    }
    p.blocks.end_image();
    for (int i = 0; i < 500; ++i) u.change();
    apply(backup, p);
    u.require_at(backup);
  }
}

TEST_CASE("a backup that goes on names no object as one was named before") {
  primary p;
  world backup;
  user u{p, std::mt19937_64(5)};
  for (int i = 0; i < 2000; ++i) u.change();
  // Blocks that nothing is mapped to are not in the image of any frame.
  while (!u.all.empty()) {
    REQUIRE(*p.blocks.free(u.all.back().first) == errc::ok);
    u.gone.push_back(u.all.back().first);
    u.all.pop_back();
  }
  p.begin();
  p.finish();
  apply(backup, p);
  backup.blocks.stop_mirroring();
  pool_log log;
  log.begin_after(p.log.end());
  backup.blocks.keep_log(log);
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> before;
  for (const where& at : u.gone) before.emplace(at.id.vblock, at.id.index, at.id.generation);
  for (int i = 0; i < 2000; ++i) {
    const where at = backup.make(static_cast<std::uint64_t>(i));
    REQUIRE(before.count({at.id.vblock, at.id.index, at.id.generation}) == 0);
    if (i % 3 != 0) REQUIRE(*backup.blocks.free(at) == errc::ok);
    before.emplace(at.id.vblock, at.id.index, at.id.generation);
  }
  backup.compact();
  backup.check();
  CHECK(log.end() > p.log.end());
}

TEST_CASE(
    "an object expires at a backup as at its primary, however long its record is kept, whatever their clocks are") {
  test_clock here{1000}, there{5};
  settings s, t;
  s.agent = &here.agent;
  t.agent = &there.agent;
  primary p(s);
  world backup(t);
  const auto pass = [&](std::int64_t ms) {
    here.now_ns += ms * 1'000'000;
    there.now_ns += ms * 1'000'000;
  };
  const auto make = [&](std::uint64_t ms) {
    where at;
    REQUIRE(p.blocks.allocate(std::vector<std::byte>(20), 0, at, fm::agent::held::exclusive, ms) == errc::ok);
    return at;
  };
  const where of_image = make(1000);
  pass(100);
  p.begin();
  p.finish();
  const where changed = make(0), made = make(900);
  REQUIRE(p.blocks.expire_after(changed, 900) == errc::ok);
  pass(600);
  apply(backup, p);
  backup.blocks.stop_mirroring();
  const auto is_there = [&](where at) {
    std::vector<std::byte> out;
    return backup.blocks.read(at, out) == errc::ok;
  };
  pass(299);
  for (const where& at : {of_image, changed, made}) CHECK(is_there(at));
  pass(2);
  for (const where& at : {of_image, changed, made}) CHECK_FALSE(is_there(at));
}

TEST_CASE("records that contradict what is there are refused, and break nothing") {
  primary p;
  user u{p, std::mt19937_64(9)};
  p.begin();
  p.finish();
  for (int i = 0; i < 1500; ++i) u.change();
  const auto all = p.take();
  std::mt19937_64 random(3);
  std::uint64_t refused = 0;
  for (int round = 0; round < 60; ++round) {
    world backup;
    bool broken = false;
    each_record(all, [&](record_kind k, std::uint64_t number, std::span<const std::byte> b) {
      if (broken) return;
      std::vector<std::byte> bad(b.begin(), b.end());
      const auto kind = random() % 300;
      if (kind == 0 && !bad.empty())
        bad[random() % std::min<std::size_t>(bad.size(), 72)] = static_cast<std::byte>(random());
      if (kind == 1) bad.resize(random() % (bad.size() + 1));
      if (kind == 2) bad.resize(bad.size() + 1);
      if (kind == 3) k = static_cast<record_kind>(random() % 20);
      if (kind == 4) return;  // lost
      if (backup.blocks.apply(k, number, bad) != errc::ok) broken = true;
    });
    refused += broken ? 1 : 0;
    backup.blocks.stop_mirroring();
    std::string text;
    (void)backup.blocks.audit(text);  // walks all of it
  }
  CHECK(refused > 30);
}

TEST_CASE("the log gives records in their order, again after what was confirmed, and the word follows what counts") {
  pool_log log;
  alignas(8) std::array<std::byte, 8> word{};
  const auto shown = [&] {
    std::uint64_t n = 0;
    std::memcpy(&n, word.data(), 8);
    return n;
  };
  log.show_in(word.data());
  const auto append = [&] { return log.append(pool_log::make(record_kind::mark, std::uint64_t{7})); };
  CHECK(append() == 1);
  CHECK(shown() == 1);
  log.record(true);
  CHECK(append() == 2);
  CHECK(append() == 3);
  CHECK(log.wait_for_backup() == 3);
  CHECK(append() == 4);
  CHECK(shown() == 3);
  std::vector<std::byte> out;
  std::uint64_t after = 99;
  CHECK(log.take(out, 1, after) == 1);  // one at least
  CHECK(after == 0);
  CHECK(log.take(out, 1_KiB, after) == 2);
  CHECK(after == 2);
  CHECK(log.take(out, 1_KiB, after) == 0);
  log.confirmed(3);
  CHECK(shown() == 3);
  log.send_again_after(log.confirmed());
  CHECK(log.take(out, 1_KiB, after) == 1);
  CHECK(after == 3);
  log.confirmed(9);  // what was never said
  CHECK(shown() == 3);
  log.confirmed(4);
  CHECK(shown() == 4);
  CHECK(log.bytes() == 0);
  CHECK(append() == 5);
  CHECK(shown() == 4);
  log.record(false);
  CHECK(shown() == 5);
  CHECK(append() == 6);
  CHECK(shown() == 6);
}
