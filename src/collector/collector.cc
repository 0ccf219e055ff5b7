// The collector's thread, and who waits for it; see collector.h.
#include "collector/collector.h"
#include "collector/collection_turns.h"

#include "base/limits.h"
#include "base/log.h"
#include "os/os.h"
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "evacuation.h"
#include "full_cycle.h"
#include "roots/weak_cells.h"
#include "young_collection.h"

namespace fm {

namespace detail {

namespace {

void log_report(bool is_quiet, const cycle_report& r) noexcept {
  const log_level level = is_quiet ? log_level::debug : log_level::warn;
  if (!log::wanted(level)) return;
  try {
    log::at(level, "{}", r.text());
  } catch (const std::bad_alloc&) {  // no line, as always without memory
  }
}

/// A cycle that was not in vain.
bool made_room(const cycle_report& r) noexcept {
  std::uint64_t live = 0, freed = 0;
  for (const cycle_part& a : r.agents) live += a.live_bytes, freed += a.freed_bytes;
  return r.ok() && freed > live / limits::made_room_share;
}

}  // namespace

collector::collector(object_cache& cache, const collector_options& options)
    : cache_(cache), options_(options), triggers_(cache, options_) {
  void (*const tell)(void*) noexcept = [](void* self) noexcept { static_cast<collector*>(self)->ask_as_due(); };
  cache_.requests().collect_with(options.automatic ? tell : nullptr, this);
  cache_.young().log_with(log_overwritten);
  triggers_.arm({});
  if (cache.agents().size() > 1) members_at_ = clock::now() + limits::replicate_again_after;
  members_.on_left = options_.on_left;
  begun_ = ended_ = options_.cycles_before;
  thread_ = std::thread([this] {
    os::name_thread("fm-collector");
    this_thread.collects = true;
    run();
  });
}

collector::~collector() { stop(); }

void collector::stop() noexcept {
  FM_CHECK(!notices_.is_own_thread(), "a notice of a dead object does not close its heap");
  notices_.await_told();  // while there are still collections, for which one may be waiting
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  changed_.notify_all();
  traced();
  if (thread_.joinable()) thread_.join();
  notices_.stop();
}

void collector::traced() noexcept {
  traced_.fetch_add(1, std::memory_order_release);
  os::futex_wake(traced_, 1);
}

bool collector::is_waited_for() const noexcept {
  return stopping() || agent_lost_.load(std::memory_order_acquire) || callers_.load(std::memory_order_acquire) != 0 ||
         cache_.requests().awaits_collection() || triggers_.hurried();
}

// One that rests holds other heaps up.
bool collector::urgent() const noexcept {
  return is_waited_for() || collection_turns::of_process().holds_somebody_up();
}

void collector::wait_traced(std::uint32_t seen, duration at_most) noexcept {
  os::futex_wait(traced_, seen, clock::now() + at_most);
}

void collector::ask(std::string_view why) {
  {
    const std::lock_guard lock(mutex_);
    if (wanted_.empty()) wanted_ = why.empty() ? "asked for" : why;
  }
  changed_.notify_all();
}

bool collector::is_wanted() const noexcept {
  const std::lock_guard lock(mutex_);
  return !wanted_.empty() || !young_wanted_.empty() || agent_lost_.load(std::memory_order_relaxed);
}

// A cycle that runs meets the loss with its next message and is given up; whatever else runs hurries.
void collector::agent_lost() noexcept {
  {
    const std::lock_guard lock(mutex_);
    agent_lost_.store(true, std::memory_order_release);
    if (!mutated(mutation::rehome_in_cycle)) rehome_at_ = clock::now();
  }
  changed_.notify_all();
  traced();
}

void collector::rehome() noexcept {
  const rehomed r = rehoming_.run();
  for (const rehomed::from& a : r.left) {
    std::vector<lost_type> types;
    try {
      types = types_.estimate(a.number, a.lost_objects);
    } catch (const std::bad_alloc&) {
      // Their number is told at least.
    }
    try {
      if (options_.on_rehomed) options_.on_rehomed(a, std::move(types));
    } catch (const std::bad_alloc&) {
      log::warn("{} is rehomed, and there is no memory to say so", a.agent);
    }
  }
  if (!r.again || mutated(mutation::rehome_in_cycle)) return;
  const std::lock_guard lock(mutex_);
  rehome_at_ = std::min(rehome_at_, clock::now() + limits::rehoming_again_after);
}

namespace {

/// What the program has asked the cache for: it rests if this stays the same.
std::uint64_t demand_of(object_cache& cache) {
  std::uint64_t sum = 0;
  cache.mutators().for_each([&](const mutator& m) {
    sum += m.counters.misses.get() + m.counters.touches.get() + m.counters.allocated_objects.get();
  });
  return sum;
}

}  // namespace

time_point collector::keep_members() noexcept {
  const time_point begun = clock::now();
  const std::uint64_t demand = demand_of(cache_);
  const set_members::outcome o = members_.step();
  const bool settled = o == set_members::outcome::settled;
  if (settled && !sets_are_whole_ && options_.on_replicated) options_.on_replicated();
  sets_are_whole_ = settled;
  const time_point ended = clock::now();
  if (settled && cache_.agents().size() == 1) return time_point::max();
  if (o != set_members::outcome::moved) return ended + limits::replicate_again_after;
  if (demand_of(cache_) == demand) return ended;  // nobody minds
  return ended + std::chrono::duration_cast<duration>((ended - begun) * (1 / limits::replication_share - 1));
}

void collector::look_at_members() noexcept {
  {
    const std::lock_guard lock(mutex_);
    members_at_ = clock::now();
  }
  changed_.notify_all();
  traced();
}

void collector::refuse_notice(const char* what) {
  if (notices_.is_own_thread())
    throw error(errc::scope_misuse, fmt::format("{} in a notice of a dead object waits for its own end", what));
}

bool collector::run_between(const std::function<void()>& what) {
  const std::function<bool()> not_the_last = [&] {
    what();
    return false;
  };
  return run_errand({.what = not_the_last, .failure = nullptr});
}

bool collector::run_last(const std::function<void()>& what) { return run_told(what, true); }

bool collector::run_alone(const std::function<void()>& what) { return run_told(what, false); }

bool collector::run_told(const std::function<void()>& what, bool is_last) {
  bool done = false;
  const std::function<bool()> alone = [&] {
    if (!notices_.all_told()) return false;  // a collection came first
    what();
    done = true;
    return is_last;
  };
  do notices_.await_told();
  while (run_errand({.what = alone, .failure = nullptr}) && !done);
  return done;
}

bool collector::run_errand(errand mine) {
  std::unique_lock lock(mutex_);
  errands_.push_back(&mine);
  changed_.notify_all();
  traced();
  // One that has begun is done, whatever happens.
  changed_.wait(lock, [&] { return mine.done || (stopping_.load() && std::erase(errands_, &mine) != 0); });
  if (mine.failure) std::rethrow_exception(mine.failure);
  return mine.done;
}

// Those who wait hold them.
void collector::run_errands(std::unique_lock<std::mutex>& lock) noexcept {
  while (!errands_.empty() && !stopping_.load()) {
    errand& e = *errands_.back();
    errands_.pop_back();
    bool is_last = false;
    lock.unlock();
    try {
      is_last = e.what();
    } catch (...) {
      e.failure = std::current_exception();
    }
    lock.lock();
    e.done = true;
    if (is_last) stopping_.store(true);
    changed_.notify_all();
  }
}

void collector::ask_as_due() noexcept {
  if (!options_.automatic) return;
  {
    const std::lock_guard lock(mutex_);
    switch (triggers_.due(!young_wanted_.empty())) {
      case collection_triggers::kind::full:
        if (wanted_.empty()) wanted_ = "allocation";
        break;
      case collection_triggers::kind::young:
        if (young_wanted_.empty()) young_wanted_ = "allocation";
        break;
      case collection_triggers::kind::none: break;
    }
  }
  changed_.notify_all();
}

cycle_report collector::collect(std::string_view why, evacuate what) {
  const section_break outside;
  section_break::require_left("a collection");
  const bool by_notice = notices_.is_own_thread();  // which waits for no notices, and so only asks
  std::unique_lock lock(mutex_);
  std::uint64_t freed = 0;
  for (int again = 0;; ++again) {
    const std::uint64_t until = begun_ + 1;  // one that begins from now on
    wanted_ = why.empty() ? "asked for" : std::string(why);
    if (what == evacuate::all) wanted_evacuation_ = what;
    changed_.notify_all();
    if (by_notice) return last_;
    callers_.fetch_add(1, std::memory_order_release);
    traced();  // a cycle that takes its time goes on at once
    changed_.wait(lock, [&] { return ended_ >= until || stopping_.load(); });
    callers_.fetch_sub(1, std::memory_order_relaxed);
    cycle_report r = last_;
    const bool left = r.ok() && r.freed < r.dead;  // they were being written or fetched
    r.freed += freed;
    r.dead += freed;
    lock.unlock();
    if (!left || again == limits::again_max || stopping_.load()) {
      notices_.await_told();
      return r;
    }
    freed = r.freed;
    cache_.eviction().await_acknowledged(clock::now() +
                                         std::min<duration>(options_.call_within, limits::written_within));
    lock.lock();
  }
}

cycle_report collector::collect_young(std::string_view why) {
  const section_break outside;
  section_break::require_left("a collection");
  const bool by_notice = notices_.is_own_thread();
  std::unique_lock lock(mutex_);
  const std::uint64_t until = young_begun_ + 1;
  young_wanted_ = why.empty() ? "asked for" : std::string(why);
  changed_.notify_all();
  if (by_notice) return last_young_;
  ++young_callers_;
  callers_.fetch_add(1, std::memory_order_release);
  traced();  // a cycle that takes its time goes on at once
  changed_.wait(lock, [&] { return young_ended_ >= until || stopping_.load(); });
  callers_.fetch_sub(1, std::memory_order_relaxed);
  --young_callers_;
  cycle_report r = last_young_;
  lock.unlock();
  notices_.await_told();
  return r;
}

void collector::keep_for_readers(std::unique_ptr<slot_marks> marks) noexcept {
  const std::uint64_t stamp = epochs::stamp();
  try {
    outlived_.reserve(outlived_.size() +
                      1);  // what fails must not take the marks along: readers may be looking at them
    outlived_.push_back({stamp, std::move(marks)});
  } catch (const std::bad_alloc&) {
    (void)marks.release();  // there is no room to remember them by
  }
  std::erase_if(outlived_, [](const outlived& o) { return epochs::try_pass(o.stamp); });
}

cycle_report collector::last(generation of) const {
  const std::lock_guard lock(mutex_);
  return of == generation::young ? last_young_ : last_;
}

void collector::run() noexcept {
  std::unique_lock lock(mutex_);
  bool kept = false;  // since the last collection
  for (;;) {
    const auto rehomes = [this] { return rehome_at_ <= clock::now(); };
    const auto keeps = [this] { return members_at_ <= clock::now(); };
    const auto called = [&] {
      return !wanted_.empty() || !young_wanted_.empty() || stopping_.load() || rehomes() || keeps() ||
             !errands_.empty();
    };
    const bool continuous = options_.automatic && options_.continuous;
    const time_point rested = continuous ? clock::now() + limits::longest_rest : time_point::max();
    const time_point until = std::min({rested, rehome_at_, members_at_});
    if (until == time_point::max())
      changed_.wait(lock, called);
    else if (!changed_.wait_until(lock, until, called) && until == rested)
      wanted_ = "continuous";
    if (stopping_.load()) break;
    if (rehomes()) {
      agent_lost_.store(false, std::memory_order_relaxed);
      rehome_at_ = time_point::max();
      lock.unlock();
      rehome();
      lock.lock();
      if (cache_.agents().size() > 1) members_at_ = clock::now();
      continue;
    }
    run_errands(lock);
    if (stopping_.load()) break;
    // A collection that is wanted has its turn between two tablets.
    if (keeps() && !(kept && !(wanted_.empty() && young_wanted_.empty()))) {
      kept = true;
      members_at_ = time_point::max();  // who wants another look meanwhile gets it
      lock.unlock();
      const time_point next = keep_members();
      lock.lock();
      members_at_ = std::min(members_at_, next);
      continue;
    }
    if (wanted_.empty() && young_wanted_.empty()) continue;
    kept = false;
    // Who waits for either kind gets it in turn.
    if (wanted_.empty() || (young_callers_ != 0 && !young_wanted_.empty() && !young_last_)) {
      young_last_ = true;
      std::string why = std::exchange(young_wanted_, {});
      ++young_begun_;
      lock.unlock();
      cycle_report r = run_young(std::move(why));
      lock.lock();
      last_young_ = std::move(r);
      young_ended_ = young_begun_;
      changed_.notify_all();
      continue;
    }
    young_last_ = false;
    if (young_callers_ == 0) young_wanted_.clear();  // the cycle collects what is young, too
    std::string why = std::exchange(wanted_, {});
    const evacuate what = std::exchange(wanted_evacuation_, evacuate::sparse);
    ++begun_;
    lock.unlock();
    cycle_report r = run_cycle(std::move(why), what);
    lock.lock();
    // It begins again without the agent that it lost.
    if (r.status == errc::agent_lost && agent_lost_.load(std::memory_order_relaxed) && wanted_.empty() &&
        cache_.losses().survivors())
      wanted_ = "an agent lost";  // short enough to need no memory
    const bool completed = r.ok();
    last_ = std::move(r);
    ended_ = begun_;
    changed_.notify_all();
    if (!completed) continue;
    lock.unlock();
    types_.count([this] { return stopping() || agent_lost_.load(std::memory_order_acquire); });
    lock.lock();
  }
  changed_.notify_all();
}

// One of either kind, but for what follows it.
template <class Collection>
void collector::run_timed(cycle_report& r) {
  triggers_.begins(r.of);
  const time_point begin = clock::now();
  const std::uint64_t cpu_before = os::thread_cpu_ns();
  collection_turns::of_process().begin(*this);
  run_reported(r, [&] { Collection(*this, r).run(); });
  collection_turns::of_process().end();
  r.cpu_ns = os::thread_cpu_ns() - cpu_before;
  r.total_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
  if (r.faults != 0 && r.status == errc::ok)
    run_reported(r, [&] {
      throw error(errc::corrupt, fmt::format("{} contradictions, the first: {}", r.faults, r.fault_texts.front()));
    });
}

cycle_report collector::run_young(std::string why) noexcept {
  cycle_report r;
  r.number = young_begun_;
  r.of = generation::young;
  r.cause = std::move(why);
  run_timed<young_collection>(r);
  triggers_.arm_young(r);
  if (r.weak_cleared != 0) notices_.look();
  counts.young_cycles.fetch_add(1, std::memory_order_relaxed);
  if (r.status != errc::ok) counts.young_failed.fetch_add(1, std::memory_order_relaxed);
  counts.young_freed_objects.fetch_add(r.freed, std::memory_order_relaxed);
  counts.young_freed_bytes.fetch_add(r.freed_bytes, std::memory_order_relaxed);
  // One that could not stop the threads in time was in vain, and nothing else.
  const bool quiet = r.status == errc::ok || r.status == errc::heap_closed || r.status == errc::timed_out;
  log_report(quiet, r);
  return r;
}

cycle_report collector::run_cycle(std::string why, evacuate what) noexcept {
  cycle_report r;
  r.number = begun_;
  r.cause = std::move(why);
  const time_point begin = clock::now();
  cache_.requests().cycle_begins();
  run_timed<full_cycle>(r);
  if (r.ok()) members_.look_at_room();
  // Before the evacuation, which may take longer than the rest: it gives way to the next cycle.
  triggers_.arm(r);
  cache_.requests().collected(made_room(r), triggers_.short_of_room(), clock::now() - begin,
                              cache_.options().memory_within);
  if (r.weak_cleared != 0) notices_.look();
  if (r.ok()) evacuation(*this, r, what).run();
  r.total_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
  counts.cycles.fetch_add(1, std::memory_order_relaxed);
  if (r.status != errc::ok) counts.failed.fetch_add(1, std::memory_order_relaxed);
  for (const cycle_part& a : r.agents) {
    counts.freed_objects.fetch_add(a.freed_objects, std::memory_order_relaxed);
    counts.freed_bytes.fetch_add(a.freed_bytes, std::memory_order_relaxed);
    counts.evacuated_objects.fetch_add(a.evacuated_objects, std::memory_order_relaxed);
    counts.evacuated_bytes.fetch_add(a.evacuated_bytes, std::memory_order_relaxed);
    counts.emptied_regions.fetch_add(a.emptied_regions, std::memory_order_relaxed);
  }
  const bool quiet = r.status == errc::ok || r.status == errc::heap_closed;
  log_report(quiet, r);
  return r;
}

}  // namespace detail
}  // namespace fm
