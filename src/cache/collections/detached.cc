// Posting, completing and awaiting detached fetches; see detached.h.
//
// Invariant: from the moment at which a word says `fetching` nothing may fail until its request is posted, since others
// wait for it.
#include "cache/collections/detached.h"
#include "cache/eviction/evictor.h"
#include "cache/memory/access_wait.h"
#include "cache/object_cache.h"
#include "cache/polling_pause.h"
#include <farmem/detail/barriers/barrier.h>
#include <fmt/format.h>

#include <array>
#include <span>

#include "cache/frames/frame_contents.h"
#include "cache/frames/retire_frame.h"

namespace fm::detail {

namespace {

/// Posts fetches, which hold their regions and frames without a section. What there is no credit for waits for it
/// outside of the thread's sections.
void post_outside(memory_pressure& pressure, fabric::session& session,
                  std::span<fabric::request* const> requests) noexcept {
  const std::size_t posted = session.try_post(requests);
  if (posted == requests.size()) return;
  const access_wait wait(pressure);
  session.post(requests.subspan(posted));
}

}  // namespace

// The record that was used longest ago, if it is free; the thread gets more before it looks at them all.
fetch* detached_fetches::free_record(mutator& m) {
  for (;;) {
    const std::uint32_t n = m.fetches.load(limit_order);
    for (std::uint32_t look = 0; look < n; ++look) {
      m.next_fetch = m.next_fetch + 1 < n ? m.next_fetch + 1 : 0;
      fetch& f = m.chunks[m.next_fetch / fetch_chunk::size]->records[m.next_fetch % fetch_chunk::size];
      if (f.busy.load(std::memory_order_acquire) == 0) return &f;
    }
    if (!cache_.leases().more_fetches(m)) return nullptr;
  }
}

detached_fetches::posting detached_fetches::post_detached(mutator& m, const tablet_home& home, slot_t slot,
                                                          std::atomic<word_t>& word, word_t seen, std::uint32_t leave,
                                                          posted_list* together) {
  remote::agent_session& link = *cache_.agents()[home.agent()];
  fetch* const f = free_record(m);
  if (!f) return posting::no_record;
  const home_address at = home_address::unpack(seen);
  if (!is_possible_size(cache_, at)) return posting::unreadable;
  if (link.lost() || !home.is_open())
    return posting::unreadable;  // in one section with what follows: see "Re-homing", rehoming.h
  f->slot = slot;
  f->hint = seen;
  f->bytes = static_cast<std::uint32_t>(size_class::bytes(at.size_class));
  f->payload = cache_.frames().bump_frame(m.fetched, f->bytes - header::bytes, leave, together != nullptr);
  if (!f->payload) return posting::no_memory;
  fabric::request& r = f->request;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  r.deadline = clock::now() + cache_.options().access_within;
  r.context = f;
  f->posted_at.store(epochs::stamp(), std::memory_order_seq_cst);
  const bool readable = link.prepare_read(r, at, frame::home_copy(f->payload), readable_bytes(link, at, f->bytes));
  if (!readable || !word.compare_exchange_strong(seen, word::fetching(f), std::memory_order_acq_rel)) {
    f->posted_at.store(0, std::memory_order_release);
    cache_.frames().unbump(m.fetched, f->payload);
    return readable ? posting::changed : posting::unreadable;
  }
  r.on_done = detached_done;
  r.attended_by = fabric::attendance::poller;
  f->busy.store(1, std::memory_order_relaxed);
  f->seg = &cache_.memory().of(f->payload);
  f->seg->inflight.fetch_add(1, std::memory_order_relaxed);
  cache_.frames().settle(m.fetched);
  if (together)
    together->requests[together->n++] = {&link, &r};
  else
    post_outside(cache_.pressure(), link.session(), std::array{&r});
  return posting::posted;
}

std::size_t detached_fetches::prefetch(const slot_t* slots, std::size_t n) {
  mutator& m = cache_.here();
  posted_list together;
  // One section, because a word says `fetching` from here on and others wait for what is posted at the end.
  const section in_section;
  for (std::size_t i = 0; i < n; ++i) {
    const slot_t slot = slots[i];
    if (slot == 0 || slot >= hit.slots || tablet_info_of(slot).heap.load(std::memory_order_acquire) != &cache_)
      continue;
    std::atomic<word_t>& word = word_at(slot);
    const word_t w = word.load(std::memory_order_acquire);
    if (!word::is_remote(w)) continue;  // resident, on its way, or unknown: then one round trip by slot is due anyway
    const posting p = post_detached(m, tablet_home(slot), slot, word, w, cache_.frames().reserve() + 1, &together);
    if (p == posting::no_record || p == posting::no_memory) break;
    if (p == posting::posted) m.counters.prefetches += 1;
  }
  post(together);
  return together.n;
}

// By the agents that were found in the section: it may be left here, and the slots get others.
void detached_fetches::post(const posted_list& together) noexcept {
  std::array<fabric::request*, limits::fetches_max> of_agent;
  for (auto& link : cache_.agents()) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < together.n; ++i)
      if (together.requests[i].link == link.get()) of_agent[count++] = together.requests[i].request;
    if (count != 0) post_outside(cache_.pressure(), link->session(), std::span(of_agent.data(), count));
  }
}

