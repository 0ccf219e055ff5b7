// Serving threads that answer messages about one pool at a time, while it is compacted: what every message says is compared with a
// shadow of every object, and the audit with itself.
#include "agent/service/service.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/await.h"

namespace {

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using fm::test::await;
using namespace fm::literals;

class peer final : public fabric::peer {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte>) noexcept override { return true; }
  void close(errc, std::string_view) noexcept override {}

 private:
  std::string name_ = "peer";
};

/// What one thread says, in a stream of changes of its own, over a session that others may use as well.
class speaker {
 public:
  speaker(fm::agent::store& s, fabric::peer& p, std::uint32_t stream) : store_(s), peer_(p), stream_(stream) {}

  /// The code of the answer, whose body follows its head in `answer`; bad_frame when there is none.
  template <class T>
  errc say(message_type type, const T& fixed, std::span<const std::byte> payload = {}) {
    std::vector<std::byte> m(sizeof(message_head) + sizeof fixed + payload.size());
    const message_head h{static_cast<std::uint16_t>(type), 0,
                         static_cast<std::uint32_t>(sizeof fixed + payload.size())};
    std::memcpy(m.data(), &h, sizeof h);
    std::memcpy(m.data() + sizeof h, &fixed, sizeof fixed);
    if (!payload.empty()) std::memcpy(m.data() + sizeof h + sizeof fixed, payload.data(), payload.size());
    return send(m);
  }
  errc ask(message_type type) {
    const message_head h{static_cast<std::uint16_t>(type), 0, 0};
    return send(std::as_bytes(std::span(&h, 1)));
  }
  template <class A>
  A answer_as() const {
    A a{};
    std::memcpy(&a, answer.data(), std::min(sizeof a, answer.size()));
    return a;
  }
  errc open(std::uint64_t id, const pool_settings& settings, std::uint16_t minor = pool_protocol_minor,
            const char* name = "pool") {
    pool_open_body b{};
    b.major = pool_protocol_major;
    b.minor = minor;
    b.tenant[0] = 5;
    b.client[0] = id;
    b.lease_ms = 600'000;
    b.settings = settings;
    std::strcpy(b.name, name);
    return say(message_type::pool_open, b);
  }
  pool_change change() { return {++number_, stream_, 0, INT64_MAX}; }
  errc alloc(std::span<const std::byte> payload, pool_object& at) {
    const errc e =
        say(message_type::pool_alloc, pool_alloc_body{change(), std::uint32_t(payload.size()), stream_}, payload);
    if (e != errc::ok) return e;
    const auto a = answer_as<pool_alloc_answer>();
    at = a.at.object;
    return a.wait != 0 ? errc::agent_full : errc::ok;
  }
  errc write(pool_object& at, std::span<const std::byte> payload) {
    return moved(
        at, say(message_type::pool_write, pool_write_body{change(), at, std::uint32_t(payload.size()), 0}, payload));
  }
  errc read(pool_object& at) { return moved(at, say(message_type::pool_read, pool_read_body{at, 1u << 20, 0})); }
  [[nodiscard]] std::span<const std::byte> payload() const {
    return std::span(answer).subspan(sizeof(pool_read_answer));
  }
  errc free(const pool_object& at) { return say(message_type::pool_free, pool_object_body{change(), at}); }
  errc release(pool_object& at) { return moved(at, say(message_type::pool_release, pool_object_body{change(), at})); }

  std::vector<std::byte> answer;

 private:
  errc send(std::span<const std::byte> m) {
    fabric::answer a;
    answer.clear();
    answer_head head{};
    if (store_.message(peer_, m, a) != errc::ok || a.payload.size() < sizeof head) return errc::bad_frame;
    std::memcpy(&head, a.payload.data(), sizeof head);
    answer.assign(a.payload.begin() + sizeof head, a.payload.end());
    return static_cast<errc>(head.code);
  }
  errc moved(pool_object& at, errc e) const {
    if (e == errc::ok) at = answer_as<pool_where>().object;
    return e;
  }

  fm::agent::store& store_;
  fabric::peer& peer_;
  const std::uint32_t stream_;
  std::uint64_t number_ = 0;
};

struct tested_agent {
  explicit tested_agent(const store_hooks& hooks) {
    store_options o;
    o.memory_bytes = 8_MiB;
    o.region_bytes = 256_KiB;
    o.hooks = hooks;
    s = fm::agent::store::create(o);
    for (auto& p : peers) ok = ok && s->connected(p) == errc::ok;
  }
  tested_agent(const tested_agent&) = delete;
  tested_agent& operator=(const tested_agent&) = delete;
  ~tested_agent() {
    for (auto& p : peers) s->disconnected(p);
  }
  std::unique_ptr<fm::agent::store> s;
  std::array<peer, 4> peers;  ///< a client each
  bool ok = true;
};

