// The steps of handing over and dropping; see handover.h.
//
// Invariant: a tablet that was closed is open again when run returns or throws.
#include "cache/replicas/handover.h"
#include "base/log.h"
#include "base/replica_limits.h"
#include "cache/collections/collection.h"
#include "cache/eviction/evictor.h"
#include "cache/replicas/rehoming.h"
#include "cache/tablets/replica_set.h"

#include <algorithm>
#include <array>

namespace fm::detail {

namespace {

/// Nobody asks the tablet's agent while it lives.
class closed_tablet {
 public:
  closed_tablet(object_cache& cache, std::uint32_t tablet) noexcept
      : cache_(cache), count_(hit.tablets[tablet].handovers) {
    if (!mutated(mutation::hand_over_open)) count_.fetch_add(1, std::memory_order_seq_cst);
  }
  closed_tablet(const closed_tablet&) = delete;
  closed_tablet& operator=(const closed_tablet&) = delete;
  ~closed_tablet() {
    count_.fetch_add(mutated(mutation::hand_over_open) ? 2 : 1, std::memory_order_seq_cst);
    cache_.losses().note_moved();
  }

 private:
  object_cache& cache_;
  std::atomic<std::uint32_t>& count_;
};

/// Nobody makes an object in the tablet. In the end its primary, whoever that is then, has its slots on offer.
class withdrawn_slots {
 public:
  withdrawn_slots(slot_sources& from, std::uint32_t tablet) : sources_(from), pages_(from.withdraw(tablet)) {}
  withdrawn_slots(const withdrawn_slots&) = delete;
  withdrawn_slots& operator=(const withdrawn_slots&) = delete;
  ~withdrawn_slots() { sources_.return_unused(pages_); }
  /// An object is in the tablet.
  [[nodiscard]] bool empty() const noexcept { return pages_.empty(); }

 private:
  slot_sources& sources_;
  const std::vector<slot_page> pages_;
};

}  // namespace

bool handover::settle(std::uint32_t agent, duration within) noexcept {
  if (mutated(mutation::hand_over_unsettled)) return true;
  return cache_.eviction().await_batches(cache_.eviction().change_sets([] {}), agent, clock::now() + within, true);
}

bool handover::forget_addresses(std::uint32_t tablet) {
  // A program that stays in its sections for long waits for itself: it gets a little more time with each attempt.
  const duration within = std::min<duration>(limits::handover_readers_first * (1u << std::min(in_vain_, 10u)),
                                             limits::handover_readers_most);
  const held_pages held(cache_.collections());  // words only return to the table
  sweep_.open_pages_aside([&](std::uint32_t t) { return t == tablet; });
  if (!sweep_.await_readers(clock::now() + within)) {
    ++in_vain_;
    return false;
  }
  in_vain_ = 0;
  return sweep_.forget_addresses(tablet, clock::now() + limits::handover_readers_most) && !sweep_.ends();
}

bool handover::run(std::uint32_t tablet, std::uint32_t to) {
  left_.reserve(left_.size() + 1);
  const bool done = hand_over(tablet, to);
  (done ? counts.handed_over : counts.failed).fetch_add(1, std::memory_order_relaxed);
  return done;
}

bool handover::hand_over(std::uint32_t tablet, std::uint32_t to) {
  const replica_set set = replica_set::of_tablet(tablet);
  const std::uint32_t from = set.primary();
  remote::agent_session& next = *cache_.agents()[to];
  // Before anybody waits for it: most batches, and a look whether the next one answers.
  std::vector<word_t> entry;
  if (!settle(from, limits::batches_end_within)) return false;
  if (next.read_entries(std::uint64_t{tablet} * tablet_slots, 1, entry) != errc::ok) return false;
  std::uint64_t before = 0;
  {
    const closed_tablet closed(cache_, tablet);
    if (!settle(from, limits::handover_batches_within)) return false;
    if (!forget_addresses(tablet) || next.lost()) return false;
    if (const errc e = next.promote_tablets(tablet, 1); e != errc::ok) return refused(tablet, to, e);
    FM_ASSERT(sweep_.holds_no_address(tablet), "nothing names the old primary's memory when there is a new one");
    before = make_primary(tablet, to);
  }
  left_.push_back({tablet, from, before});
  return true;
}

// As long as it may take itself for the primary, no collection begins.
bool handover::refused(std::uint32_t tablet, std::uint32_t by, errc why) noexcept {
  log::warn("{} does not take tablet {} over: {}", cache_.agents()[by]->url(), tablet, to_string(why));
  take_out(tablet, by);
  return false;
}

std::uint64_t handover::make_primary(std::uint32_t tablet, std::uint32_t to) {
  const std::array move{tablet_move{.first = tablet, .count = 1, .to = to, .granted = true}};
  try {
    return cache_.slots().move_tablets(replica_set::of_tablet(tablet).primary(), move);
  } catch (const std::bad_alloc&) {
    take_out(tablet, to);
    throw;
  }
}

void handover::take_out(std::uint32_t tablet, std::uint32_t member) noexcept {
  replica_set set = replica_set::of_tablet(tablet);
  set.remove(member);
  left_.push_back({tablet, member, cache_.eviction().change_sets([&] { set.store(tablet); })});
}

void handover::drop(std::uint32_t tablet, std::uint32_t backup) {
  left_.reserve(left_.size() + 1);
  take_out(tablet, backup);
  counts.dropped.fetch_add(1, std::memory_order_relaxed);
}

handover::renewed handover::renew(std::uint32_t tablet, const replica_set& next) {
  left_.reserve(left_.size() + limits::replicas_max + 1);
  const withdrawn_slots slots(cache_.slots(), tablet);
  if (slots.empty()) return renewed::in_use;
  const replica_set old = replica_set::of_tablet(tablet);
  const std::uint32_t from = old.primary(), to = next.primary();
  if (to != from)
    if (const errc e = cache_.agents()[to]->grant_tablets(tablet, 1); e != errc::ok) {
      refused(tablet, to, e);
      return renewed::failed;
    }
  replica_set set;
  set.set_primary(from);
  next.for_each_backup([&](std::uint32_t a) {
    if (old.has(a) || cache_.agents()[a]->replicate_tablets(tablet, 1) == errc::ok) set.add(a);
  });
  std::uint64_t before = cache_.eviction().change_sets([&] { set.store(tablet); });
  if (to != from) {
    before = make_primary(tablet, to);
    left_.push_back({tablet, from, before});
  }
  old.for_each_backup([&](std::uint32_t a) {
    if (!next.has(a)) left_.push_back({tablet, a, before});
  });
  if (replica_set::of_tablet(tablet) != next) return renewed::failed;
  counts.renewed.fetch_add(1, std::memory_order_relaxed);
  return renewed::done;
}

bool handover::forgets(const leaver& l) noexcept {
  remote::agent_session& agent = *cache_.agents()[l.agent];
  if (agent.lost() || replica_set::of_tablet(l.tablet).has(l.agent)) return true;  // a member again, which began empty
  // A batch that names the tablet there would be refused as a whole, or fill it again.
  if (!cache_.eviction().await_batches(l.batch, l.agent, clock::now() + limits::batches_end_within, true)) return false;
  const errc e = agent.leave_tablets(l.tablet, 1);
  return e == errc::ok || e == errc::unsupported || agent.lost();  // an old one keeps what it has as a backup
}

bool handover::forget_left() noexcept {
  while (!left_.empty() && (mutated(mutation::forget_nothing_left) || forgets(left_.back()))) left_.pop_back();
  return left_.empty();
}

}  // namespace fm::detail
