#include "program.h"

#include "agent/service/service.h"
#include "cache/object_cache.h"
#include "heap/heap_core.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <set>
#include <thread>

#include "members.h"
#include "mutator.h"
#include "network.h"
#include "plan.h"
#include "scheduler.h"
#include "watch.h"

namespace fm::sim {

namespace {

using namespace fm::literals;

/// What goes wrong beside the program, on a thread of its own.
class bad_luck {
 public:
  /// `is_whole`: no object would be lost if one more agent died.
  bad_luck(const plan& p, std::vector<agent>& agents, std::function<bool()> is_whole)
      : plan_(p), agents_(agents), is_whole_(std::move(is_whole)), thread_([this] { run(); }) {}
  ~bad_luck() { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::uint64_t dead() const noexcept { return dead_; }

 private:
  void run() {
    name_thread("bad-luck");
    const moment death = now() + plan_.death_after_ns;
    while (!stop_ && (plan_.breaks || may_die())) {
      sleep_until(now() + 1 + random() % (2 * plan_.break_every_ns));
      if (plan_.breaks && !stop_ && breaks_ < breaks_max) {
        ++breaks_;
        network::get().break_one();
      }
      // With replicas: a set that is short of one, because an agent was silent when it was made, would lose objects.
      if (!may_die() || now() < death || ((plan_.replicas > 1 || dead_ != 0) && !is_whole_())) continue;
      ++dead_;
      std::size_t which = random() % agents_.size();
      while (has_died_[which]) which = (which + 1) % agents_.size();
      has_died_[which] = true;
      agent& a = agents_[which];
      network::get().remove(a.host);
      a.store.reset();
      if (!one_in(2)) continue;
      // One that knows nothing comes in its place.
      a.store = make_store(plan_, a.host);
      network::get().add(a.host, *a.store);
    }
  }
  // One, or all but one where each death is made good before the next.
  [[nodiscard]] bool may_die() const noexcept {
    return plan_.death && dead_ < (plan_.replicas > 1 ? plan_.agents - 1 : 1);
  }
  const plan& plan_;
  std::vector<agent>& agents_;
  const std::function<bool()> is_whole_;
  std::atomic<bool> stop_{false};
  static constexpr int breaks_max = 50;  // then there is peace, or nothing would ever end
  int breaks_ = 0;
  std::atomic<std::uint64_t> dead_ = 0;
  std::array<bool, 8> has_died_{};
  std::thread thread_;
};

// A run that went wrong ends where it is: other threads are in the middle of something.
[[noreturn]] void give_up(ending e, const std::string& what) {
  const outcome o = so_far();
  fmt::print(stderr, "simulation: {}: {}, at {} ns after {} decisions\n", name_of(e), what, o.at, o.decisions);
  std::fflush(stderr);
  ::_exit(exit_status(e));
}
/// Of what was thrown and nobody expects.
[[noreturn]] void give_up(const std::exception& e) {
  give_up(dynamic_cast<const disagreement*>(&e) != nullptr ? ending::finding : ending::error, e.what());
}
void require(bool holds, const std::string& what, ending otherwise = ending::finding) {
  if (!holds) give_up(otherwise, what);
}
void require(const cycle_report& r, bool may_fail) {
  require(r.faults == 0, r.text());
  require(r.ok() || may_fail, r.text(), r.status == errc::corrupt ? ending::finding : ending::error);
}

[[noreturn]] void pretend(ending e) {
  switch (e) {
    case ending::check: FM_CHECK(e == ending::passed, "a check that fails as it should"); [[fallthrough]];
    case ending::crash: ::raise(SIGSEGV); [[fallthrough]];
    case ending::alarm: ::raise(SIGALRM); [[fallthrough]];
    default: give_up(e, "as it was pretended");
  }
}

void verify(heap& h) {
  errc e = errc::ok;
  // A batch that was refused at the very end is told of now.
  for (int attempt = 0; attempt < 3; ++attempt)
    if ((e = h.evict_all()) == errc::ok) break;
  require(e == errc::ok, fmt::format("evicting everything: {}", to_string(e)), ending::error);
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

heap_options options_of(const plan& p, const std::vector<agent>& agents, const char* name) {
  std::vector<std::string> urls;
  for (const agent& a : agents) urls.push_back("sim://" + a.host);
  return {.cache = p.cache,
          .cache_max = p.changes != 0 ? 2 * p.cache : 0,
          .agents = urls,
          .replicas = static_cast<std::uint32_t>(p.replicas),
          .suspect_within = std::chrono::milliseconds(200),
          .name = name,
          .segment = p.segment,
          .slots = 1ull << 24,
          .hit = p.hit,
          .collect = p.automatic,
          .collect_every = p.automatic_every,
          .verify_cycles = p.verify_cycles,
          .agents_talk = p.talk,
          .evacuation = {.order = p.in_traversal_order ? evacuation_order::depth_first : evacuation_order::address},
          .elastic = p.elastic,
          .access_within = p.loses_agents() ? std::chrono::seconds(2) : std::chrono::seconds(100),
          .memory_within = p.loses_agents() ? std::chrono::milliseconds(5) : std::chrono::milliseconds(100'000),
          .reconnect_within = p.loses_agents() ? std::chrono::milliseconds(100) : std::chrono::seconds(100)};
}

/// A heap with its mutators, and what its collections did.
class world {
 public:
  world(const plan& p, const std::vector<agent>& agents, const char* name)
      : plan_(p), heap_(options_of(p, agents, name)), shared_{heap_.array<ref<node>>(p.places)} {
    heap_.core().gc().members().watch_load(std::chrono::microseconds(1), 0);
  }

  [[nodiscard]] heap& own() noexcept { return heap_; }
  mutator& add_mutator(std::uint64_t number, letter_box* outbox, letter_box* inbox) {
    work_.push_back(std::make_unique<mutator>(heap_, shared_,
                                              mutator_options{.number = number,
                                                              .seed = plan_.seed,
                                                              .may_lose_agents = plan_.loses_agents(),
                                                              .pins_max = number < plan_.pins ? 1u : 0u,
                                                              .pins_by_mail = plan_.pins > 1,
                                                              .large = plan_.large,
                                                              .map = plan_.maps && !plan_.loses_agents(),
                                                              .favours = plan_.favours,
                                                              .outbox = outbox,
                                                              .inbox = inbox,
                                                              .letters_change = plan_.post.changes}));
    return *work_.back();
  }
  void collect() {
    if (plan_.automatic && one_in(2)) return heap_.collect_soon("soon");
    const cycle_report r = heap_.collect("always", plan_.evacuate_all && one_in(2) ? evacuate::all : evacuate::sparse);
    require(r, plan_.death);
    ++cycles_;
    freed_ += r.freed;
    failed_ += !r.ok();
    note_parts(r);
  }
  void collect_young() {
    const cycle_report r = heap_.collect_young("in between");
    require(r, plan_.death || r.status == errc::timed_out);
    died_young_ += r.freed;
  }
  void finish(std::uint64_t dead);
  [[nodiscard]] std::string text();
  /// So many agents have died, and each object is on as many agents as it should be, or as there are.
  [[nodiscard]] bool is_whole(std::uint64_t dead) {
    const heap_stats s = heap_.stats();
    return s.agents_lost == dead && !heap_.cache().any_stranded() &&
           (s.tablets_degraded == 0 || plan_.agents - dead < plan_.replicas);
  }

 private:
  void note_parts(const cycle_report& r) {
    for (const cycle_part& part : r.agents) {
      remote_references_ += part.remote_references;
      sent_ += part.references_sent;
      peers_lost_ += part.peers_lost;
    }
  }
  void compare(const cycle_report& last, const ptr<hop>& hops);

  const plan& plan_;
  heap heap_;
  commons shared_;
  std::vector<std::unique_ptr<mutator>> work_;
  std::uint64_t cycles_ = 0, freed_ = 0, failed_ = 0, died_young_ = 0;
  std::uint64_t remote_references_ = 0, sent_ = 0, peers_lost_ = 0;
};

// With everybody still, a cycle marks exactly what the shadows reach. With everything at home, agents do most of it.
void world::finish(std::uint64_t dead) {
  shared_.mail.clear();
  while (plan_.replicas > 1 && !is_whole(dead)) sleep_until(now() + 1'000'000);
  ptr<hop> hops;
  if (plan_.home_at_the_end && !plan_.death) {
    hops = back_and_forth(heap_, plan_.agents);
    (void)heap_.evict_all();
  }
  const cycle_report last = heap_.collect("at the end");
  note_parts(last);
  if (!plan_.loses_agents()) compare(last, hops);
  for (const auto& w : work_) w->compare_all();
}

void world::compare(const cycle_report& last, const ptr<hop>& hops) {
  require(last, false);
  std::set<std::uint64_t> alive;
  for (const auto& w : work_) alive.insert(w->alive.begin(), w->alive.end());
  {
    const auto places = shared_.places.read();
    for (std::size_t i = 0; i < places->size(); ++i)
      if ((*places)[i]) alive.insert((*places)[i]->id);
  }
  std::uint64_t reachable = 1 + 2 * alive.size();  // the shared array; nodes and their data
  for (ptr<hop> at = hops; at; at = at->next) ++reachable;
  require(last.marked == reachable,
          fmt::format("{} objects are marked at the end, and {} are reachable", last.marked, reachable));
  if (last.freed == last.dead) {
    const std::string wrong = shared_.dead.compare(alive);
    require(wrong.empty(), wrong);
  }
  verify(heap_);
}

std::string world::text() {
  std::uint64_t locked = 0, gone = 0, lost = 0;
  for (const auto& w : work_) {
    locked += w->locked;
    gone += w->gone;
    lost += w->failed;
  }
  const heap_stats s = heap_.stats();
  return fmt::format(
      "{} objects made, {} freed in {} cycles ({} failed) of {}, {} young, {} deaths told, weak {} locked {} gone; "
      "{} remote references through the owner, {} to agents, {} not reached; {} written, "
      "{} misses, {} by slot, {} neighbours, {} relocations; {} regions retired, {} pages given back, {} steps "
      "failed; {} agents lost, {} left, {} tablets taken over, {} handed over ({} because of load, "
      "{} attempts failed), {} replicated anew ({} attempts failed); ",
      s.allocated_objects, freed_, cycles_, failed_, s.collections, died_young_, shared_.dead.told(), locked, gone,
      remote_references_, sent_, peers_lost_, s.written_objects, s.misses, s.misses_by_slot, s.elastic_installs,
      s.relocations, s.regions_retired, s.hit_pages_given_back, lost, s.agents_lost, s.agents_left, s.tablets_promoted,
      s.tablets_handed_over, s.tablets_moved_for_load, heap_.core().gc().members().moved().failed.load(),
      s.tablets_replicated, heap_.core().gc().members().joined().failed.load());
}

/// From each heap to the next one, which may be the same.
class post {
 public:
  post(const plan& p, const std::vector<std::unique_ptr<world>>& worlds) {
    for (std::size_t i = 0; p.letters && i < worlds.size(); ++i)
      boxes_.push_back(std::make_unique<letter_box>(worlds[i]->own(), worlds[(i + 1) % worlds.size()]->own(),
                                                    fmt::format("letters{}", i), p.post));
  }
  /// Where the mutators of that world put letters in, and where one takes them out.
  [[nodiscard]] letter_box* out_of(std::size_t world) const { return boxes_.empty() ? nullptr : boxes_[world].get(); }
  [[nodiscard]] letter_box* into(std::size_t world) const {
    return boxes_.empty() ? nullptr : boxes_[(world + boxes_.size() - 1) % boxes_.size()].get();
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const auto& b : boxes_)
      all += fmt::format("{} letters on {} lines, {} accepted, {} late, {} failed, {} came with {} objects; ",
                         b->counts.sent, b->counts.lines, b->counts.accepted, b->counts.late, b->counts.failed,
                         b->counts.came, b->counts.came_objects);
    return all;
  }

 private:
  std::vector<std::unique_ptr<letter_box>> boxes_;
};

std::string run_heaps(const plan& p, std::vector<agent>& agents) {
  std::vector<std::unique_ptr<world>> worlds;
  worlds.push_back(std::make_unique<world>(p, agents, "sim"));
  if (p.two_heaps) worlds.push_back(std::make_unique<world>(p, agents, "sim2"));
  watch_as_asked();
  std::optional<post> letters(std::in_place, p, worlds);
  std::vector<mutator*> work;
  for (std::uint64_t t = 0; t < p.threads; ++t) {
    const std::size_t w = t % worlds.size();
    work.push_back(&worlds[w]->add_mutator(t, letters->out_of(w), t < worlds.size() ? letters->into(w) : nullptr));
  }
  bad_luck luck(p, agents, [&] {
    return std::all_of(worlds.begin(), worlds.end(), [&](const auto& w) { return w->is_whole(luck.dead()); });
  });
  std::optional<coming_and_going> members;
  if (p.changes != 0) {
    std::vector<heap*> heaps;
    for (const auto& w : worlds) heaps.push_back(&w->own());
    members.emplace(p, agents, std::move(heaps), [](const std::exception& e) { give_up(e); });
  }
  std::atomic<std::uint64_t> working{p.threads};
  std::vector<std::thread> threads;
  for (mutator* m : work)
    threads.emplace_back([&, m] {
      name_thread("mutator");
      try {
        for (std::uint64_t i = 0; i < p.steps; ++i) m->step();
        m->end_letters();
        m->compare_all();
      } catch (const std::exception& e) {
        give_up(e);
      }
      --working;
    });
  while (working != 0) {
    world& w = *worlds[worlds.size() == 1 ? 0 : random() % worlds.size()];
    w.collect();
    for (std::uint64_t n = random() % (p.young + 1); n != 0 && working != 0; --n) w.collect_young();
    if (p.rest_ns != 0) sleep_until(now() + random() % p.rest_ns);
  }
  for (std::thread& t : threads) t.join();
  luck.end();
  if (members) members->end();
  network::get().options.refuse_one_in = 0;
  for (mutator* m : work) m->compare_letters();
  std::string text = fmt::format("{} threads, {} agents; ", p.threads, p.agents) + letters->text();
  letters.reset();
  for (const auto& w : worlds) w->finish(luck.dead());
  for (const auto& w : worlds) text += w->text();
  const network::counters& n = network::get().counts;
  return text + fmt::format("{} requests, {} repeated, {} breaks, {} answers lost", n.requests, n.repeated, n.breaks,
                            n.lost_on_the_way);
}

}  // namespace

std::string run_program(std::uint64_t seed, const setting& s) {
  const plan p = plan_of(seed, s);
  spdlog::set_level(spdlog::level::off);
  start(p.scheduling);
  name_thread("main");
  if (s.pretended != ending::passed) pretend(s.pretended);
  network::get().options = p.net;
  std::string text;
  {
    std::vector<agent> agents;
    agents.reserve(p.agents + p.changes);
    for (std::uint64_t i = 0; i < p.agents; ++i) {
      const std::string host = "agent" + std::to_string(i);
      agents.push_back({host, make_store(p, host)});
      network::get().add(agents.back().host, *agents.back().store);
    }
    try {
      text = run_heaps(p, agents);
    } catch (const std::exception& e) {
      give_up(e);
    }
    for (const agent& a : agents) network::get().remove(a.host);
  }
  const outcome o = so_far();
  finish();
  return fmt::format("{}; {} decisions, {:.3f} ms, trace {:016x}", text, o.decisions, double(o.at) / 1e6, o.hash);
}

}  // namespace fm::sim