struct kept_object {
  pool_object at{};
  std::uint64_t id = 0, version = 0;
  std::uint32_t bytes = 0;

  [[nodiscard]] std::vector<std::byte> value() const {
    std::vector<std::byte> v(bytes);
    std::uint64_t word = id * 0x9e3779b97f4a7c15ull ^ version * 0xc2b2ae3d27d4eb4full;
    for (std::byte& b : v) {
      b = static_cast<std::byte>(word >> 56);
      word = word * 6364136223846793005ull + 1442695040888963407ull;
    }
    return v;
  }
};

/// Objects that went from one thread to another, with whoever had them last forgetting them.
struct passed_on {
  std::mutex mutex;
  std::vector<kept_object> all;
};

struct findings {
  std::atomic<std::uint64_t> operations{0}, waited{0}, wrong_bytes{0}, wrong_answers{0}, undead{0};
};

class worker {
 public:
  worker(speaker s, std::uint64_t number, passed_on& others, findings& f)
      : say_(std::move(s)), number_(number), others_(others), findings_(f), random_(number + 1) {}

  void work(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i) {
      step();
      findings_.operations.fetch_add(1, std::memory_order_relaxed);
    }
  }
  /// Everything that is left is what the shadow says.
  void check_all() {
    for (kept_object& o : mine) check(o);
  }
  std::vector<kept_object> mine;

 private:
  void expect(errc e, errc wanted = errc::ok) {
    if (e != wanted) findings_.wrong_answers.fetch_add(1);
  }
  kept_object& some() { return mine[random_() % mine.size()]; }
  void check(kept_object& o) {
    const errc e = say_.read(o.at);
    expect(e);
    const std::vector<std::byte> v = o.value();
    if (e == errc::ok && !std::ranges::equal(v, say_.payload())) findings_.wrong_bytes.fetch_add(1);
  }
  void forget(kept_object& o) {
    if (dead_.size() < 64)
      dead_.push_back(o.at);
    else
      dead_[random_() % dead_.size()] = o.at;
    o = mine.back();
    mine.pop_back();
  }
  void step() {
    const std::uint64_t what = random_() % 16;
    if (mine.empty() || (what < 4 && mine.size() < 400)) return make();
    kept_object& o = some();
    if (what < 7) return check(o);
    if (what < 10) {
      ++o.version;
      return expect(say_.write(o.at, o.value()));
    }
    if (what < 13) {
      expect(say_.free(o.at));
      return forget(o);
    }
    if (what == 13) {
      const pool_object before = o.at;
      expect(say_.release(o.at));
      if (before.vblock != o.at.vblock || before.generation != o.at.generation) dead_.push_back(before);
      if (dead_.size() > 64) dead_.erase(dead_.begin());
      return;
    }
    if (what == 14) {
      if (dead_.empty()) return;
      pool_object d = dead_[random_() % dead_.size()];
      if (say_.read(d) != errc::not_found) findings_.undead.fetch_add(1);
      return;
    }
    const std::lock_guard lock(others_.mutex);
    if (others_.all.size() < 100) {
      others_.all.push_back(o);
      o = mine.back();
      mine.pop_back();
    } else {
      std::swap(o, others_.all[random_() % others_.all.size()]);
    }
  }
  void make() {
    // A few sizes of small objects, and now and then large ones, of which few are in a block.
    constexpr std::array<std::uint32_t, 8> sizes{8, 8, 24, 40, 100, 100, 700, 5000};
    kept_object o;
    o.id = number_ << 40 | ++made_;
    o.bytes = sizes[random_() % sizes.size()];
    const errc e = say_.alloc(o.value(), o.at);
    if (e == errc::agent_full || e == errc::quota_exceeded) {
      findings_.waited.fetch_add(1);
      if (mine.empty()) return;
      kept_object& first = some();
      expect(say_.free(first.at));
      return forget(first);
    }
    expect(e);
    if (e == errc::ok) mine.push_back(o);
  }

  speaker say_;
  const std::uint64_t number_;
  passed_on& others_;
  findings& findings_;
  std::mt19937_64 random_;
  std::uint64_t made_ = 0;
  std::vector<pool_object> dead_;
};

pool_settings settings_of(blocks::naming named, std::uint32_t versions_upto, bool unasked) {
  pool_settings s{};
  s.block_bytes = 4096;
  s.versions_upto = versions_upto;
  s.arenas = 2;
  s.compact_above = unasked ? 16384 : 0;
  std::fill(std::begin(s.naming), std::end(s.naming), static_cast<std::uint8_t>(named));
  return s;
}