void detached_fetches::detached_done(fabric::request& r) noexcept {
  auto* f = static_cast<fetch*>(r.context);
  finish_detached(*f);
}

void detached_fetches::finish_detached(fetch& f) noexcept {
  const section in_section;
  std::atomic<word_t>& word = word_at(f.slot);
  const fabric::request& r = f.request;
  mutator& m = *f.from.load(std::memory_order_relaxed);
  std::uint64_t bytes = 0;
  frame_prefix& px = frame::prefix(f.payload);
  // The read put the home header into the frame, where the sweep would take it for an installed object: it is not swept
  // before inflight is given back.
  if (r.status == errc::ok && r.bytes() >= header::bytes) {
    const std::uint64_t h = px.header.load(std::memory_order_relaxed);
    if (header::slot(h) == f.slot) bytes = home_bytes(h, f.payload, r.bytes());
    if (bytes > r.bytes() || (bytes != 0 && foreign_reference(h, f.payload, &m.cache) != 0)) bytes = 0;
  }
  if (bytes != 0) {
    px.home.store(f.hint, std::memory_order_relaxed);
    object_cache& cache = f.from.load(std::memory_order_relaxed)->cache;
    cache.misses().note_back(f.slot, f.payload);
    word.store(word::resident(f.payload, word::clean_bit), std::memory_order_release);
  } else {
    // An old hint, a failure or a foreign reference: the access that needs the object asks again, and says what is wrong.
    px.header.store(0, std::memory_order_relaxed);
    retire_frame(f.payload);
    word.store(f.hint, std::memory_order_release);
  }
  f.posted_at.store(0, std::memory_order_seq_cst);
  f.seg->inflight.fetch_sub(1, std::memory_order_acq_rel);
  end_fetch(f);
  f.busy.store(0, std::memory_order_release);
  m.completed.fetch_add(1, std::memory_order_seq_cst);
  if (m.sleeping.load(std::memory_order_seq_cst) != 0) os::futex_wake(m.completed, 1);
}

// ---- awaiting ----

std::size_t detached_fetches::post_together(std::span<awaited* const> all) noexcept {
  const section in_section;
  try {
    return object_cache::owner_of(all.front()->slot).detached().post_here(all);
  } catch (...) {
    return 0;  // their looks say why
  }
}

std::size_t detached_fetches::post_here(std::span<awaited* const> all) {
  mutator& m = cache_.here();
  posted_list together;
  const time_point now = clock::now();
  for (awaited* const a : all) {
    if (a->slot >= hit.slots || tablet_info_of(a->slot).heap.load(std::memory_order_acquire) != &cache_) continue;
    std::atomic<word_t>& word = word_at(a->slot);
    const word_t w = word.load(std::memory_order_acquire);
    if (!word::is_remote(w) || w == a->tried) continue;
    const tablet_home home(a->slot);
    const fabric::session& session = cache_.agents()[home.agent()]->session();
    const std::uint32_t generation = session.generation();
    if (session.state() != fabric::session_state::up) continue;
    const posting p = post_detached(m, home, a->slot, word, w, cache_.frames().reserve_of_reads(), &together);
    if (p == posting::no_record || p == posting::no_memory) break;
    if (p != posting::posted) continue;
    a->cache = &cache_;
    if (a->begun == time_point{}) a->begun = now;
    if (std::exchange(a->memory_short, time_point{}) != time_point{}) a->begun = now;  // the fetch has its own time
    a->tried = w;
    a->generation = generation;
    m.counters.misses += 1;
  }
  post(together);
  std::size_t on_their_way = 0;
  for (std::size_t i = 0; i < together.n; ++i) on_their_way += !together.requests[i].request->done();
  return on_their_way;
}

