// A heap whose process runs out of memory at any moment: each allocation of a small scenario fails in turn, on whatever
// thread it is. An operation succeeds or throws, nothing ends the program, and no data is lost.
#include <catch2/catch.hpp>
#include <farmem/farmem.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "failing_new.h"
#include "program/live_agent.h"
#include "support/effort.h"

using namespace fm::literals;
using namespace fm::test;

namespace {

struct item {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
  fm::ref<item> next;
};

fm::heap_options small(const std::vector<std::string>& agents) {
  fm::heap_options o{.cache = 1_MiB, .agents = agents, .segment = 32_KiB, .collect = false};
  o.memory_within = std::chrono::seconds(2);
  return o;
}

/// Objects, a vector, a hash table, a tree, a queue and strings, and what they must hold.
class shadowed {
 public:
  explicit shadowed(fm::heap& h) : heap_(h) {
    for (std::uint64_t i = 0; i < 200; ++i) make();
    for (std::uint64_t i = 0; i < 2'000; ++i) push(i);
    for (std::uint64_t i = 0; i < 300; ++i) insert(i, i);
    for (std::uint64_t i = 0; i < 600; ++i) put(i, i);
    for (std::uint64_t i = 0; i < 300; ++i) enqueue(i);
  }

  void run(std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (int i = 0; i < 6; ++i) make();
    for (int i = 0; i < 3; ++i) push(rng());
    (void)attempt([&] { (void)heap_.evict_all(std::chrono::seconds(5)); });
    for (int i = 0; i < 6; ++i) read(rng() % items_.size());
    for (int i = 0; i < 4; ++i) write(rng() % items_.size(), rng());
    for (int i = 0; i < 3; ++i) insert(rng() % 600, rng());
    for (int i = 0; i < 3; ++i) erase(rng() % 600);
    for (int i = 0; i < 3; ++i) put(rng() % 1'000, rng());
    for (int i = 0; i < 3; ++i) take(rng() % 1'000);
    for (int i = 0; i < 3; ++i) enqueue(rng());
    for (int i = 0; i < 3; ++i) dequeue();
    join(rng() % 100);
    set(rng() % vector_oracle_.size(), rng());
    pop();
    drop();
    (void)attempt([&] { (void)heap_.collect_young(); });
    (void)attempt([&] { (void)heap_.collect(); });
  }

  void require_same() {
    const spared mine;
    for (const auto& [p, id] : items_) {
      const auto pin = p.read();
      if (pin->id != id || pin->words[7] != id) FAIL("an item has " << pin->id << " instead of " << id);
    }
    REQUIRE(std::vector<std::uint64_t>(vector_.begin(), vector_.end()) == vector_oracle_);
    REQUIRE(map_.size() == map_oracle_.size());
    for (const auto& [key, v] : map_oracle_) {
      const auto found = map_.find(key);
      REQUIRE(found);
      REQUIRE(found->x == v);
    }
    std::uint64_t in_tree = 0;
    for (const auto& [key, v] : tree_)
      in_tree += tree_oracle_.contains(number_of(key)) && tree_oracle_[number_of(key)] == v;
    REQUIRE((in_tree == tree_oracle_.size() && tree_.size() == tree_oracle_.size()));
    // A queue is read by taking it apart, and put together again.
    REQUIRE(queue_.size() == queue_oracle_.size());
    for (const std::uint64_t x : queue_oracle_) {
      REQUIRE(queue_.pop() == x);
      queue_.push(x);
    }
    REQUIRE(joined_.str() == joined_oracle_);
  }

 private:
  struct value {
    std::uint64_t x = 0;
  };
  template <class F>
  static bool attempt(F&& f) {
    try {
      f();
      return true;
    } catch (const std::bad_alloc&) {
    } catch (const fm::error&) {
    }
    return false;
  }
  void make() {
    fm::ptr<item> p;
    const std::uint64_t id = next_++;
    if (!attempt([&] { p = heap_.make<item>({.id = id, .words = words(id)}); })) return;
    const spared mine;
    items_.emplace_back(std::move(p), id);
  }
  static std::array<std::uint64_t, 30> words(std::uint64_t id) {
    std::array<std::uint64_t, 30> all;
    all.fill(id);
    return all;
  }
  void read(std::uint64_t i) {
    (void)attempt([&] {
      const auto pin = items_[i].first.read();
      const spared mine;
      REQUIRE(pin->id == items_[i].second);
    });
  }
  void write(std::uint64_t i, std::uint64_t id) {
    (void)attempt([&] {
      const auto pin = items_[i].first.write();
      pin->next = items_[id % items_.size()].first;
      pin->id = id;
      pin->words = words(id);
      items_[i].second = id;
    });
  }
  void drop() {
    const spared mine;
    if (items_.size() > 250) items_.erase(items_.begin() + 100, items_.begin() + 150);
  }
  void push(std::uint64_t x) {
    if (!attempt([&] { vector_.push_back(x); })) return;
    const spared mine;
    vector_oracle_.push_back(x);
  }
  void pop() {
    if (attempt([&] { vector_.pop_back(); })) vector_oracle_.pop_back();
  }
  void set(std::uint64_t i, std::uint64_t x) {
    if (attempt([&] { vector_.set(i, x); })) vector_oracle_[i] = x;
  }
  void insert(std::uint64_t key, std::uint64_t x) {
    if (!attempt([&] { map_.insert_or_assign(key, value{x}); })) return;
    const spared mine;
    map_oracle_[key] = x;
  }
  void erase(std::uint64_t key) {
    if (!attempt([&] { map_.erase(key); })) return;
    const spared mine;
    map_oracle_.erase(key);
  }

  /// Texts are keys of the tree, and are made for it.
  static std::string text_of(std::uint64_t key) { return "a text with a long beginning " + std::to_string(key); }
  static std::uint64_t number_of(const fm::string& text) { return std::stoull(text.str().substr(29)); }
  void put(std::uint64_t key, std::uint64_t x) {
    if (!attempt([&] { tree_.insert_or_assign(text_of(key), x); })) return;
    const spared mine;
    tree_oracle_[key] = x;
  }
  void take(std::uint64_t key) {
    if (attempt([&] { tree_.erase(text_of(key)); })) tree_oracle_.erase(key);
  }
  void enqueue(std::uint64_t x) {
    if (!attempt([&] { queue_.push(x); })) return;
    const spared mine;
    queue_oracle_.push_back(x);
  }
  void dequeue() {
    if (attempt([&] { (void)queue_.try_pop(); }) && !queue_oracle_.empty()) queue_oracle_.pop_front();
  }
  /// A string of the last one and more, or of that alone if it would be long.
  void join(std::uint64_t more) {
    const bool anew = joined_oracle_.size() > 1'000;
    if (!attempt([&] {
          fm::string_builder parts;
          if (!anew) parts.append(joined_);
          joined_ = parts.append(std::to_string(more)).build(heap_);
        }))
      return;
    const spared mine;
    joined_oracle_ = (anew ? "" : joined_oracle_) + std::to_string(more);
  }

  fm::heap& heap_;
  std::uint64_t next_ = 1;
  std::vector<std::pair<fm::ptr<item>, std::uint64_t>> items_;
  fm::vector<std::uint64_t> vector_{heap_};
  std::vector<std::uint64_t> vector_oracle_;
  fm::hash_map<std::uint64_t, value> map_{heap_};
  std::map<std::uint64_t, std::uint64_t> map_oracle_;
  fm::map<fm::string, std::uint64_t> tree_{heap_};
  std::map<std::uint64_t, std::uint64_t> tree_oracle_;
  fm::queue<std::uint64_t> queue_{heap_};
  std::deque<std::uint64_t> queue_oracle_;
  fm::string joined_ = heap_.str("joined ");
  std::string joined_oracle_ = "joined ";
};

void require_sound(fm::heap& h) {
  const spared mine;
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void fail_in_turn(const std::string& scheme, std::uint64_t run) {
  agent_test::live_agent agent;
  fm::heap h(small({agent.url(scheme)}));
  shadowed all(h);
  all.run(0);
  failing_new::fail(~std::uint64_t{0}, 0);
  all.run(1);
  const std::uint64_t allocations = failing_new::stop();
  REQUIRE(allocations > 100);
  const std::uint64_t step =
      std::max<std::uint64_t>(1, allocations / from_environment("FARMEM_FAILURES", fm::test::effort(400)));
  std::uint64_t failed = 0;
  for (std::uint64_t k = from_environment("FARMEM_FIRST", 1); k < allocations + 20; k += step) {
    INFO("allocation " << k << " of " << allocations);
    failing_new::fail(k, run);
    all.run(k);
    (void)failing_new::stop();
    failed += failing_new::failed();
    all.require_same();
    if (k / step % 40 == 0) require_sound(h);
  }
  REQUIRE(failed > allocations / step / 2);
  require_sound(h);
  all.require_same();
}

}  // namespace

TEST_CASE("a heap outlives a failure of any one allocation, over shm") { fail_in_turn("shm", 1); }
TEST_CASE("a heap outlives a failure of any one allocation, over tcp") { fail_in_turn("tcp", 1); }
TEST_CASE("a heap outlives a failure of several allocations in a row") { fail_in_turn("tcp", 12); }

TEST_CASE("a heap closes while no memory is to be had, and its handles are null") {
  const std::string scheme = GENERATE("shm", "tcp");
  agent_test::live_agent agent;
  std::optional<fm::heap> h;
  h.emplace(small({agent.url(scheme)}));
  std::vector<fm::ptr<item>> roots;
  for (std::uint64_t i = 0; i < 20'000; ++i) roots.push_back(h->make<item>({.id = i}));
  const fm::weak<item> weak(roots.back());
  REQUIRE(h->collect().ok());
  failing_new::fail(1, ~std::uint64_t{0});
  h.reset();
  (void)failing_new::stop();
  for (const auto& root : roots) REQUIRE(root == nullptr);
  REQUIRE(weak.lock() == nullptr);
  fm::heap next(small({agent.url(scheme)}));
  REQUIRE(next.make<item>({.id = 5})->id == 5);
}

TEST_CASE("a queue that finds no memory for a root when a block of it is empty is as before") {
  fm::heap h({.cache = 1_MiB, .local_memory = 16_MiB, .local_region = 256_KiB, .segment = 32_KiB, .collect = false});
  fm::queue<std::uint64_t> q(h);
  for (std::uint64_t i = 0; i < 300; ++i) q.push(i);
  for (std::uint64_t i = 0; i < 124; ++i) q.pop();  // one is left of the first block
  const fm::ptr<item> p = h.make<item>({.id = 1});
  std::vector<fm::ptr<item>> roots;
  const auto code_of = [](auto f) {
    try {
      f();
      return fm::errc::ok;
    } catch (const fm::error& e) {
      return e.code();
    } catch (const std::bad_alloc&) {  // not even for the text of an error
      return fm::errc::out_of_memory;
    }
  };
  const auto one_more = [&] {
    fm::ptr<item> root = p;
    const spared mine;
    roots.push_back(std::move(root));
  };
  failing_new::fail(1, 1'000'000);
  while (code_of(one_more) == fm::errc::ok) continue;  // until there is no cell for another
  const fm::errc code = code_of([&] { (void)q.try_pop(); });
  (void)failing_new::stop();
  REQUIRE(code == fm::errc::out_of_memory);
  REQUIRE(q.size() == 300 - 124);
  for (std::uint64_t i = 124; i < 300; ++i) REQUIRE(q.pop() == i);
  REQUIRE(q.empty());
}
