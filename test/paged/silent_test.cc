// Agents that do not answer: accesses to their pages wait, and no others do.
#include <algorithm>
#include <atomic>

#include "fixture.h"

using namespace paged_test;

namespace {

constexpr std::size_t stripe = 64_KiB;  // stripes go round the agents

/// Two agents over tcp, with the range's bytes at home on both, and nothing here.
struct two_agents {
  explicit two_agents(const std::function<void(paged_options&)>& change) : w("tcp", 2) {
    w.o.access_within = w.o.reconnect_within = std::chrono::minutes(10);
    w.o.read_ahead = 0;  // what is fetched is what somebody waits for
    change(w.o);
    p.emplace(w.o);
    for (std::size_t i = 0; i < p->size(); ++i) p->data()[i] = byte_at(i);
    p->evict_all();
  }
  static std::byte byte_at(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }
  /// The `i`th page of an agent, each of a block of its own.
  [[nodiscard]] std::size_t page_of(std::size_t agent, std::size_t i) const {
    const std::size_t blocks = stripe / w.o.block;
    return (2 * (i / blocks) + agent) * stripe + i % blocks * w.o.block;
  }
  [[nodiscard]] std::size_t pages() const { return p->size() / 2 / w.o.block; }

  world w;
  std::optional<paged> p;
};

/// Threads of which each reads a byte.
class readers {
 public:
  void read(const std::byte* at, std::byte expected) {
    threads_.emplace_back([this, at, expected] {
      if (*const_cast<const volatile std::byte*>(at) != expected) ++wrong_;
      ++done_;
    });
  }
  [[nodiscard]] int done() const { return done_.load(); }
  /// How many read something else.
  int join() {
    for (auto& t : threads_) t.join();
    threads_.clear();
    return wrong_.load();
  }

 private:
  std::vector<std::thread> threads_;
  std::atomic<int> done_{0}, wrong_{0};
};

bool reaches(paged& p, std::uint64_t faults_remote) {
  for (const auto until = clock::now() + std::chrono::minutes(2); clock::now() < until; std::this_thread::yield())
    if (p.stats().faults_remote >= faults_remote) return true;
  return false;
}

}  // namespace

TEST_CASE("while many accesses wait for an agent that is silent, those to another agent's pages are served") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    two_agents t([&](paged_options& o) { o.faults = mode; });
    agent_test::process& silent = *t.w.live[1]->program;
    silent.stop();
    readers waiting;
    constexpr std::size_t n = 20;  // of two fault threads, and of 24 fetches of one agent
    const std::uint64_t before = t.p->stats().faults_remote;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = t.page_of(1, i);
      waiting.read(t.p->data() + at, two_agents::byte_at(at));
    }
    const bool all_at_it = reaches(*t.p, before + n);
    // All of the healthy agent's pages, which are more than there is room for; some are written, and so written back.
    std::size_t right = 0;
    if (all_at_it)
      for (int round = 0; round < 2; ++round)
        for (std::size_t i = 0; i < t.pages(); ++i) {
          const std::size_t at = t.page_of(0, i);
          right += t.p->data()[at] == two_agents::byte_at(at);
          if (i % 3 == 0) t.p->data()[at + 1] = two_agents::byte_at(at + 1);
        }
    const int done = waiting.done();
    silent.send(SIGCONT);
    CHECK(all_at_it);
    CHECK(right == 2 * t.pages());
    CHECK(done == 0);
    CHECK(waiting.join() == 0);
    t.p->evict_all();
    CHECK(t.p->verify().empty());
    CHECK(std::all_of(t.p->data(), t.p->data() + t.p->size(),
                      [&, i = std::size_t{0}](std::byte b) mutable { return b == two_agents::byte_at(i++); }));
  }
}

