// Calls that wait for something else than the heap's own objects, inside of sections: channels, pools, credit of a lane,
// and locks. Moments are those at which an agent holds a read, or a test a lock; nothing is timed.
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <random>
#include <thread>

#include "heap/heap_core.h"
#include "held_agent.h"
#include "sections.h"

using namespace fm::literals;

namespace {

using namespace handles_test;

struct note {
  std::uint64_t id = 0;
  fm::ref<note> next;
};
struct entry {
  std::uint64_t id = 0;
  fm::ref<entry> next;
  fm::ref<note> about;
  std::array<std::uint64_t, 24> words{};
};
struct record {
  std::uint64_t id = 0, next = 0;
};

fm::heap_options small_here(std::uint64_t cache = 1_MiB) {
  return {.cache = cache,
          .local_memory = 128_MiB,
          .local_region = 1_MiB,
          .segment = cache / 64,
          .access_within = std::chrono::minutes(5),
          .memory_within = std::chrono::minutes(5)};
}

constexpr fm::send_options patient_send{.within = std::chrono::minutes(5)};
constexpr fm::recv_options patient{.within = std::chrono::minutes(5)};

void require_sound(fm::heap& h) {
  REQUIRE(h.evict_all() == fm::errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

}  // namespace

TEST_CASE("a thread that waits for a channel inside of an expression holds nobody up, and goes on where it was") {
  fm::heap here(small_here()), there(small_here());
  fm::channel_listener listener(there, "local:waiting-calls");
  fm::channel tx = fm::channel::connect(here, listener.url()), rx = listener.accept();
  auto p = here.make<note>({.id = 1});
  p.write()->next = here.make<note>({.id = 2});

  std::uint64_t got = 0, sent = 0;
  std::atomic<bool> begun{false};
  std::thread receiver([&] {
    const auto mine = there.make<note>({.id = 10});
    got = sum({mine->id, (begun = true, rx.recv<note>(patient))->id});
    const fm::scope s;
    const note* held = mine.get(s);
    got += rx.recv<note>(patient)->id + held->id;
  });
  REQUIRE(fm::test::await([&] { return begun.load(); }));
  REQUIRE(sections_end());
  tx.send(p->next, patient_send);
  REQUIRE(sections_end());
  REQUIRE(sum({p->id, (tx.send(p->next, patient_send), p->id)}) == 2);
  receiver.join();
  REQUIRE(got == 10 + 2 + 2 + 10);

  // A send that waits for its receiver.
  begun = false;
  std::thread sender([&] { sent = sum({p->next->id, (begun = true, tx.send(p->next, patient_send), p->id)}); });
  REQUIRE(fm::test::await([&] { return begun.load(); }));
  REQUIRE(rx.readable(std::chrono::minutes(5)));
  REQUIRE(sections_end());
  REQUIRE(here.collect("beside a send").ok());
  REQUIRE(rx.recv<note>(patient)->id == 2);
  sender.join();
  REQUIRE(sent == 3);
  require_sound(here);
  require_sound(there);
}

TEST_CASE("a thread that waits for a pool inside of an expression holds nobody up") {
  held_agent agent;
  fm::pool_options o;
  o.tenant = fm::pool_tenant::random();
  o.agents = {agent.url()};
  o.name = "waiting";
  o.access_within = o.memory_within = o.lease = std::chrono::minutes(5);
  fm::pool pool(o);
  fm::heap h(small_here());
  const auto here = h.make<note>({.id = 1});
  const auto p = pool.alloc(record{.id = 2});
  agent.hold(true);
  std::uint64_t got = 0;
  std::thread reader([&] { got = sum({here->id, pool.read(p).id}); });
  REQUIRE(agent.until_one_is_held());
  const bool left = sections_end();
  const bool collected = h.collect("beside a pool").ok();
  agent.hold(false);
  reader.join();
  REQUIRE(left);
  REQUIRE(collected);
  REQUIRE(got == 3);
  require_sound(h);
}

TEST_CASE("threads that wait for the credit of their lane hold nobody up") {
  constexpr std::uint64_t prefetchers = 40, each = fm::detail::prefetch_chunk, readers = 4;
  held_agent agent;
  fm::heap_options o{.cache = 16_MiB, .agents = {agent.url()}};
  o.segment = 64_KiB;
  o.memory_within = o.access_within = std::chrono::minutes(5);
  o.elastic = false;
  fm::heap h(o);
  REQUIRE(prefetchers * (each - 1) > 2 * fm::fabric::session_options{}.requests_in_flight);
  const auto here = h.make<note>({.id = 1});
  std::vector<fm::ptr<entry>> away;
  for (std::uint64_t i = 0; i < prefetchers * each + readers; ++i) away.push_back(h.make<entry>({.id = i}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(here->id == 1);
  agent.hold(true);
  std::atomic<bool> go_on{false};
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < prefetchers; ++t)
    running.emplace_back([&, t] {
      std::vector<fm::detail::slot_t> slots;
      for (std::uint64_t i = 0; i < each; ++i) slots.push_back(away[t * each + i].slot());
      fm::detail::prefetch_slots(slots);
      go_on.wait(false);  // the records of fetches of a thread that ends are another thread's
    });
  const bool waits = fm::test::await([&] { return h.core().cache().pressure().waiters.load() != 0; });
  std::array<std::uint64_t, readers> got{};
  for (std::uint64_t t = 0; t < readers; ++t)
    running.emplace_back([&, t] { got[t] = sum({here->id, away[prefetchers * each + t]->id}); });
  bool reach = true;
  for (std::uint64_t t = 0; t < readers; ++t)
    reach = reach && fm::test::await([&] { return is_about_to_reach(away[prefetchers * each + t].slot()); });
  const bool left = sections_end();
  const bool collected = h.collect_young().ok();
  go_on = true;
  go_on.notify_all();
  agent.hold(false);
  for (auto& r : running) r.join();
  REQUIRE((waits && reach && left && collected));
  for (std::uint64_t t = 0; t < readers; ++t) REQUIRE(got[t] == 1 + prefetchers * each + t);
  for (std::uint64_t i = 0; i < away.size(); ++i) REQUIRE(away[i]->id == i);
  require_sound(h);
}

TEST_CASE("in a section nobody waits for a lock whose holder may wait for sections") {
  fm::heap h(small_here());
  auto& cache = h.core().cache();
  const auto p = h.make<note>({.id = 1});
  std::atomic<bool> has_list{false}, done{false}, go_on{false};
  std::thread holder([&] {
    bool first = true;
    cache.mutators().for_each([&](fm::detail::mutator&) {
      if (!std::exchange(first, false)) return;
      has_list = true;
      while (!go_on) std::this_thread::yield();
    });
  });
  REQUIRE(fm::test::await([&] { return has_list.load(); }));
  cache.retirements().add(0, 7, 1);  // of which the agent knows nothing
  std::thread in_section([&] {
    const fm::scope s;
    cache.retirements().acknowledge();
    done = p.get(s)->id == 1;
  });
  const bool passed_by = fm::test::await([&] { return done.load(); });
  go_on = true;
  holder.join();
  in_section.join();
  REQUIRE(passed_by);
  require_sound(h);
}

TEST_CASE("pools, channels and containers in one expression wait for nothing that waits for them") {
  constexpr std::uint64_t threads = 3, rounds = 200, calls = 8;
  const std::uint64_t cache = GENERATE(std::uint64_t{1_MiB}, std::uint64_t{4_MiB});
  const std::uint64_t keys = 2 * cache / sizeof(entry);
  fm::heap h(small_here(cache)), there(small_here(cache));
  fm::pool_options o;
  o.tenant = fm::pool_tenant::random();
  o.agents = {"local:"};
  o.name = "expressions";
  o.access_within = o.memory_within = o.lease = std::chrono::minutes(5);
  fm::pool pool(o);
  const fm::hash_map<std::uint64_t, fm::ref<entry>> m(h);
  const fm::queue<fm::ref<entry>> q(h);
  std::vector<fm::pool_ptr<record>> shared;
  for (std::uint64_t k = 0; k < keys; ++k) {
    shared.push_back(pool.alloc(record{.id = k, .next = (k + 1) % keys}));
    m.insert_or_assign(k, h.make<entry>({.id = k, .about = h.make<note>({.id = k})}));
  }
  fm::channel_listener listener(there, "local:expressions");
  std::atomic<std::uint64_t> wrong{0}, pushed{0}, popped{0};
  std::string failure;
  std::mutex failure_mutex;
  const auto reports = [&](auto&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      const std::lock_guard lock(failure_mutex);
      failure = e.what();
    }
  };
  std::vector<std::thread> running;
  for (std::uint64_t t = 0; t < threads; ++t) {
    auto tx = std::make_shared<fm::channel>(fm::channel::connect(h, listener.url()));
    auto rx = std::make_shared<fm::channel>(listener.accept());
    running.emplace_back([&, rx] {
      reports([&] {
        const auto last = there.make<note>({.id = ~std::uint64_t{0}});
        for (auto x = rx->recv<note>(patient); x->id != last->id; x = rx->recv<note>(patient))
          rx->send(there.make<note>({.id = x->id, .next = x})->next, patient_send);
      });
    });
    running.emplace_back([&, t, tx, shared]() mutable {  // pointers are renewed in place: each thread has its own
      std::mt19937_64 rng(t + cache);
      reports([&] {
        for (std::uint64_t i = 0; i < rounds; ++i) {
          const std::uint64_t own = rng() % (keys / threads) * threads + t;
          const fm::ptr<entry> p = m.find(own);
          for (std::uint64_t call = 0; call < calls; ++call) {
            switch (call) {
              case 0: p.write()->next = m.find(pool.read(shared[p->id]).next); break;
              case 1: tx->send(p->about, patient_send); break;
              case 2: wrong += sum({p->id, tx->recv<note>(patient)->id}) != 2 * own; break;
              case 3: pushed += (q.push(m.find(pool.read(shared[p->next->id]).id)), 1); break;
              case 4: pool.write(shared[p->id], record{.id = p->id, .next = m.find(p->next->id)->id}); break;
              case 5: tx->send(h.make<note>({.id = pool.read(shared[m.find(p->id)->id]).id}), patient_send); break;
              case 6: m.insert_or_assign(tx->recv<note>(patient)->id, m.find(p->id)); break;
              default:
                if (auto x = q.try_pop()) wrong += pool.read(shared[(*x)->id]).id != (*x)->id, ++popped;
                wrong += pool.read(pool.alloc(record{.id = p->id, .next = p->next->id})).next != (own + 1) % keys;
            }
          }
        }
        tx->send(h.make<note>({.id = ~std::uint64_t{0}}), patient_send);
      });
    });
  }
  for (auto& r : running) r.join();
  INFO(failure);
  REQUIRE(failure.empty());
  REQUIRE(wrong == 0);
  REQUIRE(q.size() == pushed - popped);
  REQUIRE(m.size() == keys);
  for (std::uint64_t k = 0; k < keys; ++k) REQUIRE(m.find(k)->id == k);
  REQUIRE(h.stats().waits_expired + there.stats().waits_expired == 0);
  require_sound(h);
  require_sound(there);
  REQUIRE(pool.verify().ok());
}
