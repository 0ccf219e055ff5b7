// Coroutines that await objects: overlapping of their fetches, errors, scopes, cancellation, other executors.
#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>
#include <ranges>
#include <thread>

#include "held_agent.h"
#include "support/error_code.h"

using namespace fm::literals;
using handles_test::held_agent;

namespace {

struct awaited_record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
  fm::ref<awaited_record> next;
};

fm::heap_options small(const std::string& url = "local:") {
  return {.cache = 2_MiB,
          .agents = {url},
          .local_memory = 128_MiB,
          .local_region = 1_MiB,
          .segment = 64_KiB,
          .elastic = false,
          .access_within = std::chrono::minutes(10)};
}

std::vector<fm::ptr<awaited_record>> make_list(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<awaited_record>> all;
  for (std::uint64_t i = 0; i < n; ++i)
    all.push_back(h.make<awaited_record>({.id = i, .next = i == 0 ? fm::ptr<awaited_record>() : all.back()}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  return all;
}

bool resident(const fm::ptr<awaited_record>& p) {
  return fm::detail::word::is_resident(fm::detail::word_at(p.slot()).load());
}

fm::task<std::uint64_t> id_of(fm::ptr<awaited_record> p) {
  const auto pin = co_await p.fetch();
  co_return pin->id;
}

// Runs a task and gives the code of what it throws.
template <class T>
fm::errc code_of(fm::task<T> t) {
  try {
    fm::run(std::move(t));
  } catch (const fm::error& e) {
    UNSCOPED_INFO(e.what());
    return e.code();
  }
  return fm::errc::ok;
}

// A coroutine type that farmem knows nothing of: starts at once, and is destroyed with its object.
struct foreign {
  struct promise_type {
    foreign get_return_object() { return foreign{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit foreign(std::coroutine_handle<promise_type> h) : handle(h) {}
  foreign(foreign&& o) noexcept : handle(std::exchange(o.handle, nullptr)) {}
  ~foreign() {
    if (handle) handle.destroy();
  }
  std::coroutine_handle<promise_type> handle;
};
foreign read_into(std::uint64_t& out, fm::ptr<awaited_record> p) {
  const auto pin = co_await p.fetch();
  out = pin->id;
}

}  // namespace

TEST_CASE("awaiting an object gives a pin on it, whether it is resident or remote") {
  fm::heap h(small());
  auto all = make_list(h, 10);
  REQUIRE_FALSE(resident(all[7]));
  REQUIRE(fm::run(id_of(all[7])) == 7);
  REQUIRE(resident(all[7]));
  REQUIRE(fm::run(id_of(all[7])) == 7);
  const auto kept = fm::run([](fm::ptr<awaited_record> p) -> fm::task<fm::read_pin<awaited_record>> {
    co_return co_await p.fetch();
  }(all[3]));
  // Twice the cache, fetched again and again: some segments stay for a round by chance.
  std::vector<fm::ptr<awaited_record>> others;
  for (std::uint64_t i = 0; i < 40'000; ++i) others.push_back(h.make<awaited_record>({.id = i}));
  for (int round = 0; round < 8 && resident(all[7]); ++round)
    for (std::uint64_t i = 0; i < others.size(); ++i) REQUIRE(others[i]->id == i);
  REQUIRE_FALSE(resident(all[7]));
  REQUIRE(resident(all[3]));
  REQUIRE(kept->id == 3);
}

TEST_CASE("sixteen tasks have their fetches in flight together") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 40);
  agent.hold(true);
  std::size_t begun = 0, ended = 0, most = 0;
  const auto read = [&](std::size_t i) -> fm::task<std::uint64_t> {
    // The sixteenth lets the agent answer: before, not one of them can have ended.
    if (++begun == 16) agent.hold(false);
    most = std::max(most, begun - ended);
    const auto pin = co_await all[i].fetch();
    ++ended;
    co_return pin->id;
  };
  const auto ids = fm::run_all(std::views::iota(std::size_t{0}, all.size()) | std::views::transform(read), 16);
  REQUIRE(ids.size() == all.size());
  for (std::uint64_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == i);
  REQUIRE(most == 16);
  REQUIRE(h.stats().misses == all.size());
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("more awaits than a thread may have fetches in flight wait for a place") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 300);
  agent.hold(true);
  std::size_t begun = 0;
  const auto read = [&](std::size_t i) -> fm::task<std::uint64_t> {
    if (++begun == all.size()) agent.hold(false);
    const auto pin = co_await all[i].fetch();
    co_return pin->id;
  };
  const auto ids = fm::run_all(std::views::iota(std::size_t{0}, all.size()) | std::views::transform(read), all.size());
  for (std::uint64_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == i);
}

TEST_CASE("a list is walked by awaiting each next element through the pin of the last") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 500);
  const auto sum = [](fm::ptr<awaited_record> head) -> fm::task<std::uint64_t> {
    std::uint64_t total = 0;
    auto n = co_await head.fetch();
    for (total += n->id; n->next; total += n->id) n = co_await n->next.fetch();
    co_return total;
  };
  std::vector<fm::task<std::uint64_t>> walks;
  for (int i = 0; i < 4; ++i) walks.push_back(sum(all.back()));
  for (const std::uint64_t s : fm::run_all(walks, 4)) REQUIRE(s == 500 * 499 / 2);
}