TEST_CASE("accesses that find no fetch slot leave the room to others, and have their turn") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    two_agents t([&](paged_options& o) { o.faults = mode; });
    agent_test::process& silent = *t.w.live[1]->program;
    silent.stop();
    readers waiting;
    constexpr std::size_t n = 60, slots = 24;  // more than there are blocks of local memory, and slots of one agent
    const std::uint64_t before = t.p->stats().faults_remote;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = t.page_of(1, i);
      waiting.read(t.p->data() + at, two_agents::byte_at(at));
    }
    const bool all_taken = reaches(*t.p, before + slots);
    std::size_t right = 0;
    for (std::size_t i = 0; all_taken && i < t.pages(); ++i) {
      const std::size_t at = t.page_of(0, i);
      right += t.p->data()[at] == two_agents::byte_at(at);
    }
    const int done = waiting.done();
    silent.send(SIGCONT);
    CHECK(all_taken);
    CHECK(right == t.pages());
    CHECK(done == 0);
    CHECK(waiting.join() == 0);
    CHECK(t.p->stats().failed == 0);
    CHECK(t.p->verify().empty());
  }
}

// A position in an agent's line can be left at any time. The later ones of these accesses are in places that others had
// before, so they are looked at first.
TEST_CASE("accesses that another agent can serve leave the line of a silent one in any order", "[replicas]") {
  if (modes().front() != fault_mode::threads) return;
  world w("tcp", 4);
  w.o.replicas = 2;
  w.o.access_within = w.o.reconnect_within = std::chrono::minutes(10);
  w.o.suspect_within = std::chrono::seconds(1);
  w.o.read_ahead = 0;
  w.o.elastic = false;
  paged p(w.o);
  std::memset(p.data(), 7, p.size());
  p.evict_all();
  constexpr std::size_t slots = 8, more = 20;  // of one agent; than these
  // The first member of each stripe goes round the agents, and is the one that is asked while it answers.
  const auto read = [&](readers& by, std::size_t agent, std::size_t first, std::size_t n) {
    const std::size_t each = stripe / w.o.block;
    for (std::size_t i = first; i < first + n; ++i)
      by.read(p.data() + (4 * (i / each) + agent) * stripe + i % each * w.o.block, std::byte{7});
  };
  const auto take_slots = [&](readers& by, std::size_t agent, std::size_t n) {
    const std::uint64_t before = p.stats().faults_remote;
    w.live[agent]->program->stop();
    read(by, agent, 0, n);
    CHECK(reaches(p, before + slots));
  };
  readers of_silent, of_other;
  take_slots(of_silent, 0, slots);
  take_slots(of_other, 1, more);
  read(of_silent, 0, slots, more);
  w.live[1]->program->send(SIGCONT);
  CHECK(of_other.join() == 0);
  read(of_silent, 0, slots + more, more);
  CHECK(of_silent.join() == 0);  // by others, as soon as it is silent
  w.live[0]->program->send(SIGCONT);
  std::memset(p.data(), 7, p.size());
  p.evict_all();
  // It has answered, so it is asked again, and has a line that moves.
  take_slots(of_silent, 0, more);
  w.live[0]->program->send(SIGCONT);
  CHECK(of_silent.join() == 0);
  CHECK(p.stats().failed == 0);
  CHECK(p.verify() == "");
}

TEST_CASE("accesses that wait for a silent agent fail at their deadline, each by itself") {
  if (modes().front() != fault_mode::threads) return;
  std::atomic<int> asked{0};
  std::string silent_one;
  two_agents t([&](paged_options& o) {
    o.access_within = std::chrono::milliseconds(500);
    silent_one = o.agents[1];
    o.on_failure = [&](const fault_failure& f) {
      if (silent_one == f.agent) ++asked;
      return fault_action::retry;
    };
  });
  agent_test::process& silent = *t.w.live[1]->program;
  silent.stop();
  readers waiting;
  constexpr int n = 8;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = t.page_of(1, i);
    waiting.read(t.p->data() + at, two_agents::byte_at(at));
  }
  std::size_t right = 0, read = 0;
  const auto until = clock::now() + std::chrono::minutes(2);
  while (asked.load() < 3 * n && clock::now() < until)
    for (std::size_t i = 0; i < t.pages(); ++i, ++read) {
      const std::size_t at = t.page_of(0, i);
      right += t.p->data()[at] == two_agents::byte_at(at);
    }
  const int done = waiting.done();
  silent.send(SIGCONT);
  CHECK(asked.load() >= 3 * n);  // each waits by itself, so none is asked about more often than the others
  CHECK(done == 0);
  CHECK(right == read);
  CHECK(waiting.join() == 0);
  CHECK(t.p->stats().failed >= 2 * n);
  CHECK(t.p->verify().empty());
}

