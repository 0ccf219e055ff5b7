// Chaos: agents in processes of their own are killed, stopped, filled and started again at the same address, while four
// threads use one heap over all of them. An oracle (program.h) decides what each access may see. After every event, each
// thread must get on with its work; no access may see anything but the right data or a typed error that the event explains.
//
//   FARMEM_CHAOS_SECONDS=...  how long rounds are begun; 2
//   FARMEM_CHAOS_EVENTS=...   letters of the events to choose from: stop, kill, return, fill; skrf. With replicas also
//                             exchange: the heap leaves an agent, and takes it in again; and hand on: the heap is
//                             detached, and attached by the next program; skrfeh. In a network of the
//                             test's own also partition: packets to an agent, from it, or both are dropped; skrepp
//   FARMEM_CHAOS_ROUND=...    events of a round, 4
//   FARMEM_SEED=...           the choices of a run, 1; `random` takes another each time, and prints it
//
// The report, on standard error, tells how many operations a second the survivors' objects had before and after an agent
// died. It is a figure, not a bound.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cache/object_cache.h"
#include "program.h"
#include "support/await.h"

using namespace fm::literals;
using namespace std::chrono_literals;

namespace {

constexpr fm::duration reconnect_within = 2s;

double seconds() {
  const char* text = std::getenv("FARMEM_CHAOS_SECONDS");
  return text ? std::strtod(text, nullptr) : 2.0;
}
std::uint64_t seed() {
  const char* text = std::getenv("FARMEM_SEED");
  const std::uint64_t s = !text                                ? 1
                          : text == std::string_view("random") ? std::random_device{}()
                                                               : std::strtoull(text, nullptr, 0);
  std::fprintf(stderr, "FARMEM_SEED=%llu\n", static_cast<unsigned long long>(s));
  return s;
}

int events_of_a_round() {
  const char* text = std::getenv("FARMEM_CHAOS_ROUND");
  return text ? static_cast<int>(std::strtol(text, nullptr, 10)) : 4;
}

char choice(std::uint64_t random, std::string_view usual) {
  const char* text = std::getenv("FARMEM_CHAOS_EVENTS");
  const std::string_view events = text && *text ? text : usual;
  return events[random % events.size()];
}

/// One heap over three agents, and what happens to them.
class round {
 public:
  round(const std::vector<std::unique_ptr<chaos::chaos_agent>>& agents, std::uint64_t seed, std::uint32_t replicas,
        std::string_view events)
      : agents_(agents),
        replicas_(replicas),
        events_(events),
        random_(seed),
        heap_(std::make_unique<fm::heap>(options())),
        program_(*heap_, {.seed = seed, .has_replicas = replicas > 1}, agents) {}

  void run() {
    program_.build();
    program_.begin();
    go_on("beginning");
    for (int events = 0; events < events_of_a_round(); ++events) {
      await_whole();
      switch (choice(random_(), events_)) {
        case 'e': exchange(); break;
        case 'h': hand_on(); break;
        case 'p': partition(); break;
        case 's': stop(); break;
        case 'k': kill(false); break;
        case 'r': kill(true); break;
        default: fill(); break;
      }
    }
    program_.end();
    program_.compare();
    if (program_.wrong.any()) {
      UNSCOPED_INFO(heap_->stats().text());
      FAIL(program_.wrong.text());
    }
  }

 private:
  [[nodiscard]] fm::heap_options options() const {
    fm::heap_options o;
    o.cache = 1_MiB;  // a quarter of the items
    o.agents = {agents_[0]->url(), agents_[1]->url(), agents_[2]->url()};
    o.replicas = replicas_;
    o.rebalance =
        replicas_ > 1;  // without replicas, the oracle knows of an item's agents the one at its birth and the last
    o.name = "chaos";
    o.segment = 16_KiB;
    o.reconnect_within = reconnect_within;
    o.memory_within = 4s;
    return o;
  }

