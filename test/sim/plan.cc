// From a seed to a plan, and how plans lean towards mutations.
#include "plan.h"

#include <random>

namespace fm::sim {

namespace {

using namespace fm::literals;

// A mistake shows itself sooner where what it breaks happens often.
void lean_towards(detail::mutation m, plan& p) {
  using detail::mutation;
  // Somebody stops in the middle of something.
  const auto stop_for_long = [&] {
    p.scheduling.points_mean = 16;
    p.scheduling.freeze_one_in = 8;
    p.scheduling.freeze_bits_max = 22;
    p.threads = 4;
  };
  const auto cycles_are_fast = [&] {
    p.agents = 1;
    p.rest_ns = 0;
    p.breaks = p.automatic = p.verify_cycles = p.two_heaps = false;
    p.scheduling.freeze_one_in = 0;
    p.net.delay_min = 200;
    p.net.delay_max = 2'500;
    p.net.slow_one_in = p.net.control_slow_one_in = p.net.refuse_one_in = 0;
  };
  if (m == mutation::evict_without_grace || m == mutation::move_while_pinned || m == mutation::drop_open_page) {
    stop_for_long();
    p.scheduling.data_points = m != mutation::drop_open_page;
    p.cache = 16 * p.segment;
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
  } else if (m == mutation::release_dead_without_grace) {
    stop_for_long();
    p.young = 8;
    p.rest_ns = 0;
  } else if (m == mutation::stale_rescan) {
    p.trace_queue = 8;
    p.places = 200;
    p.cache = 16 * p.segment;
    p.large = false;
  } else if (m == mutation::stale_local_rescan) {
    p.places = 200;
    p.large = false;
  } else if (m == mutation::ignore_waiting_threads) {
    // A cycle begins and ends while a thread waits for an object, and other threads overwrite the reference to it. The
    // object was evicted before.
    p.favours = favour::shared;
    p.threads = 4;
    p.places = 200;
    p.cache = 16 * p.segment;
    p.young = 0;
    cycles_are_fast();
    p.net.mapped = false;
    p.net.piece_bytes = 4096;
    p.net.piece_slow_one_in = 64;
    p.net.slow_max = 5'000'000;
  } else if (m == mutation::unpin_without_log || m == mutation::believe_no_pins) {
    // Pins are given back between the look at roots and the look at frames, many times.
    p.favours = favour::pins;
    p.threads = 4;
    p.steps = 6000;
    p.cache = 48 * p.segment;
    p.pins = 4;
    p.young = 100;
    cycles_are_fast();
    p.scheduling.points_mean = 32;
  } else if (m == mutation::gather_unpinned || m == mutation::link_clean || m == mutation::queue_unrooted) {
    // Graphs are sent that are larger than what may be under way, in a cache that is small.
    p.letters = true;
    p.favours = favour::letters;
    p.post = {.part = 1024, .window_parts = 4};
    p.threads = 3;
    p.steps = 500;
    p.cache = 24 * p.segment;
    p.pins = 0;
    cycles_are_fast();
    p.young = m == mutation::queue_unrooted ? 100 : 5;
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
  } else if (m == mutation::rehome_without_grace || m == mutation::acknowledge_after_rehoming ||
             m == mutation::rehome_in_cycle) {
    // Threads stop in the middle of something while an agent is given up; much is fetched, and little is near.
    stop_for_long();
    p.cache = 16 * p.segment;
    p.net.mapped = false;
    p.death_after_ns = 100'000 + p.seed * 7919 % 3'000'000;
  } else if (m == mutation::acknowledge_before_all || m == mutation::believe_old_hints || m == mutation::import_over ||
             m == mutation::join_unfinished) {
    // Agents die while much is written and little is near, and the next one when all is whole again.
    p.agents = 3;
    p.cache = 16 * p.segment;
    p.breaks = p.automatic = p.verify_cycles = p.two_heaps = false;
    p.steps = 2500;
    p.net.refuse_one_in = 0;
    p.death_after_ns = 100'000 + p.seed * 7919 % 5'000'000;
  } else if (m == mutation::renew_in_use || m == mutation::hand_over_open || m == mutation::hand_over_unsettled ||
             m == mutation::forget_nothing_left) {
    // Agents are exchanged all the time, much is written, and little is near. The collector must get through its words.
    p.threads = 4;
    p.young = 0;
    p.rest_ns = 0;
    p.scheduling.points_mean = 64;
    p.scheduling.freeze_one_in = 64;
    p.scheduling.freeze_bits_max = 17;
    p.net.delay_min = 200;
    p.net.delay_max = 20'000;
    p.net.control_slow_one_in = 0;
    p.net.slow_one_in = 16;
    p.net.slow_max = 200'000;
    p.agents = 3;
    p.replicas = 2;
    p.changes = 150;
    p.cache = 16 * p.segment;
    p.breaks = p.verify_cycles = p.two_heaps = false;
    p.steps = 2500;
    p.net.refuse_one_in = 0;
    p.net.mapped = false;
  } else if (m == mutation::release_at_primary_only) {
    p.death_after_ns = 1'000'000'000'000;  // what is left behind is counted at the end
    p.rest_ns = 0;
    p.cache = 16 * p.segment;
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

}  // namespace

plan plan_of(std::uint64_t seed, const setting& s) {
  const faults f = s.what;
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
  p.death = f == faults::deaths || f == faults::replicas;
  p.death_after_ns = pick(100'000, 20'000'000);
  p.rest_ns = one_of({0, 0, 100'000});
  if (p.death) p.agents = pick(2, 3);
  if (f == faults::replicas) {
    p.agents = pick(2, 4) == 2 ? 2 : 3;
    p.replicas = 2;
    p.agent_memory *= 4;
    p.breaks = one_of({0, 0, 1}) != 0;
  }
  if (f == faults::members) {
    p.agents = pick(1, 3);
    p.replicas = p.agents == 1 ? 1 : pick(1, 2);
    p.agent_memory *= 4;
    p.breaks = one_of({0, 0, 1}) != 0;
    p.changes = pick(2, 40);
    p.scheduling.decisions_max *= 5;  // many tablets, of which each cycle is verified, and answers that are lost
  }
  p.talk = one_of({0, 1, 1, 1}) != 0;
  p.references_max = one_of({64, 1 << 18});
  p.home_at_the_end = one_of({0, 1}) != 0;
  p.trace_queue = one_of({8, 64, 1 << 20});
  p.automatic = one_of({0, 0, 1}) != 0;
  p.automatic_every = one_of({0, 32_KiB, 256_KiB});
  p.verify_cycles = one_of({0, 0, 0, 0, 1}) != 0;
  p.in_traversal_order = one_of({0, 1}) != 0;
  p.evacuate_all = one_of({0, 1}) != 0;
  p.two_heaps = one_of({0, 0, 0, 1}) != 0;
  if (p.two_heaps) p.agent_memory *= 2;
  p.places = one_of({16, 16, 200});
  p.large = p.cache >= 24 * p.segment;
  p.pins = p.cache / p.segment < 24 ? 0 : (p.cache / p.segment - 16) / 8;
  p.maps = one_of({0, 1}) != 0;
  p.letters = one_of({0, 0, 1}) != 0;
  p.post.part = static_cast<std::uint32_t>(one_of({1_KiB, 1_KiB, 8_KiB}));
  p.post.window_parts = static_cast<std::uint32_t>(one_of({4, 8, 64}));
  p.post.changes = one_of({0, 0, 0, 1}) != 0;
  p.post.streams = one_of({0, 1}) != 0;
  if (p.changes != 0) p.home_at_the_end = false;
  if (s.leaning != detail::mutation::none) p.letters = false;
  if (p.letters) p.agent_memory *= 2;
  lean_towards(s.leaning, p);
  // In a small cache, what is held would leave no room for what is to come.
  if (p.cache < 24 * p.segment) {
    p.large = false;
    p.pins = 0;
  }
  p.post.breaks = p.breaks;
  p.post.may_lose_agents = p.loses_agents();
  return p;
}

}  // namespace fm::sim