void everybody_works(blocks::naming named, std::uint32_t versions_upto, bool unasked) {
  store_hooks hooks;
  hooks.background = unasked;
  tested_agent a(hooks);
  REQUIRE(a.ok);
  std::array<speaker, 2> control{speaker{*a.s, a.peers[0], 200}, speaker{*a.s, a.peers[1], 200}};
  for (std::uint64_t i = 0; i < 2; ++i)
    REQUIRE(control[i].open(i + 1, settings_of(named, versions_upto, unasked)) == errc::ok);

  constexpr std::uint64_t threads = 4;
  passed_on others;
  findings found;
  std::vector<worker> workers;
  for (std::uint64_t t = 0; t < threads; ++t)
    workers.emplace_back(speaker{*a.s, a.peers[t % 2], std::uint32_t(t)}, t, others, found);
  std::atomic<std::uint64_t> running{threads};
  std::vector<std::thread> all;
  for (worker& w : workers)
    all.emplace_back([&] {
      w.work(2500);
      --running;
    });

  // Clients have nothing in flight that was read one-sidedly: they pass every epoch at once.
  errc failed = errc::ok;
  std::uint64_t faults = 0, merges = 0, audits = 0;
  const auto must = [&](errc e) {
    if (e != errc::ok) failed = e;
    return e == errc::ok;
  };
  const auto pass_epochs = [&] {
    if (!must(control[0].ask(message_type::pool_statistics))) return;
    const std::uint64_t epoch = control[0].answer_as<pool_statistics_answer>().epoch;
    for (speaker& c : control) must(c.say(message_type::pool_pass, pool_pass_body{epoch, 0}));
  };
  const auto audit = [&] {
    if (must(control[1].ask(message_type::pool_audit))) faults += control[1].answer_as<audit_answer>().faults;
    ++audits;
  };
  const auto compact = [&] {
    pool_compact_answer done{};
    for (std::uint32_t begin = 1; done.done == 0 && failed == errc::ok; begin = 0) {
      if (must(control[0].say(message_type::pool_compact, pool_compact_body{begin, 0})))
        done = control[0].answer_as<pool_compact_answer>();
    }
    merges += done.merges_made;
  };
  do {
    if (!unasked) compact();
    pass_epochs();
    audit();
  } while (running.load() != 0 && failed == errc::ok);
  for (std::thread& t : all) t.join();
  compact();
  pass_epochs();
  audit();
  for (worker& w : workers) w.check_all();
  worker rest(speaker{*a.s, a.peers[0], 100}, threads, others, found);
  rest.mine = others.all;
  rest.check_all();

  CHECK(failed == errc::ok);
  CHECK(faults == 0);
  CHECK(found.operations.load() == threads * 2500);
  CHECK(found.wrong_bytes.load() == 0);
  CHECK(found.wrong_answers.load() == 0);
  CHECK(found.undead.load() == 0);
  REQUIRE(control[0].ask(message_type::pool_statistics) == errc::ok);
  const auto s = control[0].answer_as<pool_statistics_answer>();
  std::uint64_t left = rest.mine.size(), objects = 0;
  for (const worker& w : workers) left += w.mine.size();
  REQUIRE(control[1].ask(message_type::pool_audit) == errc::ok);
  objects = control[1].answer_as<audit_answer>().objects;
  CHECK(objects == left);
  CHECK(s.allocations - s.frees == left);
  CHECK(s.steps > 0);
  if (named == blocks::naming::birth && !unasked) CHECK(merges > 0);
}

}  // namespace

TEST_CASE("threads that serve a pool at the same time leave every object as its shadow says") {
  SECTION("checksums") { everybody_works(blocks::naming::birth, 0, false); }
  SECTION("versions") { everybody_works(blocks::naming::birth, ~0u, false); }
  SECTION("versions, compacted unasked") { everybody_works(blocks::naming::birth, ~0u, true); }
  SECTION("random ids") { everybody_works(blocks::naming::random_16, 0, false); }
  SECTION("offsets, compacted unasked") { everybody_works(blocks::naming::offset, 0, true); }
}

