#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {

struct list_node {
  std::uint64_t value = 0;
  std::array<std::uint64_t, 4> rest{};
  fm::ref<list_node> next;
};
struct tree_branch {
  std::uint64_t value = 0;
  std::array<fm::ref<tree_branch>, 2> children;
};

fm::heap_options small(std::uint64_t cache = 256_KiB) {
  return {.cache = cache, .local_memory = 256_MiB, .local_region = 1_MiB, .segment = 16_KiB};
}

fm::ptr<list_node> make_list(fm::heap& h, std::uint64_t n) {
  fm::ptr<list_node> head;
  for (std::uint64_t i = n; i-- > 0;) head = h.make<list_node>({.value = i, .next = head});
  return head;
}

}  // namespace

TEST_CASE("a walk visits every element in order and ends at null") {
  fm::heap h;
  const auto head = make_list(h, 200);
  std::uint64_t expected = 0;
  for (const list_node& n : fm::walk(head, &list_node::next)) REQUIRE(n.value == expected++);
  REQUIRE(expected == 200);
  for (const list_node& n : fm::walk(fm::ptr<list_node>(), &list_node::next)) FAIL(n.value);
  std::uint64_t from_second = 0;
  for (const list_node& n : fm::walk(head->next.root(), &list_node::next)) from_second += n.value;
  REQUIRE(from_second == 199 * 200 / 2);
  REQUIRE(fm::detail::this_thread.depth == 0);
}

TEST_CASE("a list larger than the cache is walked with plain references") {
  fm::heap h(small());
  constexpr std::uint64_t n = 8'000;  // three times the cache
  const auto head = make_list(h, n);
  const auto dropped = h.stats().dropped_objects;
  for (int round = 0; round < 2; ++round) {
    std::uint64_t expected = 0;
    for (const list_node& e : fm::walk(head, &list_node::next)) {
      if (e.value != expected) FAIL("element " << e.value << " instead of " << expected);
      ++expected;
    }
    REQUIRE(expected == n);
  }
  INFO(h.stats().text());
  REQUIRE(h.stats().dropped_objects > dropped);
  REQUIRE(fm::detail::this_thread.depth == 0);
}

TEST_CASE("a walk may change the elements that it shows, and is left early") {
  fm::heap h(small());
  constexpr std::uint64_t n = 5'000;
  const auto head = make_list(h, n);
  for (fm::cursor<list_node> c(head); c; c.move(c->next)) c.here().write()->rest[1] = c->value * 3;
  std::uint64_t seen = 0;
  for (const list_node& e : fm::walk(head, &list_node::next)) {
    REQUIRE(e.rest[1] == e.value * 3);
    if (++seen == n / 2) break;
  }
  REQUIRE(seen == n / 2);
  REQUIRE(fm::detail::this_thread.depth == 0);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("a cursor renews its section, so that it does not hold up epochs") {
  fm::heap h;
  const auto head = make_list(h, 1000);
  fm::cursor<list_node> c(head);
  const std::uint64_t stamp = fm::detail::epochs::stamp();
  REQUIRE_FALSE(fm::detail::epochs::try_pass(stamp));
  for (std::uint32_t i = 0; i < fm::cursor<list_node>::renew_every; ++i) c.move(c->next);
  REQUIRE(fm::detail::epochs::try_pass(stamp));
  REQUIRE(c->value == fm::cursor<list_node>::renew_every);
}

TEST_CASE("a cursor inside of a scope keeps what the scope has shown in place") {
  fm::heap h;
  const auto head = make_list(h, 1000);
  fm::scope s;
  const list_node* first = head.get(s);
  const std::uint64_t stamp = fm::detail::epochs::stamp();
  std::uint64_t sum = 0;
  for (const list_node& n : fm::walk(head, &list_node::next)) sum += n.value;
  REQUIRE(sum == 999 * 1000 / 2);
  REQUIRE_FALSE(fm::detail::epochs::try_pass(stamp));
  REQUIRE(first == head.get(s));
}

TEST_CASE("a walk follows whatever a function chooses") {
  fm::heap h;
  auto root = h.make<tree_branch>({.value = 0});
  auto at = root;
  for (std::uint64_t i = 1; i < 300; ++i) {
    auto child = h.make<tree_branch>({.value = i});
    at.write()->children[i % 2] = child;
    at = child;
  }
  std::uint64_t expected = 0;
  for (const tree_branch& b : fm::walk(
           root, [](const tree_branch& x) -> const fm::ref<tree_branch>& { return x.children[x.children[0] ? 0 : 1]; }))
    REQUIRE(b.value == expected++);
  REQUIRE(expected == 300);
}

TEST_CASE("a step onto an object of a closed heap throws and leaves the cursor at its end") {
  fm::heap keeper;
  auto a = keeper.make<list_node>({.value = 1});
  {
    fm::heap other;
    auto b = other.make<list_node>({.value = 2});
    a.write()->next = b;  // across heaps: nothing checks it, and reading it says what happened
  }
  fm::cursor<list_node> c(a);
  try {
    c.move(c->next);
    FAIL("the heap of the second element is closed");
  } catch (const fm::error& e) {
    REQUIRE(e.code() == fm::errc::heap_closed);
  }
  REQUIRE_FALSE(c);
}

TEST_CASE("a walk and a cursor begin at a handle for reading alone") {
  fm::heap h;
  const fm::ptr<const list_node> head = make_list(h, 200);
  std::uint64_t expected = 0;
  auto walk = fm::walk(head, &list_node::next);
  static_assert(std::same_as<decltype(walk.here()), const fm::ptr<const list_node>&>);
  for (const list_node& n : walk) REQUIRE(n.value == expected++);
  REQUIRE(expected == 200);
  fm::cursor c(head);
  static_assert(std::same_as<decltype(c), fm::cursor<const list_node>>);
  c.move(c->next);
  REQUIRE(c->value == 1);
  c.move(head);
  REQUIRE(c->value == 0);
  c.move(head->next.root());
  REQUIRE(c->value == 1);
}
