#include <farmem/farmem.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <thread>
#include <unordered_map>
#include <vector>

#include "support/ended_child.h"

using namespace fm::literals;

namespace {

struct rooted_node {
  std::uint64_t value = 0;
  fm::ref<rooted_node> next;
};

// Roots that name something of a heap of this process.
std::size_t count_roots(fm::detail::slot_t slot) {
  struct looking_for {
    fm::detail::slot_t slot;
    std::size_t found = 0;
  } l{slot};
  fm::detail::roots::for_each(
      [](fm::detail::root_cell&, fm::detail::slot_t s, void* context) {
        auto* look = static_cast<looking_for*>(context);
        look->found += s == look->slot;
      },
      &l);
  return l.found;
}

fm::ptr<rooted_node> outlives_its_heap;

}  // namespace

TEST_CASE("every copy of a root is a cell and goes with its handle") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 1});
  const auto slot = a.slot();
  REQUIRE(count_roots(slot) == 1);
  {
    auto b = a;
    auto c = std::move(b);
    REQUIRE_FALSE(b);  // NOLINT(bugprone-use-after-move): a moved-from root is null, and documented to be
    REQUIRE(count_roots(slot) == 2);
    fm::ptr<rooted_node> d;
    d = c;
    REQUIRE(count_roots(slot) == 3);
    d = nullptr;
    REQUIRE(count_roots(slot) == 2);
    d = std::move(c);
    REQUIRE(d->value == 1);
    auto& self = d;
    d = self;
    REQUIRE(d == a);
  }
  REQUIRE(count_roots(slot) == 1);
  a.reset();
  REQUIRE(count_roots(slot) == 0);
}

TEST_CASE("a handle that was moved from keeps nothing alive") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 1}), b = h.make<rooted_node>({.value = 2});
  const auto first = a.slot(), second = b.slot();
  a = std::move(b);
  CHECK_FALSE(b);  // NOLINT(bugprone-use-after-move): a moved-from root is null, and documented to be
  CHECK(a->value == 2);
  CHECK(count_roots(first) == 0);
  CHECK(count_roots(second) == 1);
  auto& self = a;
  a = std::move(self);
  CHECK(a->value == 2);
}

TEST_CASE("handles are keys of ordered and of unordered containers") {
  fm::heap h;
  std::map<fm::ptr<rooted_node>, std::uint64_t> ordered;
  std::unordered_map<fm::ptr<rooted_node>, std::uint64_t> hashed;
  std::vector<fm::ptr<rooted_node>> all;
  for (std::uint64_t i = 0; i < 100; ++i) {
    all.push_back(h.make<rooted_node>({.value = i}));
    ordered[all.back()] = hashed[all.back()] = i;
  }
  for (const auto& p : all) {
    const fm::ptr<rooted_node> other = p;
    CHECK(ordered.at(other) == p->value);
    CHECK(hashed.at(other) == p->value);
  }
  CHECK(ordered.size() == all.size());
  CHECK(fm::ptr<rooted_node>() < all.front());
}

TEST_CASE("a field is read by a pin as a handle is") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 1});
  a.write()->next = h.make<rooted_node>({.value = 2});
  const fm::read_pin<rooted_node> next = a->next.read();
  a.write()->next = nullptr;
  h.collect();
  CHECK(next->value == 2);
  REQUIRE_THROWS_AS(a->next.read(), fm::error);
}

TEST_CASE("roots live in containers and are made and dropped in loops") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 5});
  const auto slot = a.slot();
  for (int i = 0; i < 50'000; ++i) {
    fm::ptr<rooted_node> copy = a;
    fm::ptr<rooted_node> moved = std::move(copy);
    if (!moved || copy) FAIL(i);  // NOLINT(bugprone-use-after-move)
  }
  REQUIRE(count_roots(slot) == 1);
  // More than a thread keeps of free cells, so that cells go to the others and come back.
  std::vector<fm::ptr<rooted_node>> many(3 * fm::detail::roots::local_max, a);
  REQUIRE(count_roots(slot) == many.size() + 1);
  many.erase(many.begin(), many.begin() + 100);
  many.insert(many.begin() + 7, a);
  REQUIRE(count_roots(slot) == many.size() + 1);
  many.clear();
  REQUIRE(count_roots(slot) == 1);
}

TEST_CASE("a root may be dropped by another thread than the one that made it") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 5});
  const auto slot = a.slot();
  for (int round = 0; round < 3; ++round) {
    std::vector<fm::ptr<rooted_node>> made(2 * fm::detail::roots::local_max, a);
    std::vector<fm::ptr<rooted_node>> by_other;
    std::thread other([&] {
      made.clear();
      by_other.assign(2 * fm::detail::roots::local_max, a);
    });
    other.join();
    REQUIRE(count_roots(slot) == by_other.size() + 1);
  }
  REQUIRE(count_roots(slot) == 1);
}

TEST_CASE("a root in a static outlives its heap and is null then") {
  {
    fm::heap h;
    outlives_its_heap = h.make<rooted_node>({.value = 9});
    REQUIRE(outlives_its_heap->value == 9);
  }
  REQUIRE_FALSE(outlives_its_heap);
  REQUIRE(outlives_its_heap == nullptr);
  REQUIRE_THROWS_AS(outlives_its_heap->value, fm::error);
  fm::heap again;
  outlives_its_heap = again.make<rooted_node>({.value = 10});
  REQUIRE(outlives_its_heap->value == 10);
}

