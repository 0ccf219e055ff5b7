// Many threads of one program on few cores: what they do together, of what two threads do. They have nothing to do with each other, so
// what is lost is what threads cost each other: lines that they share, what each keeps for itself, and threads that stop at a bad moment.
// The program may use all cores here; its agents have theirs.
#include <farmem/farmem.h>

#include <functional>
#include <random>
#include <thread>

#include "support/managed.h"

namespace {

using namespace fm::bench;

using object = blob<64>;
/// What one thread does: its number, and how many operations.
using work_of_thread = std::function<void(std::uint64_t, std::uint64_t)>;

/// `threads` threads share so many operations. Operations a second.
turn share(std::uint64_t threads, std::uint64_t operations, const work_of_thread& work) {
  return rate(double(operations), 1e6, [&] {
    std::vector<std::thread> all;
    all.reserve(threads);
    for (std::uint64_t t = 0; t < threads; ++t) all.emplace_back([&, t] { work(t, operations / threads); });
    for (std::thread& t : all) t.join();
  });
}

std::vector<fm::ptr<object>> make_objects(fm::heap& h, std::uint64_t n) {
  std::vector<fm::ptr<object>> all;
  all.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(h.make<object>({.number = i}));
  return all;
}

void read_some(const std::vector<fm::ptr<object>>& objects, std::uint64_t thread, std::uint64_t n) {
  std::mt19937_64 random(thread + 1);
  for (std::uint64_t i = 0; i < n; ++i) keep(objects[random() % objects.size()]->number);
}

}  // namespace

int main(int argc, char** argv) {
  program p("many_threads", "Threads that have nothing to do with each other, more than there are cores");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  std::uint64_t threads = 64;
  p.option("--threads", threads, "how many, against two");
  p.parse(argc, argv);
  use_all_cores();
  const auto objects = p.sized<std::uint64_t>(200'000, 20'000);
  const auto operations = p.sized<std::uint64_t>(16 << 20, 1 << 15);
  // `prepare` is called once a turn, and its time does not count.
  const auto compare = [&](const std::string& what, std::uint64_t n, const std::function<work_of_thread()>& prepare) {
    p.compare(
        {"throughput",
         {{"what", what}, {"threads", std::to_string(threads)}},
         "M/s",
         {goal_kind::ratio_at_least, 0.9},
         "two threads"},
        [&] { return share(threads, n, prepare()); }, [&] { return share(2, n, prepare()); });
  };
  return p.run([&] {
    {
      fm::heap h({.cache = 4 * objects * frame_bytes<64>, .local_memory = std::uint64_t{2} << 30});
      const auto all = make_objects(h, objects);
      compare("reads of what is near", operations,
              [&]() -> work_of_thread { return [&](std::uint64_t t, std::uint64_t n) { read_some(all, t, n); }; });
    }
    {
      fm::heap h({.cache = 64 << 20, .local_memory = std::uint64_t{2} << 30});
      compare("allocations of 64 B", operations / 2, [&]() -> work_of_thread {
        return [&](std::uint64_t, std::uint64_t n) {
          for (std::uint64_t i = 0; i < n; ++i) keep(h.make<object>({.number = i}));
        };
      });
    }
    {
      fm::heap h({.cache = std::uint64_t{1} << 30, .local_memory = std::uint64_t{2} << 30});
      compare("inserts into an fm::hash_map", operations / 16, [&]() -> work_of_thread {
        return [map = fm::hash_map<std::uint64_t, std::uint64_t>(h)](std::uint64_t t, std::uint64_t n) {
          for (std::uint64_t i = 0; i < n; ++i) map.insert_or_assign(t << 32 | i, i);
        };
      });
    }
    for (const auto& [transport, url] : transports()) {
      const counted_agent a(p, binary, url, "2GiB");
      fm::heap_options o;
      o.cache = objects * frame_bytes<64> / 4;
      o.agents = {a.url()};
      fm::heap h(o);
      const auto all = make_objects(h, objects);
      compare("reads over " + transport + ", data four times the cache", operations / (transport == "shm" ? 16 : 256),
              [&]() -> work_of_thread { return [&](std::uint64_t t, std::uint64_t n) { read_some(all, t, n); }; });
    }
  });
}
