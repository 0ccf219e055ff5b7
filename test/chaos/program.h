// The program of a chaos round: threads that make, read, write, link and replace objects, and an oracle that knows what
// each of them must hold.
//
// An access ends in one of two ways: it sees exactly what the oracle says, or it throws a typed error that the world
// explains. `agent_lost` is explained by the death of the agent that kept the object; an object of an agent that never
// died is never lost. An object that was lost stays lost. Everything else is a fault. With replicas nothing is ever lost.
//
// Whoever reads or writes an item holds the lock of its number, so that the oracle is exact.
#pragma once

#include <farmem/farmem.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "agents.h"
#include "stress/shadow.h"

namespace chaos {

struct item {
  std::uint64_t number = 0;
  std::uint64_t birth = 0;
  std::uint64_t version = 0;
  fm::ref<item> partner;
  std::array<std::uint64_t, 10> words{};
  std::uint64_t check = 0;
};

/// The root of a heap that one program leaves to the next.
struct kept_items {
  fm::ref<fm::vector<fm::ref<item>>> all;
};

struct plan {
  std::uint32_t items = 20'000;
  int threads = 4;
  std::uint64_t seed = 1;
  bool has_replicas = false;  ///< then no death explains an error
};

/// How operations ended that did not see the right data.
struct counters {
  std::atomic<std::uint64_t> lost{0};     ///< objects found lost
  std::atomic<std::uint64_t> refused{0};  ///< operations that ended in another typed error
};

class program {
 public:
  program(fm::heap& h, const plan& p, const std::vector<std::unique_ptr<chaos_agent>>& agents);
  ~program();
  program(const program&) = delete;
  program& operator=(const program&) = delete;

  /// Makes all items. Throws what the heap throws.
  void build();
  void begin();
  /// Ends the threads. Afterwards nobody uses the heap but the caller.
  void end();
  /// The threads end, `detach` leaves the heap with all items under a root, and threads go on in the one that `attach` gives.
  void change_heap(const std::function<void(const fm::ptr<kept_items>&)>& detach,
                   const std::function<fm::attached_heap<kept_items>&()>& attach);
  /// Reads every item once.
  void compare();
  /// Makes arrays until the agents or the cache are full; true if they were. Then drops them.
  bool fill(std::uint64_t bytes_max);

  /// Operations that ended with the right data, of each thread. Thread-safe.
  [[nodiscard]] std::vector<std::uint64_t> progress() const;
  /// Waits until all threads together have ended so many more operations well, or `most` has passed. Operations a second
  /// meanwhile. Thread-safe.
  double rate(std::uint64_t operations, fm::duration most);

  counters done;
  stress::faults wrong;

 private:
  struct edge {
    std::uint32_t number = 0;
    std::uint64_t birth = 0;  ///< 0: null
    std::uint32_t agent = 0;
  };
  struct record {
    fm::ptr<item> object;
    std::uint64_t birth = 0, version = 0;
    std::uint32_t agent = 0;  ///< that granted the object's number when it was made
    bool lost = false;
    edge partner;
  };
  struct alignas(64) tally {
    std::atomic<std::uint64_t> well{0};
  };

  void work(int thread);
  void step(std::mt19937_64& random);
  void make(std::uint32_t number);
  void read(std::uint32_t number);
  void write(std::uint32_t number);
  void link(std::uint32_t number, std::uint32_t to);
  void follow(std::uint32_t number);
  void check(const item& i, std::uint32_t number, const char* who);
  /// Runs an access of the item and judges the error that it ended with. The lock of the item is held.
  template <class Access>
  bool judged(std::uint32_t number, const char* who, Access&& access);
  [[nodiscard]] bool may_be_lost(std::uint32_t agent_at_birth, fm::detail::slot_t slot) const;

  fm::heap* heap_;
  plan plan_;
  const std::vector<std::unique_ptr<chaos_agent>>& agents_;
  std::vector<record> items_;
  stress::stripes locks_;
  std::vector<tally> tallies_;
  std::mutex mutex_;
  std::condition_variable got_on_;  ///< some operations have ended
  std::vector<std::thread> threads_;
  std::atomic<bool> ending_{false};
};

}  // namespace chaos
