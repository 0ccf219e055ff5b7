// The longest operation of four threads whose expressions use containers as arguments and receivers of each other, with caches that
// are a small part of what they use: the time that a thread stands still for memory, a miss, a lock or a collection.
#include <farmem/farmem.h>

#include <array>
#include <cstdio>
#include <random>
#include <thread>

#include "support/managed.h"

namespace {

using namespace fm::bench;

constexpr std::uint64_t threads = 4;

struct entry {
  std::uint64_t id = 0;
  fm::ref<entry> next;
  fm::ref<fm::string> name;
  std::array<std::uint64_t, 24> words{};
};

/// What the threads use together: about ten times the cache.
struct shared_data {
  shared_data(fm::heap& heap, std::uint64_t n) : h(heap), keys(n), entries(h), counts(h), names(h), queue(h), order(h) {
    order.resize(keys);
    for (std::uint64_t k = 0; k < keys; ++k) {
      entries.insert_or_assign(k, h.make<entry>({.id = k, .next = {}, .name = fm::str(h, name_of(k))}));
      counts.insert_or_assign(k, 0);
    }
  }
  static std::string name_of(std::uint64_t k) { return "entry " + std::to_string(k); }
  [[nodiscard]] auto of(std::uint64_t k) const { return entries.find(k % keys); }

  fm::heap& h;
  const std::uint64_t keys;
  fm::hash_map<std::uint64_t, fm::ref<entry>> entries;
  fm::hash_map<std::uint64_t, std::uint64_t> counts;
  fm::hash_map<fm::string, fm::ref<entry>> names;
  fm::queue<fm::ref<entry>> queue;
  fm::vector<fm::ref<entry>> order;
};

/// One thread's `rounds`; the time of each expression in nanoseconds, of which only the longest is kept.
std::uint64_t use(const shared_data& d, std::uint64_t thread, std::uint64_t rounds) {
  std::mt19937_64 random(thread);
  std::uint64_t longest = 0, last = now_ns();
  const auto took = [&] {
    const std::uint64_t now = now_ns();
    longest = std::max(longest, now - last);
    last = now;
  };
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const std::uint64_t own = random() % (d.keys / threads) * threads + thread;
    const fm::ptr<entry> p = d.of(own);
    took();
    d.queue.push(d.of(p->id));
    took();
    d.entries.insert_or_assign(p->id, p);
    took();
    p.write()->next = d.of(p->id + 1);
    took();
    d.order.set(p->id, d.of(p->next->id));
    took();
    d.names.insert_or_assign(fm::string(p->name).str(), d.of(p->id));
    took();
    d.counts.update(d.of(p->next->id)->id, [](std::uint64_t& n) { ++n; });
    took();
    if (const auto x = d.queue.try_pop(); x && d.of((*x)->id)->id != (*x)->id)
      throw fm::error(fm::errc::corrupt, "a key");
    took();
    if (d.order[p->id]->id != (own + 1) % d.keys) throw fm::error(fm::errc::corrupt, "an entry's next");
    took();
    keep(d.h.make<entry>({.id = p->id, .next = d.of(p->next->id)})->next->id);
    took();
  }
  return longest;
}

double longest_ms(const std::string& url, std::uint64_t cache, std::uint64_t keys, std::uint64_t rounds) {
  fm::heap h({.cache = cache, .agents = {url}});
  const shared_data d(h, keys);
  std::array<std::uint64_t, threads> longest{};
  std::array<std::string, threads> failure;
  std::vector<std::thread> all;
  for (std::uint64_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      try {
        longest[t] = use(d, t, rounds);
      } catch (const std::exception& e) {
        failure[t] = e.what();
      }
    });
  for (std::thread& t : all) t.join();
  for (const std::string& f : failure)
    if (!f.empty()) throw fm::error(fm::errc::refused, "a thread failed: " + f);
  if (h.stats().waits_expired != 0) throw fm::error(fm::errc::timed_out, "a wait ended by its deadline");
  return double(*std::max_element(longest.begin(), longest.end())) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  program p("longest_operation", "The longest operation of threads with a small cache");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  p.parse(argc, argv);
  const auto rounds = p.sized<std::uint64_t>(20'000, 300);
  return p.run([&] {
    for (const auto& [transport, url] : transports())
      for (const std::uint64_t mib : {1, 4, 16}) {
        const counted_agent a(p, binary, url, "4GiB");
        const std::uint64_t keys = mib * p.sized<std::uint64_t>(20'000, 4'000);
        p.measure(
            {"longest",
             {{"cache", std::to_string(mib) + " MiB"}, {"transport", transport}},
             "ms",
             {goal_kind::value_at_most, 250}},
            [&] {
              return turn{longest_ms(a.url(), mib << 20, keys, rounds), {}, 0};
            },
            3);
      }
  });
}
