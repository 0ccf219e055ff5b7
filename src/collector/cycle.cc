#include "cycle.h"

#include "clear_weak.h"
#include "satb_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

namespace {

constexpr auto one_pause_within = std::chrono::microseconds(200);
// A thread that has no core cannot leave its section as long as the others run. So attempts that keep failing get longer: the
// others wait at the gate meanwhile, and leave it theirs.
constexpr std::uint32_t short_attempts = 8;
constexpr auto longest_attempt = std::chrono::milliseconds(10);
// An attempt may hold the program for its 200 us even if it fails: few enough of them fit into any 10 ms.
constexpr auto backoff_first = std::chrono::milliseconds(1);
constexpr auto backoff_most = std::chrono::milliseconds(20);
constexpr std::uint64_t slice_ns = 300'000;
constexpr auto rest_most = std::chrono::milliseconds(30);
constexpr std::size_t words_swept_at_once = 2 * (page_slots / 64);
constexpr std::size_t threads_expected = 1024;

std::uint64_t ns_since(time_point begin) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
}

}  // namespace

cycle::cycle(collector& owner, cycle_report& report)
    : owner_(owner),
      cache_(owner.cache_),
      report_(report),
      young_(report.of == generation::young),
      who_(owner.tracing_.load(std::memory_order_acquire)) {
  object_cache::links& links = cache_.agents();
  by_number_.resize(links.size());
  agents_.reserve(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i]->lost()) continue;
    agent& a = agents_.emplace_back();
    a.link = links[i].get();
    a.number = static_cast<std::uint32_t>(i);
    by_number_[i] = &a;
    if (!young_) report_.agents.push_back({.agent = links[i]->url()});
  }
}

cycle::~cycle() = default;

void cycle::run() noexcept {
  bool completed = false;
  try {
    run_steps();
    completed = true;
    if (owner_.options_.verify) verify_references();
  } catch (const error& e) {
    report_.status = e.code();
    report_.failure = e.what();
  } catch (const std::bad_alloc&) {
    report_.status = errc::out_of_memory;
    report_.failure = "no memory for the collection itself";
  }
  finish(completed);
  if (owner_.options_.verify && !young_) verify_agents("after the cycle");
}

void cycle::run_steps() {
  if (!young_) {
    if (agents_.empty()) throw error(errc::agent_lost, "all agents are lost");
    if (owner_.options_.verify) {
      verify_agents("before the cycle");
      check_faults();
    }
    cache_.send_batches();
  }
  cache_.hold_pages(true);
  pages_held_ = true;
  snapshot();
  slice_from_ = os::thread_cpu_ns();
  const time_point scanned_from = clock::now();
  if (!young_) {
    begin_on_agents();
    begun_ = true;
    introduce_agents();
  }
  scan();
  report_.scan_ns = ns_since(scanned_from);
  const time_point marked_from = clock::now();
  do {
    mark();
  } while (!final_pause());
  report_.mark_ns = ns_since(marked_from);
  if (!young_) {
    if (who_ == tracing::both) compare_tracers();
    if (owner_.options_.verify) {
      verify_marks();
      verify_agents("after marking");
      check_faults();
    }
  }
  const time_point swept_from = clock::now();
  sweep();
  report_.sweep_ns = ns_since(swept_from);
}

// Also after a failure at any step.
void cycle::finish(bool completed) noexcept {
  if (marking_) satb::end();
  cache_.young_marking.store(false, std::memory_order_relaxed);
  cache_.dying.store(nullptr, std::memory_order_seq_cst);
  cache_.doomed.store(nullptr, std::memory_order_seq_cst);
  if (published_) owner_.keep_for_readers(std::move(marks_));
  if (pages_held_) cache_.hold_pages(false);
  if (!begun_) return;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    protocol::end_cycle_answer a{};
    // An agent that does not hear of the end throws the marks away when the next cycle begins.
    const auto within = completed ? owner_.options_.call_within : std::chrono::milliseconds(200);
    if (agents_[i].link->lost() || agents_[i].link->end_cycle(report_.number, clock::now() + within, a) != errc::ok)
      continue;
    cycle_part& part = report_.agents[i];
    part.objects = a.objects;
    part.live_bytes = a.live_bytes;
    part.regions = a.regions;
    part.tracing_ns = a.tracing_ns;
  }
}