TEST_CASE("a message about an object is answered while another thread is in the middle of one") {
  struct hook {
    std::atomic<std::thread::id> held_up{};
    std::atomic<bool> inside{false}, leave{false}, in_time{false};
  } h;
  store_hooks hooks;
  hooks.background = false;
  hooks.context = &h;
  hooks.now = [](void* context) {
    hook& k = *static_cast<hook*>(context);
    if (k.held_up.load() == std::this_thread::get_id() && !k.inside.exchange(true))
      k.in_time = await([&] { return k.leave.load(); });
    return clock::now();
  };
  tested_agent a(hooks);
  REQUIRE(a.ok);
  speaker one(*a.s, a.peers[0], 0), two(*a.s, a.peers[1], 0);
  const pool_settings settings = settings_of(blocks::naming::birth, 0, false);
  REQUIRE(one.open(1, settings) == errc::ok);
  REQUIRE(two.open(2, settings) == errc::ok);
  kept_object mine{{}, 1, 1, 24}, theirs{{}, 2, 1, 24}, made{{}, 3, 1, 24};
  REQUIRE(one.alloc(mine.value(), mine.at) == errc::ok);
  REQUIRE(two.alloc(theirs.value(), theirs.at) == errc::ok);
  errc first = errc::timed_out;
  std::thread held_up([&] {
    h.held_up = std::this_thread::get_id();
    ++mine.version;
    first = one.write(mine.at, mine.value());
  });
  REQUIRE(await([&] { return h.inside.load(); }));
  ++theirs.version;
  CHECK(two.write(theirs.at, theirs.value()) == errc::ok);
  CHECK(two.alloc(made.value(), made.at) == errc::ok);
  CHECK(two.read(theirs.at) == errc::ok);
  CHECK(std::ranges::equal(theirs.value(), two.payload()));
  CHECK(two.release(theirs.at) == errc::ok);
  CHECK(two.free(made.at) == errc::ok);
  h.leave = true;
  held_up.join();
  CHECK(h.in_time.load());
  CHECK(first == errc::ok);
  REQUIRE(two.read(mine.at) == errc::ok);
  CHECK(std::ranges::equal(mine.value(), two.payload()));
}

TEST_CASE("a program that does not know slots that share lines has a pool without them, and no other") {
  tested_agent a{store_hooks{}};
  REQUIRE(a.ok);
  speaker older(*a.s, a.peers[0], 0), newer(*a.s, a.peers[1], 0);
  constexpr std::uint16_t before = minor_of_shared_lines - 1;
  const auto shares_lines = [](const speaker& s) { return s.answer_as<pool_open_answer>().settings.shares_lines == 1; };
  const pool_settings settings = settings_of(blocks::naming::birth, 0, false);
  REQUIRE(older.open(1, settings, before, "theirs") == errc::ok);
  CHECK_FALSE(shares_lines(older));
  REQUIRE(newer.open(2, settings, pool_protocol_minor, "theirs") == errc::ok);
  CHECK_FALSE(shares_lines(newer));

  speaker again(*a.s, a.peers[2], 0), late(*a.s, a.peers[3], 0);
  REQUIRE(again.open(3, settings, pool_protocol_minor, "ours") == errc::ok);
  CHECK(shares_lines(again));
  CHECK(late.open(4, settings, before, "ours") == errc::version_mismatch);
}

TEST_CASE("a change that two threads bring at the same time is made once") {
  store_hooks hooks;
  hooks.background = false;
  tested_agent a(hooks);
  REQUIRE(a.ok);
  speaker opening(*a.s, a.peers[0], 9);
  REQUIRE(opening.open(1, settings_of(blocks::naming::birth, 0, false)) == errc::ok);
  constexpr int rounds = 400;
  std::atomic<int> arrived{0};
  std::atomic<bool> in_time{true};
  std::array<std::vector<pool_object>, 2> made;
  std::array<int, 2> wrong{};
  const auto bring = [&](std::size_t which) {
    // Both say the same in the same stream, each as if the other were an earlier connection of its own.
    speaker say(*a.s, a.peers[0], 0);
    for (int i = 0; i < rounds && in_time.load(); ++i) {
      arrived.fetch_add(1);
      if (!await([&] { return arrived.load() >= 2 * i + 2; })) in_time = false;
      kept_object o{{}, std::uint64_t(i), 1, 3000};
      if (say.alloc(o.value(), o.at) != errc::ok) ++wrong[which];
      made[which].push_back(o.at);
    }
  };
  std::thread other([&] { bring(1); });
  bring(0);
  other.join();
  CHECK(in_time.load());
  CHECK(wrong[0] + wrong[1] == 0);
  REQUIRE(made[0].size() == made[1].size());
  CHECK(std::memcmp(made[0].data(), made[1].data(), made[0].size() * sizeof(pool_object)) == 0);
  REQUIRE(opening.ask(message_type::pool_statistics) == errc::ok);
  CHECK(opening.answer_as<pool_statistics_answer>().allocations == rounds);
}
