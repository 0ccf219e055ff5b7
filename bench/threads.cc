// Thousands of threads that have used a heap and sleep, such as one for each connection of a server: the memory that each
// keeps for itself, and what others' operations cost beside them.
#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "support/managed.h"

namespace {

using namespace fm::bench;

constexpr int working = 4;

struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

/// Threads that make an object and read another one, and sleep until this is destroyed.
class idle_threads {
 public:
  idle_threads(fm::heap& h, const std::vector<fm::ptr<record>>& objects, std::uint64_t n) : all_of_them_(n) {
    all_.reserve(n);
    for (std::uint64_t i = 0; i < n; ++i)
      all_.emplace_back([this, &h, &objects, i] {
        const fm::ptr<record> own = h.make<record>({.id = i});
        keep(objects[i * 7919 % objects.size()]->id);
        std::unique_lock lock(mutex_);
        if (++asleep_ == all_of_them_) all_asleep_.notify_one();
        wake_up_.wait(lock, [this] { return over_; });
      });
    std::unique_lock lock(mutex_);
    all_asleep_.wait(lock, [&] { return asleep_ == n; });
  }
  ~idle_threads() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_up_.notify_all();
    for (std::thread& t : all_) t.join();
  }
  idle_threads(const idle_threads&) = delete;
  idle_threads& operator=(const idle_threads&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable all_asleep_, wake_up_;  // two: the sleepers are not woken by each that lies down
  const std::uint64_t all_of_them_;
  std::uint64_t asleep_ = 0;
  bool over_ = false;
  std::vector<std::thread> all_;
};

/// Each of a few threads does so many operations: it reads random objects, writes every tenth, and makes one now and
/// then. Operations a second.
turn use(fm::heap& h, const std::vector<fm::ptr<record>>& objects, std::uint64_t operations) {
  return rate(double(operations) * working, 1e6, [&] {
    std::vector<std::thread> all;
    for (int t = 0; t < working; ++t)
      all.emplace_back([&, t] {
        std::mt19937_64 random(std::uint64_t(t) + 1);
        for (std::uint64_t i = 0; i < operations; ++i) {
          const fm::ptr<record>& object = objects[random() % objects.size()];
          if (i % 10 == 0)
            ++object.write()->words[0];
          else
            keep(object->id);
          if (i % 100 == 0) keep(h.make<record>({.id = i}));
        }
      });
    for (std::thread& t : all) t.join();
  });
}

}  // namespace

int main(int argc, char** argv) {
  program p("threads", "Thousands of threads that sleep after they have used a heap");
  std::string binary;
  p.option("--agent", binary, "the farmem-agent to run");
  std::uint64_t idle = 0;
  p.option("--idle", idle, "threads that sleep; 0: 5000");
  p.parse(argc, argv);
  if (idle == 0) idle = p.sized<std::uint64_t>(5'000, 200);
  const auto objects = p.sized<std::uint64_t>(400'000, 20'000);
  const auto operations = p.sized<std::uint64_t>(500'000, 10'000);
  return p.run([&] {
    for (const auto& [transport, url] : transports()) {
      const std::vector<std::pair<std::string, std::string>> parameters{{"idle", std::to_string(idle)},
                                                                        {"transport", transport}};
      const counted_agent a(p, binary, url, "4GiB");
      fm::heap_options o;
      o.cache = objects * frame_bytes<sizeof(record)> / 2;
      o.agents = {a.url()};
      fm::heap h(o);
      std::vector<fm::ptr<record>> all;
      for (std::uint64_t i = 0; i < objects; ++i) all.push_back(h.make<record>({.id = i}));
      {
        const idle_threads asleep(h, all, idle);
        const fm::heap_stats s = h.stats();
        p.measure({"own_bytes", parameters, "B/thread"}, double(s.thread_bytes) / double(s.threads));
        // An eighth of the cache, and 1 KiB a thread.
        const double goal = 1.0 / 8 + double(s.threads) * 1024 / double(s.cache_bytes);
        p.measure({"share_of_cache", parameters, "", {goal_kind::value_at_most, goal}},
                  double(s.thread_bytes) / double(s.cache_bytes));
      }
      p.compare(
          {"operations", parameters, "M/s", {goal_kind::ratio_at_least, 0.9}, "without them"},
          [&] {
            const idle_threads asleep(h, all, idle);
            return use(h, all, operations);
          },
          [&] { return use(h, all, operations); });
    }
  });
}