TEST_CASE("a weak handle does not lock once its heap is closed") {
  fm::weak<rooted_node> w;
  REQUIRE_FALSE(w.lock());
  {
    fm::heap h;
    auto a = h.make<rooted_node>({.value = 4});
    w = fm::weak<rooted_node>(a);
    REQUIRE(w.lock()->value == 4);
    REQUIRE(count_roots(a.slot()) == 1);
  }
  REQUIRE_FALSE(w.lock());
}

TEST_CASE("a thread that ends hands over its segments and cells, and what it made stays") {
  fm::heap h({.cache = 2_MiB, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 64_KiB});
  std::vector<fm::ptr<rooted_node>> made;
  // Far more threads than the cache has segments: each one's half-filled segment must find its way into the queues.
  for (std::uint64_t t = 0; t < 100; ++t) {
    std::thread worker([&] {
      for (std::uint64_t i = 0; i < 20; ++i) made.push_back(h.make<rooted_node>({.value = t * 20 + i}));
      for (std::uint64_t i = 0; i < made.size(); i += 50)
        if (made[i]->value != i) std::abort();
    });
    worker.join();
  }
  for (std::uint64_t i = 0; i < made.size(); ++i)
    if (made[i]->value != i) FAIL(i);
  REQUIRE(h.evict_all() == fm::errc::ok);
  for (const auto& p : made) REQUIRE_FALSE(fm::detail::word::is_resident(fm::detail::word_at(p.slot()).load()));
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
  REQUIRE(v.agent_objects == made.size());
}

TEST_CASE("several heaps in one process do not mix") {
  fm::heap_options small{.cache = 1_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 32_KiB};
  std::vector<std::unique_ptr<fm::heap>> heaps;
  std::vector<std::vector<fm::ptr<rooted_node>>> made(3);
  for (int i = 0; i < 3; ++i) heaps.push_back(std::make_unique<fm::heap>(small));
  for (std::uint64_t i = 0; i < 20'000; ++i)
    for (std::uint64_t k = 0; k < 3; ++k) made[k].push_back(heaps[k]->make<rooted_node>({.value = i * 3 + k}));
  heaps[1].reset();
  for (const auto& p : made[1])
    if (p) FAIL("a root of the closed heap still names something");
  heaps[1] = std::make_unique<fm::heap>(small);
  for (auto& p : made[1]) p = heaps[1]->make<rooted_node>({.value = 7});
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    if (made[0][i]->value != i * 3) FAIL(i);
    if (made[1][i]->value != 7) FAIL(i);
    if (made[2][i]->value != i * 3 + 2) FAIL(i);
  }
  for (auto& h : heaps) {
    REQUIRE(h->evict_all() == fm::errc::ok);
    REQUIRE(h->verify().ok());
  }
}

// ThreadSanitizer does not follow a fork of a process with threads.
#if !FM_TSAN
TEST_CASE("a forked child that uses a heap of its parent aborts, and one that does not is left alone") {
  fm::heap h;
  auto a = h.make<rooted_node>({.value = 3});
  const auto exit_of = [](auto&& in_child) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(STDERR_FILENO);  // the message of the abort is expected
      ::signal(SIGABRT, SIG_DFL);
      in_child();
      ::_exit(17);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
  };
  const int quiet = exit_of([] {});
  REQUIRE(WIFEXITED(quiet));
  REQUIRE(WEXITSTATUS(quiet) == 17);
  const int reads = exit_of([&] { ::_exit(static_cast<int>(a->value)); });
  REQUIRE(WIFSIGNALED(reads));
  REQUIRE(WTERMSIG(reads) == SIGABRT);
  REQUIRE(a->value == 3);
}

#ifndef NDEBUG
TEST_CASE("a scope that another thread uses ends a debug build, with a message") {
  const auto end = fm::test::run_in_child([] {
    fm::scope s;
    s.renew();
    std::thread([&] { s.renew(); }).join();
    ::_exit(0);
  });
  INFO(end.text);
  CHECK(end.by_signal);
  CHECK(end.text.find("a scope belongs to the thread that opened it") != std::string::npos);
}
#endif
#endif

TEST_CASE("a handle to a const object reads, and does not write") {
  fm::heap h({.cache = 2_MiB, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 64_KiB});
  const auto a = h.make<rooted_node>({.value = 1});
  const auto b = h.make<rooted_node>({.value = 2});
  fm::ptr<const rooted_node> c = a;
  REQUIRE(c == a);
  REQUIRE(a == c);
  REQUIRE(c != b);
  REQUIRE(c->value == 1);
  REQUIRE(c.read()->value == 1);
  {
    const fm::scope s;
    REQUIRE(c.get(s) == a.get(s));
  }
  c = b;
  REQUIRE(c->value == 2);
  c = nullptr;
  REQUIRE(c == nullptr);
  REQUIRE_FALSE(c);
  a.write()->next = b;
  c = a->next;  // a reference converts, too
  REQUIRE(c == b);
  REQUIRE(c == a->next);
  auto moved = h.make<rooted_node>({.value = 3});
  c = std::move(moved);
  REQUIRE(moved == nullptr);
  REQUIRE(h.collect().ok());
  REQUIRE(c->value == 3);
  REQUIRE(std::hash<fm::ptr<const rooted_node>>()(c) != 0);

  using reader = fm::ptr<const rooted_node>;
  STATIC_REQUIRE(std::is_convertible_v<fm::ptr<rooted_node>, reader>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<fm::ptr<rooted_node>, reader>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<fm::ref<rooted_node>, reader>);
}