// A young collection that cannot begin is not worth waiting for: the next one may.
duration cycle::pause_within() const {
  constexpr duration young_within = std::chrono::seconds(1);
  return young_ ? std::min(young_within, owner_.options_.pause_within) : owner_.options_.pause_within;
}

time_point cycle::call_deadline() const { return clock::now() + owner_.options_.call_within; }

void cycle::check_stop() const {
  if (owner_.stopping_.load(std::memory_order_acquire) || cache_.closed())
    throw error(errc::heap_closed, "the heap is being closed");
}

void cycle::check(errc e, const agent& a, const char* what) {
  check_stop();
  if (e != errc::ok) throw error(e, fmt::format("{} {}", a.link->url(), what));
}

bool cycle::pause(std::uint32_t attempt, void (*work)(cycle&), std::uint64_t& took_ns) {
  struct both {
    cycle* self;
    void (*work)(cycle&);
  } context{this, work};
  const std::uint32_t doublings = std::min(attempt - std::min(attempt, short_attempts), 10u);
  const duration within = std::min<duration>(one_pause_within * (1 << doublings), longest_attempt);
  const time_point begin = clock::now();
  const bool stopped = epochs::pause(
      within,
      [](void* c) {
        auto& at = *static_cast<both*>(c);
        at.work(*at.self);
      },
      &context);
  took_ns = ns_since(begin);
  ++report_.pauses;
  if (stopped)
    owner_.pause_ns.add(took_ns);
  else
    ++report_.pauses_abandoned;
  return stopped;
}

// ---- snapshot ----

void cycle::snapshot() {
  const time_point deadline = clock::now() + pause_within();
  duration backoff = backoff_first;
  for (std::uint32_t attempt = 0;; ++attempt) {
    check_stop();
    hold_ = std::make_unique<slot_hold>(cache_);
    waiting_.reserve(threads_expected);
    const bool stopped = pause(
        attempt,
        [](cycle& c) {
          satb::begin();
          c.marking_ = true;
          c.cache_.young_marking.store(c.young_, std::memory_order_relaxed);
          c.hold_->note_runs();
          c.note_waiting();
        },
        report_.snapshot_pause_ns);
    if (stopped) break;
    hold_.reset();
    if (clock::now() >= deadline) {
      const epochs::section_site site = epochs::oldest_section();
      throw error(errc::timed_out, fmt::format("the threads could not be stopped; the longest open scope is at {}:{}",
                                               site.file ? site.file : "?", site.line));
    }
    owner_.wait_traced(owner_.traced_.load(std::memory_order_acquire), backoff);
    backoff = std::min<duration>(backoff * 2, backoff_most);
  }
  marks_ = hold_->allocated(young_);
  hold_.reset();
}

void cycle::note_waiting() noexcept {
  waiting_.clear();
  epochs::for_each_thread(
      [](thread_state& t, void* self) {
        std::vector<slot_t>& to = static_cast<cycle*>(self)->waiting_;
        if (const slot_t s = t.waits_for.load(std::memory_order_acquire); s != 0) to.push_back(s);
      },
      this);
}

// ---- the owner's share ----

// The owner's part of a cycle runs on the program's cores. While nobody waits for its end it works for a slice and sleeps as
// much longer as its share asks, so that no stretch of time belongs to it. Never inside a section or with a lock.
void cycle::pace() noexcept {
  const std::uint64_t used = os::thread_cpu_ns() - slice_from_;
  if (used < slice_ns) return;
  // What is young has to be collected before it is evicted: not with its work, but with its time the program would pay for it.
  if (const double share = owner_.options_.share;
      share < 1 && !young_ && !owner_.urgent() && !owner_.stopping_.load()) {
    const auto rest = std::chrono::nanoseconds(static_cast<std::int64_t>(double(used) * (1 / share - 1)));
    const time_point begin = clock::now();
    owner_.wait_traced(owner_.traced_.load(std::memory_order_acquire), std::min<duration>(rest, rest_most));
    report_.paced_ns += ns_since(begin);
  }
  slice_from_ = os::thread_cpu_ns();
}

