// Clients, epochs and steps of one pool; see pool.h.
// Invariant owned here: frames come back into use only below the epoch that every client has passed.
// Called with the pool's structure exclusively, by pools and by pool_session.
#include "pool.h"
#include "base/text.h"
#include "pool_keeper.h"

#include <algorithm>

namespace fm::agent {

namespace {

/// A pool's memory is its tenant's: memory that another owner had is never found in it, nor the other way round.
owner_key key_of(const pool_open_body& b) { return {{b.tenant[0], b.tenant[1]}, 0}; }

pool_blocks::names names_of(const pool_settings& s) {
  pool_blocks::names all{};
  for (std::uint32_t c = 0; c < all.size(); ++c) all[c] = static_cast<blocks::naming>(s.naming[blocks::line_class(c)]);
  return all;
}

}  // namespace

pool::pool(environment& agent, region_pool& regions, const pool_open_body& b, std::uint64_t quota,
           std::uint32_t instance_number, std::uint32_t slot_number)
    : name(detail::readable({b.name, sizeof b.name})),
      tenant{b.tenant[0], b.tenant[1]},
      slot(slot_number),
      instance(instance_number),
      settings(b.settings),
      quota_bytes(quota),
      frames(std::make_unique<pool_frames>(regions, key_of(b), this, quota)),
      blocks(std::make_unique<pool_blocks>(
          *frames, pool_blocks::options{{regions.region_bytes(), b.settings.block_bytes, b.settings.versions_upto,
                                         b.settings.shares_lines == 1},
                                        b.settings.arenas,
                                        names_of(b.settings),
                                        static_cast<blocks::fallback>(b.settings.fallback),
                                        agent.options.hooks.pool_first_generation,
                                        nullptr,
                                        nullptr,
                                        &agent})),
      agent_(agent) {
  pool_blocks::thresholds all{};
  all.fill(settings.compact_above);
  compact_classes_above(all);
  std::copy(std::begin(b.client), std::end(b.client), maker);
}

pool::~pool() {
  if (replicas != nullptr) replicas->keeper.reset();  // its thread uses all the rest
}

void pool::compact_classes_above(const pool_blocks::thresholds& above) {
  compact_above = above;
  compacts = std::any_of(above.begin(), above.end(), [](std::uint32_t share) { return share != 0; });
}

std::shared_ptr<pool_client> pool::find(const std::uint64_t (&id)[2]) const {
  const auto at = std::find_if(clients.begin(), clients.end(),
                               [&](const auto& c) { return c->id[0] == id[0] && c->id[1] == id[1]; });
  return at == clients.end() ? nullptr : *at;
}

namespace {

/// False: its queue is full.
bool announce(const pool_client& c, std::uint64_t epoch) {
  struct {
    message_head head;
    pool_epoch_notice body;
  } const notice{{static_cast<std::uint16_t>(message_type::pool_epoch), 0, sizeof(pool_epoch_notice)}, {epoch}};
  return c.owner->peer.notify(std::as_bytes(std::span(&notice, 1)));
}

}  // namespace

// Whoever is not reached passes anyway, four times in a lease.
void pool::tell_state() {
  if (closed) return;
  for (const auto& c : clients)
    if (c->owner != nullptr) (void)announce(*c, blocks->epoch());
}

std::uint32_t pool::state() const {
  if (replicas == nullptr) return 0;
  return pool_state_known | (replicas->keeper->has_backup() ? pool_state_copied : 0u) |
         (agent_.drained.load(std::memory_order_acquire) ? pool_state_leaves : 0u);
}

void pool::ask_to_pass() {
  if (closed || blocks->graves() == 0) return;
  const std::uint64_t epoch = blocks->epoch();
  const time_point now = agent_.now();
  if (agent_.rests() && blocks->in_round() && !short_of_memory && blocks->graves() < limits::graves_unasked &&
      now < ask_at) {
    if (!std::exchange(ask_again, true)) agent_.wake();
    return;
  }
  ask_again = false;
  for (const auto& c : clients) {
    if (c->passed >= epoch || c->asked > c->passed || c->owner == nullptr) continue;
    if (announce(*c, epoch)) {
      c->asked = epoch;
      ask_at = std::max(ask_at, now + limits::ask_rest);
    } else {
      ask_again = true;
      ask_at = now + limits::ask_retry;
    }
  }
}

bool pool::reclaim() {
  if (closed || blocks->graves() == 0) return false;
  std::uint64_t passed = blocks->epoch();
  for (const auto& c : clients) passed = std::min(passed, c->passed);
  return blocks->reclaim(passed);
}

bool pool::expire() {
  if (closed) return false;
  const std::uint64_t epoch = blocks->epoch(), before = blocks->expired();
  bool more = blocks->expire();
  if (blocks->expired() == before) return more;
  round_in_vain = false;
  if (blocks->epoch() != epoch) ask_to_pass();
  if (wants_round()) {
    blocks->begin_round(compact_above);
    more = true;
  }
  return more;
}

/// Maintenance comes back within limits::sleep_max anyhow.
time_point pool::await_expiry(time_point now) {
  using std::chrono::milliseconds;
  const expiry soonest = blocks->soonest_expiry();
  const auto anyhow = std::chrono::floor<milliseconds>((now + limits::sleep_max).time_since_epoch());
  looks_again = std::min(soonest, static_cast<expiry>(anyhow.count()));
  return soonest == no_expiry ? time_point::max() : time_point(milliseconds(soonest)) + limits::expiry_tick;
}

bool pool::expires_sooner() {
  const expiry soonest = blocks->soonest_expiry();
  expiry known = looks_again.load();
  while (soonest < known)
    if (looks_again.compare_exchange_weak(known, soonest)) return true;
  return false;
}

void pool::forget_regions() {
  std::uint64_t told = frames->gone();
  for (const auto& c : clients) told = std::min(told, c->told);
  frames->forget_gone(told);
}

bool pool::compact() {
  const time_point begin = clock::now();
  const bool more = blocks->compact_step();
  ++count.steps;
  count.step_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count());
  count.step_ns_max = std::max(count.step_ns_max, count.step_ns);
  if (!more && short_of_memory) {
    short_of_memory = false;
    round_in_vain = true;
  }
  return more;
}

bool pool::compact_in_background(time_point now) {
  const time_point begin = clock::now();
  const bool more = compact();
  next_step = now + std::chrono::duration_cast<duration>((clock::now() - begin) * (1 / limits::compaction_share - 1));
  return more;
}

// A message waits for the step before it, and on a connection that serves several threads each finds a step before it.
// Without a rest they would be served one by one, a step each.
std::uint64_t pool::rest_after_step() {
  const std::uint64_t served = count.reads.load() + count.writes.load() + count.releases.load();
  const bool alone = std::exchange(served_before, served) == served;
  if (alone || short_of_memory) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(count.step_ns) * (1 / limits::compaction_share - 1));
}

void pool::remove(pool_client& c, time_point now) {
  c.gone = true;
  if (!closed) write_down(note(record_kind::client_gone, client_record{{c.id[0], c.id[1]}, c.lease_ms, 0}));
  std::erase_if(clients, [&](const auto& k) { return k.get() == &c; });
  if (clients.empty()) empty_since = now;
  if (closed) return;
  reclaim();
  forget_regions();
}

void pool::close(bool ended) {
  closed = true;
  if (replicas != nullptr && replicas->keeper != nullptr) replicas->keeper->stop(ended);
  if (replicas != nullptr) replicas->log.show_in(nullptr);
  blocks.reset();
  frames.reset();
}

}  // namespace fm::agent