TEST_CASE("tasks await tasks, also many that never suspend, and exceptions come through") {
  fm::heap h(small());
  auto all = make_list(h, 100);
  const auto sum = [&]() -> fm::task<std::uint64_t> {
    std::uint64_t total = 0;
    for (int round = 0; round < 2000; ++round)
      for (const auto& p : all) total += co_await id_of(p);
    co_return total;
  };
  REQUIRE(fm::run(sum()) == 2000 * 4950);
  const auto nested = [](fm::ptr<awaited_record> p) -> fm::task<> {
    co_await [](fm::ptr<awaited_record> q) -> fm::task<> {
      (void)co_await q.fetch();
      throw std::runtime_error("from within");
    }(std::move(p));
  };
  REQUIRE_THROWS_WITH(fm::run(nested(all[0])), "from within");
  REQUIRE(code_of(nested(nullptr)) == fm::errc::null_handle);
}

TEST_CASE("when a task throws, those that have begun end, no more begin, and the first exception is thrown") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 40);
  std::size_t begun = 0, ended = 0, begun_when_thrown = 0;
  const auto read = [&](std::size_t i) -> fm::task<> {
    ++begun;
    (void)co_await all[i].fetch();
    ++ended;
    if (i != 9) co_return;
    begun_when_thrown = begun;
    throw std::out_of_range("the ninth");
  };
  REQUIRE_THROWS_WITH(fm::run_all(std::views::iota(std::size_t{0}, all.size()) | std::views::transform(read), 4),
                      "the ninth");
  REQUIRE(begun == ended);
  REQUIRE(begun >= 10);
  REQUIRE(begun == begun_when_thrown);
}

TEST_CASE("suspending inside a scope is refused, names the scope, and fetches nothing") {
  fm::heap h(small());
  auto all = make_list(h, 10);
  const auto refused = [&](auto body) {
    const auto before = h.stats().misses;
    try {
      fm::run(body());
      FAIL("it suspended");
    } catch (const fm::error& e) {
      REQUIRE(e.code() == fm::errc::scope_misuse);
      REQUIRE(fm::detail::this_thread.depth == 0);
      REQUIRE(h.stats().misses == before);
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string named = refused([&]() -> fm::task<> {
    fm::scope s("the_place.cc", 77);
    (void)co_await all[1].fetch();
  });
  REQUIRE(named.find("the_place.cc:77") != std::string::npos);
  const std::string outer = refused([&]() -> fm::task<> {  // by the task that it awaits
    fm::scope s("outer.cc", 5);
    co_await [](fm::ptr<awaited_record> p) -> fm::task<> { (void)co_await p.fetch(); }(all[1]);
  });
  REQUIRE(outer.find("outer.cc:5") != std::string::npos);
  // Also where it would have been a hit, so that a test finds it.
  REQUIRE(all[2]->id == 2);
  const std::string hit = refused([&]() -> fm::task<> {
    fm::scope s;
    (void)co_await all[2].fetch();
  });
  REQUIRE(hit.find("coroutine_test.cc") != std::string::npos);
  // An expression that reads in place is a scope without a name, and not that of an earlier one.
  const std::string arrow = refused([&]() -> fm::task<> { (void)co_await all[2]->next.fetch(); });
  REQUIRE(arrow.find(".cc:") == std::string::npos);
  REQUIRE(arrow.find("->") != std::string::npos);
  {
    fm::scope s("around.cc", 9);
    try {
      fm::run(id_of(all[1]));
      FAIL("it ran");
    } catch (const fm::error& e) {
      REQUIRE(e.code() == fm::errc::scope_misuse);
    }
  }
  REQUIRE(fm::run(id_of(all[1])) == 1);
}

TEST_CASE("outside of a run loop an await fetches in place") {
  fm::heap h(small());
  auto all = make_list(h, 10);
  std::uint64_t id = 0;
  const foreign f = read_into(id, all[6]);
  REQUIRE(f.handle.done());
  REQUIRE(id == 6);
}

TEST_CASE("other coroutines are resumed by the loop that they await in, which ends after them") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 10);
  agent.hold(true);
  std::uint64_t id = 0;
  std::optional<foreign> f;
  fm::run([&]() -> fm::task<> {
    f.emplace(read_into(id, all[8]));
    REQUIRE_FALSE(f->handle.done());
    agent.hold(false);
    co_return;
  }());
  REQUIRE(f->handle.done());
  REQUIRE(id == 8);
}