// ---- mark ----

void cycle::mark() {
  if (here_) mark_with(*here_);
  if (young_)
    mark_with(*near_);
  else if (near_)
    mark_by_agents();
  read_marks();
}

void cycle::take_logged() {
  logged_.clear();
  satb::take_full(logged_);
  report_.overwritten += logged_.size();
  for (const slot_t s : logged_) add(s);
}

void cycle::mark_with(compute_tracer& tracer) {
  do {
    check_stop();
    pace();
    take_logged();
  } while (tracer.step() || !logged_.empty());
  cache_.retire_segments();
}

// Of the objects of an agent that is lost nothing is known, so they live.
void cycle::mark_lost(slot_marks& marks) {
  for (std::size_t i = 0; i < marks.tablets().size(); ++i)
    if (!by_number_[hit.tablets[marks.tablets()[i]].agent.load(std::memory_order_relaxed)])
      std::memset(marks.marked(i), 0xff, protocol::marks_bytes);
}

void cycle::read_marks() {
  if (!near_) return;
  report_.traced_here = near_->traced();
  if (young_) return;  // all of them are here
  mark_lost(*marks_);
  const std::vector<std::uint32_t>& tablets = marks_->tablets();
  std::vector<std::uint64_t> said(protocol::marks_tablets_max * slot_marks::tablet_words);
  for (std::size_t i = 0; i < tablets.size();) {
    const auto agent_at = [&](std::size_t at) {
      return by_number_[hit.tablets[tablets[at]].agent.load(std::memory_order_relaxed)];
    };
    agent* a = agent_at(i);
    if (!a) {
      ++i;
      continue;
    }
    std::uint32_t n = 1;
    while (n < protocol::marks_tablets_max && i + n < tablets.size() && tablets[i + n] == tablets[i] + n &&
           agent_at(i + n) == a)
      ++n;
    check(a->link->read_marks(report_.number, tablets[i], n, said.data(), call_deadline()), *a,
          "does not tell what is marked");
    for (std::size_t w = 0; w < n * slot_marks::tablet_words; ++w) marks_->marked(i)[w] |= said[w];
    i += n;
  }
}

// Marking ends in a pause in which everything that was logged is marked. False: it has to go on, with what is left over.
bool cycle::final_pause() {
  const time_point deadline = clock::now() + pause_within();
  duration backoff = backoff_first;
  logged_.clear();
  logged_.reserve(1 << 16);
  left_over_.clear();
  left_over_.reserve(1 << 16);
  for (std::uint32_t attempt = 0;; ++attempt) {
    check_stop();
    const bool stopped = pause(
        attempt,
        [](cycle& c) {
          satb::take_all(c.logged_);
          for (const slot_t s : c.logged_)
            if (c.marks_->dead(s)) c.left_over_.push_back(s);
          if (!c.left_over_.empty()) return;
          satb::end();
          c.marking_ = false;
          c.cache_.young_marking.store(false, std::memory_order_relaxed);
          c.cache_.doomed.store(c.marks_.get(), std::memory_order_seq_cst);
          c.cache_.dying.store(c.marks_.get(), std::memory_order_seq_cst);
          c.published_ = true;
        },
        report_.final_pause_ns);
    if (stopped) break;
    if (clock::now() >= deadline) throw error(errc::timed_out, "the threads could not be stopped");
    owner_.wait_traced(owner_.traced_.load(std::memory_order_acquire), backoff);
    backoff = std::min<duration>(backoff * 2, backoff_most);
  }
  report_.overwritten += logged_.size();
  for (const slot_t s : left_over_) add(s);
  return left_over_.empty();
}

