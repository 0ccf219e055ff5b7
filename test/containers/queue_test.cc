#include <deque>
#include <random>

#include "containers/transports.h"

using namespace fm::test;

namespace {
struct job {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 20> work{};
};

/// Elements of one type, made of numbers.
struct number_kind {
  using queue = fm::queue<std::uint64_t>;
  static std::uint64_t make(fm::heap&, std::uint64_t id) { return id; }
  static std::uint64_t id(std::uint64_t e) { return e; }
};
struct job_kind {
  using queue = fm::queue<fm::ref<job>>;
  static fm::ptr<job> make(fm::heap& h, std::uint64_t id) { return h.make<job>({.id = id, .work = {id, ~id}}); }
  static std::uint64_t id(const fm::ptr<job>& j) {
    const auto pin = j.read();
    REQUIRE(pin->work[1] == ~pin->id);
    return pin->id;
  }
};

/// A queue beside what it must hold.
template <class Kind>
class queue_oracle {
 public:
  queue_oracle(fm::heap& h, std::uint64_t seed) : heap_(h), queue_(h), rng_(seed) {}

  void step(bool growing) {
    if (rng_() % 100 < (growing ? 70u : 30u)) {
      oracle_.push_back(rng_());
      queue_.push(Kind::make(heap_, oracle_.back()));
    } else if (oracle_.empty()) {
      REQUIRE(code_of([&] { queue_.pop(); }) == fm::errc::out_of_range);
      REQUIRE(code_of([&] { (void)queue_.front(); }) == fm::errc::out_of_range);
      REQUIRE_FALSE(queue_.try_pop());
    } else if (rng_() % 4 == 0) {
      queue_.push(queue_.pop());  // between, a handle alone keeps what the element refers to
      oracle_.push_back(oracle_.front());
      oracle_.pop_front();
    } else {
      REQUIRE(Kind::id(queue_.front()) == oracle_.front());
      REQUIRE(Kind::id(rng_() % 2 == 0 ? queue_.pop() : queue_.try_pop().value()) == oracle_.front());
      oracle_.pop_front();
    }
    if (rng_() % 1'000 == 0) REQUIRE(heap_.evict_all() == fm::errc::ok);
    REQUIRE(queue_.size() == oracle_.size());
    REQUIRE(queue_.empty() == oracle_.empty());
  }
  void drain() {
    for (; !oracle_.empty(); oracle_.pop_front()) REQUIRE(Kind::id(queue_.pop()) == oracle_.front());
    REQUIRE(queue_.empty());
  }

 private:
  fm::heap& heap_;
  const typename Kind::queue queue_;
  std::mt19937_64 rng_;
  std::deque<std::uint64_t> oracle_;
};
}  // namespace

TEST_CASE("a managed queue does what std::queue does") {
  fm::heap h(tiny());
  queue_oracle<number_kind> q(h, 31);
  // Waves: the queue fills for a while, then runs empty.
  for (int step = 0; step < 40'000; ++step) q.step(step / 2'000 % 2 == 0);
  require_sound(h);
  q.drain();
}

TEMPLATE_TEST_CASE("a queue does what std::queue does over every transport, under collections without end", "",
                   number_kind, job_kind) {
  heap_over over(GENERATE("local", "tcp", "shm"));
  queue_oracle<TestType> q(over.heap, 32);
  beside_collections(over.heap, effort(12'000), [&](std::uint64_t step) { q.step(step / 4'000 % 2 == 0); });
  require_sound(over.heap);
  q.drain();
}

TEST_CASE("a queue longer than the cache keeps its order, and references come out as handles") {
  fm::heap h(tiny());
  fm::queue<fm::ref<job>> q(h);
  constexpr std::uint64_t n = 30'000;
  for (std::uint64_t i = 0; i < n; ++i) q.push(h.make<job>({.id = i}));
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const fm::ptr<job> j = q.pop();
    wrong += j->id != i;
  }
  REQUIRE(wrong == 0);
  REQUIRE(q.empty());
  fm::queue<std::array<std::uint64_t, 200>> wide(h);  // one element to a block
  for (std::uint64_t i = 0; i < 50; ++i) wide.push({i});
  for (std::uint64_t i = 0; i < 50; ++i) REQUIRE(wide.pop()[0] == i);
  REQUIRE(code_of([] { fm::queue<int>().push(1); }) == fm::errc::null_handle);
  require_sound(h);
}

TEST_CASE("several threads push to and pop from one queue, which keeps the order of each") {
  fm::heap h(tiny(4_MiB));
  fm::queue<fm::ref<job>> q(h);
  constexpr std::uint64_t each = 6'000;
  std::atomic<std::uint64_t> taken{0}, wrong{0}, sum{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; i <= each; ++i) q.push(h.make<job>({.id = i * 2 + t}));
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      std::array<std::uint64_t, 2> last{};
      while (taken.load() < 2 * each) {
        const auto j = q.try_pop();
        if (!j) continue;
        const std::uint64_t id = (*j)->id;
        wrong += id / 2 <= last[id % 2];
        last[id % 2] = id / 2;
        sum += id;
        ++taken;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
  REQUIRE(sum == each * (each + 1) * 2 + each);
  REQUIRE((q.empty() && q.size() == 0 && !q.try_pop()));
  REQUIRE(code_of([] { (void)fm::queue<int>().try_pop(); }) == fm::errc::null_handle);
  require_sound(h);
}