TEST_CASE("a coroutine is destroyed while its fetch is in flight, and the fetch ends by itself") {
  held_agent agent;
  fm::heap h(small(agent.url()));
  auto all = make_list(h, 60);
  std::uint64_t id = 77;
  for (std::uint64_t round = 0; round < 3; ++round) {
    agent.hold(true);
    fm::run([&]() -> fm::task<> {
      std::vector<foreign> given_up;
      for (std::uint64_t i = 0; i < 20; ++i) given_up.push_back(read_into(id, all[round * 20 + i]));
      REQUIRE(agent.until_one_is_held());
      co_return;
    }());
    // Their frames fill while this thread uses the cache: nothing was given back early.
    for (std::uint64_t i = 0; i < 200; ++i) h.make<awaited_record>({.id = i});
    agent.hold(false);
    for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(all[round * 20 + i]->id == round * 20 + i);
  }
  REQUIRE(id == 77);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("an await that takes too long throws timed_out, and the object can be had later") {
  held_agent agent;
  auto options = small(agent.url());
  options.access_within = std::chrono::seconds(2);  // and what must succeed before has as long
  fm::heap h(options);
  auto all = make_list(h, 4);
  agent.hold(true);
  const auto begin = fm::clock::now();
  REQUIRE(code_of(id_of(all[2])) == fm::errc::timed_out);
  REQUIRE(fm::clock::now() - begin >= std::chrono::seconds(2));
  REQUIRE(fm::clock::now() - begin < std::chrono::minutes(5));
  agent.hold(false);
  fm::errc code = fm::errc::timed_out;
  for (const auto until = begin + std::chrono::minutes(10); code == fm::errc::timed_out && fm::clock::now() < until;)
    code = code_of(id_of(all[2]));
  REQUIRE(code == fm::errc::ok);
}

TEST_CASE("an agent that is gone is an error of the awaits that need it, and of no others") {
  auto agent = std::make_unique<held_agent>();
  auto options = small();
  options.agents = {agent->url(), "local:"};
  options.reconnect_within = std::chrono::milliseconds(300);
  fm::heap h(options);
  auto all = make_list(h, 5000);
  const auto agent_of = [](const fm::ptr<awaited_record>& p) {
    return fm::detail::tablet_info_of(p.slot()).agent.load();
  };
  std::vector<fm::ptr<awaited_record>> lost, there;
  for (const auto& p : all) (agent_of(p) == 0 ? lost : there).push_back(p);
  REQUIRE(lost.size() > 10);
  REQUIRE(there.size() > 10);
  agent->die();
  std::size_t failed = 0, read = 0;
  const auto look = [&](std::size_t i) -> fm::task<> {
    try {
      const auto pin = co_await (i % 2 ? lost : there)[i / 2].fetch();
      ++read;
    } catch (const fm::error& e) {
      REQUIRE(e.code() == fm::errc::agent_lost);
      REQUIRE(std::string(e.what()).find("tcp://") != std::string::npos);
      ++failed;
    }
  };
  fm::run_all(std::views::iota(std::size_t{0}, std::size_t{20}) | std::views::transform(look), 20);
  REQUIRE(failed == 10);
  REQUIRE(read == 10);
}

TEST_CASE("awaits find room in a cache that is full, and say so when pins leave none") {
  fm::heap h({.cache = 1_MiB,
              .local_memory = 128_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB,
              .memory_within = std::chrono::seconds(2)});
  auto all = make_list(h, 30'000);  // four times the cache
  std::uint64_t sum = 0;
  const auto read = [&](std::size_t i) -> fm::task<> { sum += (co_await all[i].fetch())->id; };
  fm::run_all(std::views::iota(std::size_t{0}, all.size()) | std::views::transform(read), 32);
  REQUIRE(sum == 30'000ull * 29'999 / 2);
  REQUIRE(h.stats().dropped_objects > 10'000);

  std::vector<fm::read_pin<awaited_record>> pins;
  const auto keep = [&](std::size_t i) -> fm::task<> { pins.push_back(co_await all[i].fetch()); };
  try {
    fm::run_all(std::views::iota(std::size_t{0}, all.size()) | std::views::transform(keep), 8);
    FAIL("more is pinned than the cache holds");
  } catch (const fm::error& e) {
    INFO(e.what());
    REQUIRE(e.code() == fm::errc::cache_full);
  }
  REQUIRE(pins.size() > 1000);
  pins.clear();
  REQUIRE(fm::run(id_of(all[5])) == 5);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("an object whose hint is old is asked for by slot") {
  fm::heap h(small());
  auto all = make_list(h, 4);
  auto& word = fm::detail::word_at(all[1].slot());
  auto at = fm::detail::home_address::unpack(word.load());
  at.generation = (at.generation + 1) % fm::detail::home_address::generation_limit;  // no such region
  word = at.pack();
  REQUIRE(fm::run(id_of(all[1])) == 1);
  auto& other = fm::detail::word_at(all[2].slot());  // an address where somebody else lives
  other = fm::detail::word_at(all[3].slot()).load();
  REQUIRE(fm::run(id_of(all[2])) == 2);
  auto& unknown = fm::detail::word_at(all[0].slot());
  unknown = fm::detail::word::unknown;
  REQUIRE(fm::run(id_of(all[0])) == 0);
  REQUIRE(h.stats().misses_by_slot >= 3);
  REQUIRE(h.verify().ok());
}

TEST_CASE("a pin from an await is moved to another thread") {
  fm::heap h(small());
  auto all = make_list(h, 4);
  auto pin = fm::run([](fm::ptr<awaited_record> p) -> fm::task<fm::read_pin<awaited_record>> {
    co_return co_await p.fetch();
  }(all[2]));
  std::uint64_t id = 0;
  std::thread([&id, mine = std::move(pin)]() mutable {
    id = mine->id;
    const auto gone = std::move(mine);
  }).join();
  REQUIRE(id == 2);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE_FALSE(resident(all[2]));
}

TEST_CASE("a heap that is closed while its objects are awaited is an error of the awaits") {
  held_agent agent;
  auto h = std::make_unique<fm::heap>(small(agent.url()));
  auto all = make_list(*h, 10);
  agent.hold(true);
  fm::errc code = fm::errc::ok;
  const auto wait = [&](std::size_t i) -> fm::task<> {
    if (i == 1) {
      agent.hold(false);
      h.reset();
      co_return;
    }
    try {
      (void)co_await all[i].fetch();
    } catch (const fm::error& e) {
      code = e.code();
    }
  };
  fm::run_all(std::views::iota(std::size_t{0}, std::size_t{2}) | std::views::transform(wait), 2);
  REQUIRE(code == fm::errc::heap_closed);
}

TEST_CASE("threads await over a small cache at once, and everything that they read is right") {
  held_agent agent;
  fm::heap h({.cache = 2_MiB,
              .agents = {agent.url(), "local:"},
              .local_memory = 128_MiB,
              .local_region = 1_MiB,
              .segment = 32_KiB});
  auto all = make_list(h, 20'000);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const auto step = [&](std::size_t i) -> fm::task<> {
        const std::size_t at = (i * 7919 + t * 13) % all.size();
        if (i % 5 == 0) {
          all[at].write()->words[t] += 1;
          co_return;
        }
        const auto pin = co_await all[at].fetch();
        if (pin->id != at) ++wrong;
        if (pin->next) {
          const auto next = co_await pin->next.fetch();
          if (next->id + 1 != at) ++wrong;
        }
      };
      fm::run_all(std::views::iota(std::size_t{0}, std::size_t{4000}) | std::views::transform(step), 16);
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

TEST_CASE("a task that is awaited twice, or was moved from, is an error of the second await") {
  fm::heap h(small());
  const auto all = make_list(h, 10);
  const auto id_of = [&](std::size_t i) -> fm::task<std::uint64_t> {
    const auto pin = co_await all[i].fetch();
    co_return pin->id;
  };
  const auto twice = [&]() -> fm::task<std::uint64_t> {
    auto t = id_of(3);
    const std::uint64_t first = co_await t;
    try {
      co_return co_await t + first;
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::invalid_argument) throw;
    }
    auto moved = std::move(t);
    try {
      co_return co_await t + first;
    } catch (const fm::error& e) {
      if (e.code() != fm::errc::invalid_argument) throw;
    }
    co_return first;
  };
  REQUIRE(fm::run(twice()) == 3);
  // What was awaited cannot be run, and the other way round: it is at its end, or somebody waits in it.
  const auto awaited = [&](auto&& run) -> fm::task<fm::errc> {
    auto t = id_of(3);
    (void)co_await t;
    co_return fm::test::code_of([&] { run(std::move(t)); });
  };
  REQUIRE(fm::run(awaited([](auto t) { fm::run(std::move(t)); })) == fm::errc::invalid_argument);
  REQUIRE(fm::run(awaited([](auto t) { fm::run_all(std::span(&t, 1)); })) == fm::errc::invalid_argument);
}