// ---- sweep ----

void cycle::sweep() {
  // First, so that a failure later on leaves no handle to anything that is half gone. A copy of a weak handle that began
  // before `dying` was set has ended with the pause; later ones wait for this walk.
  report_.weak_cleared = clear_weak(cache_, *marks_);
  // Before any slot is free: an object that gets one must not be judged by these marks.
  cache_.dying.store(nullptr, std::memory_order_seq_cst);
  const std::vector<std::uint32_t>& tablets = marks_->tablets();
  std::vector<std::uint64_t> dead(slot_marks::tablet_words);
  std::vector<slot_page> freed;
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    const bool any = count_dead(i, dead);
    agent* a = by_number_[hit.tablets[tablets[i]].agent.load(std::memory_order_relaxed)];
    if (!any || (!a && !young_)) continue;
    free_dead(i, dead, freed);
    // Of an agent that is lost they stay out of use: nobody makes objects there.
    if (a) a->returned.insert(a->returned.end(), freed.begin(), freed.end());
  }
  // As with `dying`: an object that gets one of these slots is copied out like any other.
  cache_.doomed.store(nullptr, std::memory_order_seq_cst);
  cache_.release_dead();
  for (agent& a : agents_) {
    if (young_)  // nobody has heard of these slots since they were taken: there is nothing to forget
      cache_.return_slots(a.number, a.returned);
    else
      release(a);
  }
}

void cycle::free_dead(std::size_t tablet, const std::vector<std::uint64_t>& dead, std::vector<slot_page>& freed) {
  freed.clear();
  for (std::size_t w = 0; w < slot_marks::tablet_words; w += words_swept_at_once) {
    const auto from = dead.begin() + static_cast<std::ptrdiff_t>(w);
    if (std::all_of(from, from + words_swept_at_once, [](std::uint64_t b) { return b == 0; })) continue;
    report_.freed_bytes +=
        cache_.free_dead(marks_->tablets()[tablet], w, w + words_swept_at_once, dead.data(), freed, young_);
    pace();
  }
  for (const slot_page& p : freed)
    for (const std::uint64_t b : p.bits) report_.freed += static_cast<std::uint64_t>(__builtin_popcountll(b));
}

bool cycle::count_dead(std::size_t tablet, std::vector<std::uint64_t>& dead) {
  const std::uint64_t* allocated = marks_->allocated(tablet);
  const std::uint64_t* marked = marks_->marked(tablet);
  std::uint64_t any = 0;
  for (std::size_t w = 0; w < slot_marks::tablet_words; ++w) {
    dead[w] = allocated[w] & ~marked[w];
    report_.dead += static_cast<std::uint64_t>(__builtin_popcountll(dead[w]));
    report_.marked += static_cast<std::uint64_t>(__builtin_popcountll(allocated[w] & marked[w]));
    any |= dead[w];
  }
  return any != 0;
}

// The agent forgets the slots, and only then may they be used again.
void cycle::release(agent& a) {
  cycle_part& part = report_.agents[static_cast<std::size_t>(&a - agents_.data())];
  std::vector<protocol::slot_bits> pages;
  for (std::size_t from = 0; from < a.returned.size(); from += pages_per_message) {
    const auto some = std::span(a.returned).subspan(from, std::min(pages_per_message, a.returned.size() - from));
    pages.resize(some.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      pages[i].first_slot = some[i].first;
      std::memcpy(pages[i].bits, some[i].bits.data(), sizeof pages[i].bits);
    }
    protocol::release_answer answer{};
    if (mutated(mutation::return_slots_early)) cache_.return_slots(a.number, some);
    check(a.link->release_slots(report_.number, pages, call_deadline(), answer), a, "does not release slots");
    part.freed_objects += answer.entries;
    part.freed_bytes += answer.bytes;
    if (!mutated(mutation::return_slots_early)) cache_.return_slots(a.number, some);
  }
}

}  // namespace fm::detail