  /// Every thread gets a hundred operations done from now on. A guard ends a hang.
  void go_on(const char* after) {
    const auto from = program_.progress();
    const bool all = fm::test::await([&] {
      if (program_.wrong.any()) return true;
      const auto now = program_.progress();
      for (std::size_t t = 0; t < now.size(); ++t)
        if (now[t] < from[t] + 100) return false;
      return true;
    });
    INFO("after " << after << "\n" << heap_->stats().text());
    if (program_.wrong.any()) FAIL(program_.wrong.text());
    REQUIRE(all);
  }

  /// Operations a second over the next 5,000, of which those count that end within 0.3 s.
  double rate() { return program_.rate(5'000, 300ms); }

  /// With replicas: nothing is lost if one more agent dies now. The heap has three agents, of which some came again.
  void await_whole() {
    if (replicas_ == 1) return;
    for (const auto& a : agents_)  // the heap need not know yet of one that was killed
      if (a->died() && !a->was_stopped()) REQUIRE(fm::test::await([&] { return !is_used(*a); }));
    REQUIRE(fm::test::await([&] {
      for (const auto& a : agents_)
        if (!is_used(*a) && !heap_->cache().any_stranded()) take_in(*a);
      return heap_->agents().size() == agents_.size() && heap_->stats().tablets_degraded == 0;
    }));
    for (const auto& a : agents_) a->forget();
  }
  [[nodiscard]] bool is_used(const chaos::chaos_agent& a) {
    const std::vector<std::string> all = heap_->agents();
    return std::find(all.begin(), all.end(), a.url()) != all.end();
  }
  void take_in(chaos::chaos_agent& a) {
    a.forget();
    heap_->add_agent(a.url());
  }

  chaos::chaos_agent* one_that_runs(std::size_t but_leave) {
    std::vector<chaos::chaos_agent*> all;
    for (const auto& a : agents_)
      if (!a->died()) all.push_back(a.get());
    return all.size() > but_leave ? all[random_() % all.size()] : nullptr;
  }

  void stop() {
    chaos::chaos_agent* const a = one_that_runs(0);
    if (a == nullptr) return;
    a->stop(replicas_ > 1 ? 300ms : reconnect_within / 4, [&] { (void)program_.rate(random_() % 5'000, 200ms); });
    go_on("an agent was stopped");
  }
  /// For a moment, which is as if nothing had been; or until the heap has given the agent up, while the program goes on.
  void partition() {
    chaos::chaos_agent* const a = one_that_runs(1);
    if (a == nullptr) return;
    const auto which = static_cast<chaos::cut>(1 + random_() % 3);
    if (random_() % 2 == 0) {
      a->cut_off(which, 300ms, [&] { (void)program_.rate(random_() % 5'000, 200ms); });
      return go_on("an agent was cut off for a moment");
    }
    const double before = rate();
    double meanwhile = 0;
    const fm::time_point begin = fm::clock::now();
    fm::duration given_up{};
    a->cut_off(which, {}, [&] {
      go_on("an agent was cut off");
      REQUIRE(fm::test::await([&] { return !is_used(*a); }));
      given_up = fm::clock::now() - begin;
      meanwhile = rate();
    });
    go_on("an agent that was cut off is back");
    std::fprintf(stderr,
                 "cut off (%u) and given up after %lld ms: %.0f operations/s before, %.0f meanwhile, %.0f then\n",
                 static_cast<unsigned>(which),
                 static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(given_up).count()),
                 before, meanwhile, rate());
  }
  void kill(bool comes_back) {
    chaos::chaos_agent* const a = one_that_runs(1);
    if (a == nullptr) return;
    const double before = rate();
    a->kill();
    if (comes_back) a->start();
    const double first = rate(), second = rate();
    go_on(comes_back ? "an agent was started again" : "an agent died");
    std::fprintf(stderr, "%s: %.0f operations/s before, %.0f right afterwards, %.0f then, %.0f when all go on\n",
                 comes_back ? "died and was started again" : "died", before, first, second, rate());
  }
  void exchange() {
    chaos::chaos_agent* const a = one_that_runs(0);
    if (a == nullptr) return;
    const double before = rate();
    const fm::time_point begin = fm::clock::now();
    heap_->remove_agent(a->url());
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(fm::clock::now() - begin).count();
    heap_->add_agent(a->url());
    go_on("an agent was left and taken in again");
    std::fprintf(stderr, "left in %lld ms and taken in again: %.0f operations/s before, %.0f then\n",
                 static_cast<long long>(ms), before, rate());
  }
  /// An agent may die when nobody has the heap.
  void hand_on() {
    const double before = rate();
    fm::time_point begin = fm::clock::now();
    const auto ms = [&] {
      return std::chrono::duration<double, std::milli>(fm::clock::now() - std::exchange(begin, fm::clock::now()))
          .count();
    };
    double detached = 0, attached = 0;
    fm::attached_heap<chaos::kept_items> next;
    program_.change_heap(
        [&](const fm::ptr<chaos::kept_items>& root) {
          begin = fm::clock::now();
          heap_->detach({.name = "chaos"}, root);
          detached = ms();
        },
        [&]() -> fm::attached_heap<chaos::kept_items>& {
          fm::attach_options which{.name = "chaos"};
          if (chaos::chaos_agent* const a = random_() % 2 == 0 ? one_that_runs(1) : nullptr) {
            a->kill();
            which.lost.push_back(a->url());
          }
          begin = fm::clock::now();
          next = fm::heap::attach<chaos::kept_items>(which, options());
          attached = ms();
          return next;
        });
    heap_ = std::move(next.heap);
    go_on("the heap was handed on");
    std::fprintf(stderr, "detached in %.0f ms, attached in %.0f ms: %.0f operations/s before, %.0f then\n", detached,
                 attached, before, rate());
  }
  void fill() {
    (void)program_.fill(64_MiB);
    (void)heap_->collect("the ballast is dropped");
    go_on("the agents were filled");
  }

  const std::vector<std::unique_ptr<chaos::chaos_agent>>& agents_;
  const std::uint32_t replicas_;
  const std::string_view events_;
  std::mt19937_64 random_;
  std::unique_ptr<fm::heap> heap_;
  chaos::program program_;
};

void chaos_over(const std::string& transport, std::uint32_t replicas, std::string_view events) {
  std::vector<std::unique_ptr<chaos::chaos_agent>> agents;
  for (int i = 0; i < 3; ++i)
    agents.push_back(std::make_unique<chaos::chaos_agent>(
        transport, std::vector<std::string>{"--memory", replicas == 1 ? "12MiB" : "36MiB", "--region", "256KiB"}));
  std::mt19937_64 choices(seed());
  const fm::time_point end =
      fm::clock::now() + std::chrono::duration_cast<fm::duration>(std::chrono::duration<double>(seconds()));
  int rounds = 0;
  do {
    const std::uint64_t s = choices();
    INFO("round " << rounds << ", its seed " << s);
    for (const auto& a : agents) a->forget();
    round(agents, s, replicas, events).run();
    ++rounds;
  } while (fm::clock::now() < end);
  std::fprintf(stderr, "%d rounds of %d events over %s, replicas: %u\n", rounds, events_of_a_round(), transport.c_str(),
               replicas);
}

}  // namespace

TEST_CASE("agents die, stop, fill and return over shm, and a program sees right data or a typed error") {
  chaos_over("shm", 1, "skrf");
}
TEST_CASE("agents die, stop, fill and return over tcp, and a program sees right data or a typed error") {
  chaos_over("tcp", 1, "skrf");
}
TEST_CASE("agents die, stop, fill and return over shm, and a program with replicas sees right data") {
  chaos_over("shm", 2, "skrfeh");
}
TEST_CASE("agents die, stop, fill and return over tcp, and a program with replicas sees right data") {
  chaos_over("tcp", 2, "skrfeh");
}
TEST_CASE("agents are cut off, die and return, and a program with replicas sees right data") {
  if (const std::string why = chaos::network::enter(); !why.empty()) {
    WARN("no agent is cut off here: " << why);
    return;
  }
  chaos_over("tcp", 2, "skrepp");
}
