#include "program.h"

#include "agent/service/service.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "mutator.h"
#include "network.h"
#include "scheduler.h"
#include "watch.h"

namespace fm::sim {

namespace {

using namespace fm::literals;

/// Everything that the seed decides, beside the order in which threads run.
struct plan {
  schedule scheduling;
  network_options net;
  std::uint64_t seed = 0, steps = 0, threads = 0, agents = 0;
  std::uint64_t cache = 0, segment = 0, agent_memory = 0, hit = 0;
  bool elastic = true, breaks = false, death = false;
  std::uint64_t break_every_ns = 0, death_after_ns = 0, rest_ns = 0;
  std::uint64_t young = 5;  ///< collections of young objects after a cycle, at most
  bool talk = true;         ///< agents to each other
  bool home_at_the_end = false;
  std::uint64_t references_max = 0;
};

// A mistake shows itself sooner where what it breaks happens often.
void lean_towards(detail::mutation m, plan& p) {
  using detail::mutation;
  if (m == mutation::evict_without_grace || m == mutation::move_while_pinned || m == mutation::drop_open_page) {
    // Somebody stops in the middle of something for long.
    p.scheduling.points_mean = 16;
    p.scheduling.freeze_one_in = 8;
    p.scheduling.freeze_bits_max = 22;
    p.scheduling.data_points = m != mutation::drop_open_page;
    p.cache = 16 * p.segment;
    p.threads = 4;
    if (m == mutation::drop_open_page) p.hit = 4_KiB;
  } else if (m == mutation::return_slots_early) {
    // The new object is stored before the slow message that releases its slot: of few slots, in a small cache.
    p.net.control_slow_one_in = 3;
    p.net.slow_max = 2'000'000;
    p.net.delay_max = 2'500;
    p.rest_ns = 0;
    p.young = 0;  // they return no slot that an agent could have to forget
    p.cache = 16 * p.segment;
    p.agents = 1;
    p.steps = 1500;
  } else if (m == mutation::clean_when_copied) {
    p.net.refuse_one_in = 8;
  } else if (m == mutation::one_round || m == mutation::acknowledge_references_early) {
    // Agents have much to say to each other, and nothing else goes wrong.
    p.talk = p.home_at_the_end = true;
    p.breaks = false;
    p.agents = 3;
    p.cache = 16 * p.segment;
    p.net.refuse_one_in = 0;
    p.young = 0;
    // Who traces stops in the middle of it, and messages are fast.
    p.scheduling.freeze_one_in = 4;
    p.scheduling.freeze_bits_max = 17;
    p.net.delay_min = 200;
    p.net.delay_max = 2'500;
    p.net.slow_one_in = p.net.control_slow_one_in = 0;
    // Who traces stops in the middle of it, and messages are fast.
    p.scheduling.freeze_one_in = 4;
    p.scheduling.freeze_bits_max = 17;
    p.net.delay_min = 200;
    p.net.delay_max = 2'500;
    p.net.slow_one_in = p.net.control_slow_one_in = 0;
  } else if (m == mutation::rehome_without_grace || m == mutation::acknowledge_after_rehoming ||
             m == mutation::rehome_in_cycle) {
    // Threads stop in the middle of something while an agent is given up; much is fetched, and little is near.
    p.scheduling.points_mean = 16;
    p.scheduling.freeze_one_in = 8;
    p.scheduling.freeze_bits_max = 22;
    p.cache = 16 * p.segment;
    p.threads = 4;
    p.net.mapped = false;
    p.death_after_ns = 100'000 + p.seed * 7919 % 3'000'000;
  } else if (m == mutation::read_past_acknowledged) {
    p.elastic = true;
    p.net.mapped = false;
    p.net.piece_bytes = 64;
    p.net.piece_slow_one_in = 32;
    p.net.delay_min = 200;
    p.net.delay_max = 2'500;
    p.net.slow_one_in = 4;
    p.net.slow_max = 1'000'000;
    p.agents = 1;
  } else if (m == mutation::retire_while_read) {
    p.net.piece_bytes = 64;
    p.net.piece_slow_one_in = 16;
    p.net.slow_max = 20'000'000;
    p.agents = 1;
    p.agent_memory = 10 * 64_KiB;
    p.steps = 1200;
  }
}

plan plan_of(std::uint64_t seed, faults f) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + 11);
  const auto pick = [&](std::uint64_t from, std::uint64_t to) { return from + random() % (to - from + 1); };
  const auto one_of = [&](std::initializer_list<std::uint64_t> from) { return from.begin()[random() % from.size()]; };
  plan p;
  p.seed = seed;
  p.scheduling.seed = random();
  p.scheduling.points_mean = static_cast<std::uint32_t>(one_of({16, 32, 64, 128, 512}));
  p.scheduling.freeze_one_in = static_cast<std::uint32_t>(one_of({0, 8, 32, 256}));
  p.scheduling.freeze_bits_max = static_cast<std::uint32_t>(pick(14, 23));
  p.scheduling.data_points = one_of({0, 0, 1}) != 0;
  p.net.delay_min = one_of({200, 2'000});
  p.net.delay_max = one_of({2'500, 20'000, 100'000});
  p.net.slow_one_in = static_cast<std::uint32_t>(one_of({0, 16, 128}));
  p.net.slow_max = one_of({200'000, 2'000'000, 10'000'000});
  p.net.control_slow_one_in = static_cast<std::uint32_t>(one_of({0, 0, 8}));
  p.net.piece_bytes = static_cast<std::uint32_t>(one_of({64, 256, 4096}));
  p.net.piece_slow_one_in = static_cast<std::uint32_t>(one_of({0, 32, 256}));
  p.net.repeat_one_in = static_cast<std::uint32_t>(one_of({0, 4}));
  p.net.refuse_one_in = static_cast<std::uint32_t>(one_of({0, 0, 40}));
  p.net.mapped = one_of({0, 1}) != 0;
  p.steps = pick(500, 1500);
  p.threads = pick(2, 4);
  p.agents = pick(1, 3);
  p.segment = one_of({4_KiB, 8_KiB});
  p.cache = p.segment * pick(16, 40);
  p.agent_memory = pick(16, 64) * 64_KiB;
  p.hit = one_of({0, 0, 4_KiB, 8_KiB});
  p.elastic = one_of({0, 1, 1}) != 0;
  p.breaks = f != faults::some || one_of({0, 1}) != 0;
  p.break_every_ns = f == faults::some ? pick(1'000'000, 20'000'000) : pick(100'000, 3'000'000);
  p.death = f == faults::deaths;
  p.death_after_ns = pick(100'000, 20'000'000);
  p.rest_ns = one_of({0, 0, 100'000});
  if (p.death) p.agents = pick(2, 3);
  p.talk = one_of({0, 1, 1, 1}) != 0;
  p.references_max = one_of({64, 1 << 18});
  p.home_at_the_end = one_of({0, 1}) != 0;
  lean_towards(detail::chosen_mutation, p);
  return p;
}

struct agent {
  std::string host;
  std::unique_ptr<fm::agent::store> store;
};

std::unique_ptr<fm::agent::store> make_store(const plan& p, const std::string& name) {
  fm::agent::store_options o;
  o.memory_bytes = p.agent_memory;
  o.region_bytes = 64_KiB;
  o.trace_nice = 0;
  o.trace_references_max = p.references_max;
  o.peer_schemes = {"sim"};
  o.peers_beyond_host = true;
  o.name = name;
  return fm::agent::store::create(o);
}

/// What goes wrong beside the program, on a thread of its own.
class bad_luck {
 public:
  bad_luck(const plan& p, std::vector<agent>& agents) : plan_(p), agents_(agents), thread_([this] { run(); }) {}
  ~bad_luck() { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    name_thread("bad-luck");
    const moment death = now() + plan_.death_after_ns;
    while (!stop_ && (plan_.breaks || (plan_.death && !dead_))) {
      sleep_until(now() + 1 + random() % (2 * plan_.break_every_ns));
      if (plan_.breaks && !stop_ && breaks_ < breaks_max) {
        ++breaks_;
        network::get().break_one();
      }
      if (!plan_.death || dead_ || now() < death) continue;
      dead_ = true;
      agent& a = agents_[random() % agents_.size()];
      network::get().remove(a.host);
      a.store.reset();
      if (!one_in(2)) continue;
      // One that knows nothing comes in its place.
      a.store = make_store(plan_, a.host);
      network::get().add(a.host, *a.store);
    }
  }
  const plan& plan_;
  std::vector<agent>& agents_;
  std::atomic<bool> stop_{false};
  static constexpr int breaks_max = 50;  // then there is peace, or nothing would ever end
  int breaks_ = 0;
  bool dead_ = false;
  std::thread thread_;
};

// A run that went wrong ends where it is: other threads are in the middle of something.
[[noreturn]] void give_up(const std::string& what) {
  const outcome o = so_far();
  fmt::print(stderr, "simulation: {}, at {} ns after {} decisions\n", what, o.at, o.decisions);
  std::fflush(stderr);
  ::_exit(1);
}
void require(bool holds, const std::string& what) {
  if (!holds) give_up(what);
}

void verify(heap& h) {
  errc e = errc::ok;
  // A batch that was refused at the very end is told of now.
  for (int attempt = 0; attempt < 3; ++attempt)
    if ((e = h.evict_all()) == errc::ok) break;
  require(e == errc::ok, fmt::format("evicting everything: {}", to_string(e)));
  const undisturbed by_others;
  const verify_report v = h.verify();
  require(v.ok(), v.messages.empty() ? "verify" : v.messages.front());
}

struct hop {
  ref<hop> next;
};

/// A list of which every element is stored with another agent than the one before.
ptr<hop> back_and_forth(heap& h, std::uint64_t agents) {
  constexpr std::size_t of_each = 12, most = 1 << 14;
  std::vector<std::vector<ptr<hop>>> all(agents);
  const auto have_all = [&] {
    return std::all_of(all.begin(), all.end(), [](const auto& some) { return some.size() == of_each; });
  };
  for (std::size_t made = 0; made < most && !have_all(); ++made) {
    ptr<hop> p = h.make<hop>();
    auto& some = all[detail::tablet_info_of(p.slot()).agent.load(std::memory_order_relaxed)];
    if (some.size() < of_each) some.push_back(std::move(p));
  }
  ptr<hop> first;
  for (const auto& some : all)
    for (std::size_t i = 0; i < some.size(); ++i) {
      // The ith of one agent, then the ith of the next one.
      const auto& next = &some == &all.back() ? all.front() : (&some)[1];
      const std::size_t at = &some == &all.back() ? i + 1 : i;
      if (at < next.size()) some[i].write()->next = next[at];
      if (!first) first = some[i];
    }
  return first;
}

std::string run_heap(const plan& p, std::vector<agent>& agents) {
  std::vector<std::string> urls;
  for (const agent& a : agents) urls.push_back("sim://" + a.host);
  heap h({.cache = p.cache,
          .agents = urls,
          .name = "sim",
          .segment = p.segment,
          .slots = 1ull << 24,
          .hit = p.hit,
          .collect = false,
          .agents_talk = p.talk,
          .elastic = p.elastic,
          .access_within = p.death ? std::chrono::seconds(2) : std::chrono::seconds(100),
          .memory_within = p.death ? std::chrono::milliseconds(5) : std::chrono::milliseconds(100'000),
          .reconnect_within = p.death ? std::chrono::milliseconds(100) : std::chrono::seconds(100)});
  watch_as_asked();
  shared_array shared = h.array<ref<node>>(shared_places);
  std::vector<std::unique_ptr<mutator>> work;
  for (std::uint64_t t = 0; t < p.threads; ++t)
    work.push_back(std::make_unique<mutator>(h, shared, t, p.seed, p.death));
  bad_luck luck(p, agents);
  std::atomic<std::uint64_t> working{p.threads};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < p.threads; ++t)
    threads.emplace_back([&, t] {
      name_thread("mutator");
      try {
        for (std::uint64_t i = 0; i < p.steps; ++i) work[t]->step();
        work[t]->compare_all();
      } catch (const std::exception& e) {
        give_up(e.what());
      }
      --working;
    });
  std::uint64_t cycles = 0, freed = 0, failed = 0, died_young = 0, remote_references = 0, sent = 0, peers_lost = 0;
  while (working != 0) {
    const cycle_report r = h.collect("always");
    require(r.ok() || p.death, r.text());
    ++cycles;
    freed += r.freed;
    failed += !r.ok();
    for (const cycle_part& part : r.agents) {
      remote_references += part.remote_references;
      sent += part.references_sent;
      peers_lost += part.peers_lost;
    }
    for (std::uint64_t n = random() % (p.young + 1); n != 0 && working != 0; --n) {
      const cycle_report young = h.collect_young("in between");
      require(young.ok() || p.death || young.status == errc::timed_out, young.text());
      died_young += young.freed;
    }
    if (p.rest_ns != 0) sleep_until(now() + random() % p.rest_ns);
  }
  for (std::thread& t : threads) t.join();
  luck.end();
  network::get().options.refuse_one_in = 0;

  // With everybody still, a cycle marks exactly what the shadows reach. With everything at home, agents do most of it.
  ptr<hop> hops;
  if (p.home_at_the_end && !p.death) {
    hops = back_and_forth(h, p.agents);
    (void)h.evict_all();
  }
  const cycle_report last = h.collect("at the end");
  for (const cycle_part& part : last.agents) sent += part.references_sent;
  if (!p.death) {
    require(last.ok(), last.text());
    std::uint64_t reachable = 1;  // the shared array
    for (ptr<hop> at = hops; at; at = at->next) ++reachable;
    for (const auto& w : work) reachable += w->reachable;
    {
      const auto places = shared.read();
      for (std::size_t i = 0; i < places->size(); ++i) reachable += (*places)[i] ? 2 : 0;
    }
    require(last.marked == reachable,
            fmt::format("{} objects are marked at the end, and {} are reachable", last.marked, reachable));
    verify(h);
  }
  for (const auto& w : work) w->compare_all();
  std::uint64_t locked = 0, gone = 0, lost = 0;
  for (const auto& w : work) {
    locked += w->locked;
    gone += w->gone;
    lost += w->failed;
  }
  const heap_stats s = h.stats();
  const network::counters& n = network::get().counts;
  return fmt::format(
      "{} threads, {} agents; {} objects made, {} freed in {} cycles ({} failed), {} young, weak {} locked {} gone; "
      "{} remote references through the owner, {} to agents, {} not reached; {} written, "
      "{} misses, {} by slot, {} neighbours, {} relocations; {} regions retired, {} pages given back; {} requests, {} "
      "repeated, {} breaks, {} answers lost, {} steps failed",
      p.threads, p.agents, s.allocated_objects, freed, cycles, failed, died_young, locked, gone, remote_references,
      sent, peers_lost, s.written_objects, s.misses, s.misses_by_slot, s.elastic_installs, s.relocations,
      s.regions_retired, s.hit_pages_given_back, n.requests, n.repeated, n.breaks, n.lost_on_the_way, lost);
}

}  // namespace

std::string run_program(std::uint64_t seed, faults f) {
  const plan p = plan_of(seed, f);
  spdlog::set_level(spdlog::level::off);
  start(p.scheduling);
  name_thread("main");
  network::get().options = p.net;
  std::string text;
  {
    std::vector<agent> agents;
    for (std::uint64_t i = 0; i < p.agents; ++i) {
      const std::string host = "agent" + std::to_string(i);
      agents.push_back({host, make_store(p, host)});
      network::get().add(agents.back().host, *agents.back().store);
    }
    try {
      text = run_heap(p, agents);
    } catch (const std::exception& e) {
      give_up(e.what());
    }
    for (const agent& a : agents) network::get().remove(a.host);
  }
  const outcome o = so_far();
  finish();
  return fmt::format("{}; {} decisions, {:.3f} ms, trace {:016x}", text, o.decisions, double(o.at) / 1e6, o.hash);
}

}  // namespace fm::sim
