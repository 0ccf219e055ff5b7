// Taking a snapshot, finding what is reachable at it, and ending marking; see snapshot.h. Beside the program but for
// the pauses.
#include "collector/snapshot.h"

#include "base/limits.h"
#include "collector/roots/satb_log.h"
#include <algorithm>
#include <farmem/detail/barriers/roots.h>
#include <fmt/format.h>

namespace fm::detail {

snapshot::snapshot(collector& owner, cycle_report& report, const snapshot_kind& kind)
    : owner_(owner), cache_(owner.cache()), report_(report), kind_(kind) {}

snapshot::~snapshot() { end(); }

void snapshot::check_stop() const {
  if (owner_.stopping() || cache_.closed()) throw error(errc::heap_closed, "the heap is being closed");
}

// ---- pauses ----

bool snapshot::pause(std::uint32_t attempt, void (*work)(snapshot&), std::uint64_t& took_ns) {
  struct both {
    snapshot* self;
    void (*work)(snapshot&);
  } context{this, work};
  const std::uint32_t doublings = std::min(attempt - std::min(attempt, limits::short_attempts), 10u);
  const duration within = std::min<duration>(limits::one_pause_within * (1 << doublings), limits::longest_attempt);
  const time_point begin = clock::now();
  const bool stopped = epochs::pause(
      within,
      [](void* c) {
        auto& at = *static_cast<both*>(c);
        at.work(*at.self);
      },
      &context);
  took_ns = collection_ns(begin);
  ++report_.pauses;
  if (stopped)
    owner_.pause_ns.add(took_ns);
  else
    ++report_.pauses_abandoned;
  return stopped;
}

// A thread that holds a section open makes every attempt fail, and each attempt holds all others back at the gate. So
// the gate stays open until that section has ended: the next attempt is made when all that were open at the last one
// are.
void snapshot::wait_after_attempt(duration& backoff, time_point deadline) {
  const std::uint64_t stamp = epochs::stamp();
  owner_.rest(backoff);
  backoff = std::min<duration>(backoff * 2, limits::backoff_most);
  while (!epochs::try_pass(stamp) && clock::now() < deadline) {
    check_stop();
    owner_.rest(limits::backoff_first);
  }
}

void snapshot::take() {
  const time_point deadline = clock::now() + kind_.pause_within;
  duration backoff = limits::backoff_first;
  satb::prepare();
  for (std::uint32_t attempt = 0;; ++attempt) {
    check_stop();
    hold_ = std::make_unique<slot_hold>(cache_.slots(), cache_.mutators());
    waiting_.reserve(std::max(limits::threads_expected, 2 * waiting_.size()));
    const bool stopped = pause(
        attempt,
        [](snapshot& s) {
          if (!s.note_waiting()) return;
          satb::begin();
          s.marking_ = true;
          s.cache_.young().marking.store(s.kind_.young, std::memory_order_relaxed);
          s.hold_->note_runs();
        },
        report_.snapshot_pause_ns);
    if (marking_) break;
    hold_.reset();
    if (stopped) continue;  // with more room
    if (clock::now() >= deadline) {
      const epochs::section_site site = epochs::oldest_section();
      throw error(errc::timed_out, fmt::format("the threads could not be stopped; the longest open scope is at {}:{}",
                                               site.file ? site.file : "?", site.line));
    }
    wait_after_attempt(backoff, deadline);
  }
  marks_ = hold_->allocated(kind_.young);
  hold_.reset();
  slice_from_ = os::thread_cpu_ns();
}

bool snapshot::note_waiting() noexcept {
  struct noted {
    std::vector<slot_t>& to;
    bool all = true;
  } context{waiting_};
  waiting_.clear();
  epochs::for_each_thread(
      [](thread_state& t, void* c) {
        auto& n = *static_cast<noted*>(c);
        const slot_t s = t.waits_for.load(std::memory_order_acquire);
        if (s == 0) return;
        if (n.to.size() == n.to.capacity())
          n.all = false;
        else
          n.to.push_back(s);
      },
      &context);
  return context.all;
}

bool snapshot::end_marking() {
  const time_point deadline = clock::now() + kind_.pause_within;
  duration backoff = limits::backoff_first;
  for (std::uint32_t attempt = 0;; ++attempt) {
    check_stop();
    const bool stopped = pause(
        attempt,
        [](snapshot& s) {
          s.left_over_ = satb::take_rest(
              s.marks_->tablets(),
              [](slot_t slot, void* self) {
                auto& at = *static_cast<snapshot*>(self);
                ++at.report_.overwritten;
                return at.marks_->dead(slot);
              },
              &s);
          if (s.left_over_) return;
          satb::end();
          s.marking_ = false;
          s.cache_.young().marking.store(false, std::memory_order_relaxed);
          s.cache_.collections().doomed.store(s.marks_.get(), std::memory_order_seq_cst);
          s.cache_.collections().dying.store(s.marks_.get(), std::memory_order_seq_cst);
          s.published_ = true;
        },
        report_.final_pause_ns);
    if (stopped) break;
    if (clock::now() >= deadline) throw error(errc::timed_out, "the threads could not be stopped");
    wait_after_attempt(backoff, deadline);
  }
  if (left_over_) take_logged();
  return !left_over_;
}

void snapshot::end() noexcept {
  if (marking_) satb::end();
  marking_ = false;
  satb::discard();
  cache_.young().marking.store(false, std::memory_order_relaxed);
  cache_.collections().dying.store(nullptr, std::memory_order_seq_cst);
  cache_.collections().doomed.store(nullptr, std::memory_order_seq_cst);
  if (published_) owner_.keep_for_readers(std::move(marks_));
  published_ = false;
}

// ---- the owner's share ----

// The owner's part of a collection runs on the program's cores. While nobody waits for its end it works for a slice and
// sleeps as much longer as its share asks, so that no stretch of time belongs to it.
void snapshot::pace() noexcept {
  const std::uint64_t used = os::thread_cpu_ns() - slice_from_;
  if (used < limits::slice_ns) return;
  if (const double share = kind_.share; share < 1 && !owner_.urgent() && !owner_.stopping()) {
    const auto rest = std::chrono::nanoseconds(static_cast<std::int64_t>(double(used) * (1 / share - 1)));
    const time_point begin = clock::now();
    owner_.rest(std::min<duration>(rest, limits::rest_most));
    report_.paced_ns += collection_ns(begin);
  }
  slice_from_ = os::thread_cpu_ns();
}

// ---- what is reachable ----

void snapshot::found(slot_t slot) {
  if (marks_->covers(slot)) found_.push_back(slot);
}

void snapshot::find_roots() {
  // Handles change outside of sections. A thread may have found marking off, and overwritten a handle, with the store of
  // a copy that it made before still on its way to memory: from here on that store is seen.
  os::heavy_fence();
  marks_->expect_dirty();
  roots::for_each(
      [](root_cell&, slot_t slot, void* self) {
        auto& s = *static_cast<snapshot*>(self);
        if (!s.marks_->covers(slot)) return;
        s.found_.push_back(slot);
        if (++s.report_.roots % limits::roots_between_looks == 0) s.pace();
      },
      this);
  if (!mutated(mutation::ignore_waiting_threads)) found_.insert(found_.end(), waiting_.begin(), waiting_.end());
  check_stop();
}

void snapshot::add_found() {
  for (std::size_t i = 0; i < found_.size(); ++i) {
    add(found_[i]);
    if (i % limits::roots_between_looks == 0) pace();
  }
  found_ = std::vector<slot_t>();  // its memory goes, too
}

void snapshot::add(slot_t slot) {
  if (!marks_->covers(slot)) return;
  for (mark_strategy* by : strategies_) by->add(slot);
}

bool snapshot::take_logged() {
  const std::uint64_t n = satb::take(
      marks_->tablets(), [](slot_t slot, void* self) { static_cast<snapshot*>(self)->add(slot); }, this);
  report_.overwritten += n;
  return n != 0;
}

void snapshot_scan::between_pages() {
  if (++pages_passed_ % limits::pages_between_looks != 0) return;
  satb::set_aside();  // nobody takes what is logged before the scan has ended
  snapshot_.pace();
}

}  // namespace fm::detail