TEST_CASE("eviction goes on while an agent that is silent is asked for a region") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    world w("tcp", 2);
    w.o.access_within = w.o.reconnect_within = std::chrono::minutes(10);
    w.o.read_ahead = 0;
    w.o.faults = mode;
    paged p(w.o);
    agent_test::process& silent = *w.live[1]->program;
    silent.stop();
    // The oldest blocks are the silent agent's, which has no region for them yet; the other one's are more than there
    // is room for.
    const auto fill = [&](std::size_t agent, std::size_t blocks) {
      for (std::size_t i = 0; i < blocks; ++i) {
        const std::size_t each = stripe / w.o.block, at = (2 * (i / each) + agent) * stripe + i % each * w.o.block;
        std::memset(p.data() + at, static_cast<int>(i + 1), w.o.block);
      }
    };
    fill(1, 4);
    std::atomic<bool> done{false};
    std::thread writer([&] {
      fill(0, p.size() / 2 / w.o.block);
      done = true;
    });
    for (const auto until = clock::now() + std::chrono::minutes(2); !done && clock::now() < until;)
      std::this_thread::yield();
    const bool in_time = done;
    silent.send(SIGCONT);
    writer.join();
    CHECK(in_time);
    p.evict_all();
    CHECK(p.verify().empty());
    std::size_t right = 0;
    for (std::size_t i = 0; i < 4; ++i) right += p.data()[stripe + i * w.o.block] == static_cast<std::byte>(i + 1);
    CHECK(right == 4);
  }
}

TEST_CASE("reading ahead passes over the blocks of an agent that is silent") {
  two_agents t([](paged_options& o) { o.faults = modes().front(); });
  agent_test::process& silent = *t.w.live[1]->program;
  const std::uint64_t before = t.p->stats().ahead_bytes;
  silent.stop();
  // The silent agent's stripe comes first. No more than is prefetched together: a quarter of the local memory.
  const std::size_t first = t.page_of(1, 0);
  t.p->prefetch({t.p->data() + first, 2 * stripe});
  bool read = false;
  for (const auto until = clock::now() + std::chrono::minutes(2); !read && clock::now() < until;) {
    read = t.p->stats().ahead_bytes >= before + stripe;
    std::this_thread::yield();
  }
  const std::uint64_t remote = t.p->stats().faults_remote;
  std::size_t right = 0;
  for (std::size_t at = first + stripe; read && at < first + 2 * stripe; at += t.w.o.block)
    right += t.p->data()[at] == two_agents::byte_at(at);
  const std::uint64_t fetched = t.p->stats().faults_remote - remote;
  silent.send(SIGCONT);
  CHECK(read);
  CHECK(right == stripe / t.w.o.block);
  CHECK(fetched == 0);
  // Late blocks have come meanwhile, or come with the touch.
  for (std::size_t at = first; at < first + stripe; at += t.w.o.block)
    CHECK(t.p->data()[at] == two_agents::byte_at(at));
  CHECK(t.p->verify().empty());
}

TEST_CASE("with so many agents that each has one fetch, those that are silent leave some") {
  world w("tcp", 1);
  const std::string one = w.o.agents[0];
  w.o.agents.assign(40, one);
  w.o.local = 8 * w.o.block;
  const auto refused = [&] {
    try {
      paged p(w.o);
    } catch (const error& e) {
      return e.code() == errc::invalid_argument;
    }
    return false;
  };
  CHECK(refused());  // each fetch has a block of local memory
  w.o.local = 52 * w.o.block;
  CHECK_NOTHROW(paged(w.o));
}