char* detached_fetches::look_for(awaited& a) {
  const section in_section;
  object_cache& c = object_cache::owner_of(a.slot);
  a.cache = &c;
  return c.detached().look_here(a);
}

char* detached_fetches::look_here(awaited& a) {
  std::atomic<word_t>& word = word_at(a.slot);
  const auto pinned = [&](char* payload) {
    pin_frame(payload);
    if (a.begun != time_point{})
      cache_.misses().miss_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - a.begun).count()));
    return payload;
  };
  time_point now{};
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (word::is_resident(w)) {
      if (!word::is_cold(w)) return pinned(word::payload(w));
      if (word::is_busy(w))
        cpu_relax();
      else
        cache_.frames().touch(cache_.here(), word, w);
      continue;
    }
    if (w == word::free) throw error(errc::not_found, fmt::format("slot {:#x} holds no object", a.slot));
    const tablet_home home(a.slot);
    remote::agent_session& link = *cache_.agents()[home.agent()];
    if (now == time_point{}) now = clock::now();
    if (a.begun == time_point{}) a.begun = now;
    const bool late = now >= a.begun + cache_.options().access_within;
    if (word::is_fetching(w)) {
      // It ends by its own deadline, which its agent's answers to others put off.
      if (now >= a.begun + limits::waits_at_most * cache_.options().access_within)
        throw_access(errc::timed_out, a.slot, link);
      a.why = word::fetch_of<fetch>(w)->from.load(std::memory_order_relaxed) == &cache_.here() ? holdup::fetch
                                                                                               : holdup::others_fetch;
      return nullptr;
    }
    const bool moves = !home.is_open() || (link.lost() && cache_.losses().has_replica(a.slot));
    if (moves && !late) {
      a.why = holdup::connection;
      return nullptr;
    }
    if (link.lost() && !home.is_still()) continue;
    if (w != word::unknown && link.lost()) throw_access(errc::agent_lost, a.slot, link);
    if (late && a.memory_short == time_point{}) throw_access(errc::timed_out, a.slot, link);
    if (link.session().state() != fabric::session_state::up) {
      a.why = holdup::connection;
      return nullptr;
    }
    const std::uint32_t generation = link.session().generation();
    // Nothing is known, or what is known has just proved to be old: one answer by slot, which also says what is wrong.
    if (w == word::unknown || (w == a.tried && generation == a.generation))
      return pinned(cache_.resolve_here(a.slot, access::read));
    mutator& m = cache_.here();
    const posting p = post_detached(m, home, a.slot, word, w, cache_.frames().reserve_of_reads());
    if (p == posting::posted || p == posting::unreadable) {
      a.tried = w;
      a.generation = generation;
      if (a.memory_short != time_point{}) a.begun = now;  // the fetch has its own time
      a.memory_short = time_point{};
      if (p == posting::posted) m.counters.misses += 1;
    } else if (p == posting::no_memory) {
      const std::uint64_t moved = cache_.pressure().moved();
      if (a.memory_short == time_point{}) a.memory_short = now;
      if (a.memory_short == now || moved != a.moved) a.moved = moved, a.moved_at = now;
      cache_.pressure().ask_for_room();
      const duration within = cache_.options().memory_within;
      if (cache_.closed() || now >= a.moved_at + within || now >= a.memory_short + limits::waits_at_most * within)
        cache_.pressure().throw_cache_full(size_class::bytes(home_address::unpack(w).size_class));
      a.why = holdup::memory;
      return nullptr;
    } else if (p == posting::no_record) {
      a.why = holdup::records;
      return nullptr;
    }
  }
}

std::size_t detached_fetches::poll() noexcept {
  std::size_t n = 0;
  for (auto& link : cache_.agents()) n += link->session().poll();
  return n;
}

std::uint32_t detached_fetches::completions() { return cache_.here().completed.load(std::memory_order_seq_cst); }

void detached_fetches::sleep_until_completed(std::uint32_t seen, time_point deadline) {
  mutator& m = cache_.here();
  m.sleeping.store(1, std::memory_order_seq_cst);
  {
    const polling_pause sessions_look(cache_.agents());
    if (m.completed.load(std::memory_order_seq_cst) == seen) os::futex_wait(m.completed, seen, deadline);
  }
  m.sleeping.store(0, std::memory_order_relaxed);
}

}  // namespace fm::detail
