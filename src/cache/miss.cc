// The steps of a miss; see miss.h.
//
// Invariant: a hint is corrected only over the word that was noted before the question was asked. So an answer never
// replaces anything newer than itself.
#include "miss.h"
#include "cache/eviction/evictor.h"
#include "cache/memory/access_wait.h"
#include "object_cache.h"
#include "polling_pause.h"
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "cache/frames/frame_contents.h"

namespace fm::detail {

namespace {

/// The hints of a slot's page that lead nowhere any more, noted before the agent is asked for one of them, so that its
/// answer can correct all. The answer is not older than what was noted then; and a word that has changed since is left
/// alone: it never comes back to an address that it had, so what is in it may be newer than the answer.
class old_hints {
 public:
  old_hints(slot_t slot, const remote::agent_session& link) : first_(slot / page_slots * page_slots) {
    for (slot_t i = 0; i < page_slots; ++i) {
      const word_t w = word_at(first_ + i).load(std::memory_order_acquire);
      words_[i] = word::is_remote(w) && !is_readable(link, w) ? w : word::unknown;
    }
  }
  static bool is_readable(const remote::agent_session& link, word_t hint) {
    const home_address at = home_address::unpack(hint);
    return link.region_generation(at.region) == at.generation;
  }
  void correct(const std::vector<word_t>& answer) const {
    for (slot_t i = 0; i < answer.size() && i < page_slots; ++i) {
      word_t expected = words_[i];
      if (expected != word::unknown && word::is_remote(answer[i]) && answer[i] != expected)
        word_at(first_ + i).compare_exchange_strong(expected, answer[i], std::memory_order_acq_rel);
    }
  }

 private:
  slot_t first_;
  std::array<word_t, page_slots> words_;
};

/// The segment of the frame counts it as being fetched: the fetch has that count from now on. In the section that finds
/// the region readable, or in an earlier one: a retirement that has come since must wait for the read.
void take_hold(object_cache& cache, fetch& f) noexcept {
  f.seg = &cache.memory().of(f.payload);
  f.posted_at.store(this_thread.epoch.load(std::memory_order_relaxed), std::memory_order_seq_cst);
}

/// The tablet of the slot is the agent's, and is not being handed over: in one section with what follows.
bool is_at(slot_t slot, std::uint32_t agent) noexcept {
  const tablet_home home(slot);
  return home.agent() == agent && home.is_open();
}

/// Waiting for an agent while a fetch of this thread is in flight.
class wait_in_fetch {
 public:
  wait_in_fetch(object_cache& cache, fetch& f) noexcept : wait_((hold(cache, f), cache.pressure()), f.slot) {}

 private:
  // Before the section is left: until then it holds both.
  static void hold(object_cache& cache, fetch& f) noexcept {
    if (f.posted_at.load(std::memory_order_relaxed) != 0) return;
    cache.memory().of(f.payload).hold();
    take_hold(cache, f);
  }
  const access_wait wait_;
};

/// Whether the evictor does not walk over the frame of the fetch: it is counted, in the thread's own piece, or a large
/// one that the thread has not handed on.
[[maybe_unused]] bool is_kept_from_walks(object_cache& cache, const mutator& m, const fetch& f) noexcept {
  if (f.posted_at.load(std::memory_order_relaxed) != 0) return true;  // first: the piece may be somebody else's then
  const segment* const s = &cache.memory().of(f.payload);
  return s == m.fetched.own.seg || s == m.fetched.large;
}

/// The fetch has ended, and its frame is installed or given up.
void let_go(fetch& f) noexcept {
  if (f.posted_at.load(std::memory_order_relaxed) == 0) return;
  f.posted_at.store(0, std::memory_order_seq_cst);
  f.seg->inflight.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace

void miss_handler::add_agent() { windows_.push_back(std::make_unique<elastic_windows>()); }

void miss_handler::note_back(slot_t slot, char* payload) noexcept {
  if (!left_.take(slot)) return;
  ghost_hits.fetch_add(1, std::memory_order_relaxed);
  frame_prefix& px = frame::prefix(payload);
  px.shape.store(px.shape.load(std::memory_order_relaxed) | frame::used_bit, std::memory_order_relaxed);
  cache_.memory().of(payload).returned.fetch_add(static_cast<std::uint32_t>(frame::total_bytes_of(payload)),
                                                 std::memory_order_relaxed);
}

void miss_handler::miss(slot_t slot, std::atomic<word_t>& word, word_t seen) {
  if (seen == word::unknown) return miss_unknown(slot, word);
  FM_CHECK(word::is_remote(seen), "a word is in one of its states");
  const time_point begin = clock::now();
  mutator& m = cache_.here();
  // Before the word belongs to the fetch, and in one section with that: see "Re-homing", rehoming.h.
  const tablet_home tablet(slot);
  const std::uint32_t agent = tablet.agent();
  remote::agent_session& link = *cache_.agents()[agent];
  if (link.lost() || !tablet.is_open()) throw_access(errc::agent_lost, slot, link);
  const home_address at = home_address::unpack(seen);
  if (!is_possible_size(cache_, at)) throw_size(cache_, slot, link, size_class::bytes(at.size_class));
  left_.prefetch(slot);
  bool left = false;
  char* payload = cache_.pressure().frame_in_section(m, slot, size_class::bytes(at.size_class) - header::bytes, left);
  fetch& f = m.waited;
  f.slot = slot;
  f.hint = seen;
  f.payload = payload;
  f.bytes = static_cast<std::uint32_t>(size_class::bytes(at.size_class));
  if (left) take_hold(cache_, f);  // others may have its piece by now
  word_t expected = seen;
  const bool moved = !tablet.is_still() || link.lost();  // while this thread waited for a frame, in a section or not
  if (moved || !word.compare_exchange_strong(expected, word::fetching(&f), std::memory_order_acq_rel)) {
    cache_.frames().unbump(m.fetched, payload);
    let_go(f);
    return;
  }
  try {
    const word_t home = load(f, m, agent);
    frame::prefix(payload).home.store(home, std::memory_order_relaxed);
    note_back(slot, payload);
    word.store(word::resident(payload, word::clean_bit), std::memory_order_release);
  } catch (...) {
    failed.fetch_add(1, std::memory_order_relaxed);
    frame::prefix(payload).header.store(0, std::memory_order_relaxed);
    cache_.frames().unbump(m.fetched, payload);
    word.store(seen, std::memory_order_release);
    let_go(f);
    end_fetch(f);
    throw;
  }
  let_go(f);
  end_fetch(f);
  cache_.frames().settle(m.fetched);
  m.counters.misses += 1;
  cache_.pressure().note_read();
  miss_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
}

// The thread's as long as its section lasts.
char* miss_handler::staging_of(mutator& m) {
  std::byte* const at = m.staging.load(limit_order);
  return reinterpret_cast<char*>(at ? at : cache_.leases().staging(m));
}

std::uint64_t miss_handler::read_hint(fetch& f, mutator& m, remote::agent_session& link, const home_address& from,
                                      std::uint32_t& window) {
  fabric::request& r = f.request;
  r.state.store(fabric::request::idle, std::memory_order_relaxed);
  const time_point posted = clock::now();
  r.deadline = posted + cache_.options().access_within;
  char* const staging = window != 0 ? staging_of(m) : nullptr;
  if (!staging) window = 0;  // all that there is is in use: the object alone
  char* to = staging ? staging : frame::home_copy(f.payload);
  if (!link.prepare_read(r, from, to, readable_bytes(link, from, window != 0 ? window : f.bytes))) return 0;
  r.on_done = nullptr;
  const bool had_credit = link.session().try_post(r);
  if (!had_credit || !r.done()) {
    const wait_in_fetch wait(cache_, f);
    if (!had_credit) link.session().post(r);
    cache_.eviction().help();
    link.session().wait(r);
  }
  if (r.status == errc::stale || r.status == errc::access_denied || r.status == errc::not_found) return 0;
  if (r.status == errc::disconnected) return 0;  // by slot, which waits for the reconnect
  if (r.status == errc::timed_out) link.unanswered(posted);
  if (r.status == errc::ok) link.answered(posted);
  if (r.status != errc::ok) throw_access(r.status, f.slot, link);
  const std::uint64_t got = r.bytes();
  m.counters.fetched_bytes += got;
  std::uint64_t h = 0;
  if (got < header::bytes) return 0;
  std::memcpy(&h, to, sizeof h);
  if (header::slot(h) != f.slot) return 0;
  const std::uint64_t bytes = home_bytes(h, to + header::bytes, got);
  if (bytes == 0 || bytes > got || bytes > f.bytes) return 0;
  check_references(cache_, h, to + header::bytes, f.slot, link);
  if (window != 0) copy_bytes(frame::home_copy(f.payload), to, bytes);
  return bytes;
}

word_t miss_handler::load(fetch& f, mutator& m, std::uint32_t agent) {
  remote::agent_session& link = *cache_.agents()[agent];
  FM_ASSERT(is_kept_from_walks(cache_, m, f), "a read writes no header below the evictor's walk");
  const time_point deadline = clock::now() + cache_.options().access_within;
  word_t hint = f.hint;
  for (int round = 0; round < limits::hint_rounds_max; ++round) {
    const home_address from = home_address::unpack(hint);
    std::uint32_t window = 0;
    if (cache_.options().elastic && round == 0 && f.bytes < elastic_windows::window_max / 2) {
      window = windows(agent).window(from, f.bytes);
      // Only what is acknowledged or sealed: no append and no evacuation is caught half way.
      std::uint64_t readable = link.readable(from.region);
      if (window > f.bytes && readable <= from.offset && old_hints::is_readable(link, hint)) {
        const wait_in_fetch wait(cache_, f);
        link.learn_region(from.region);  // one that the agent fills, and has filled further since
        readable = link.readable(from.region);
      }
      if (mutated(mutation::read_past_acknowledged)) readable = link.region_bytes();
      window = readable > from.offset
                   ? static_cast<std::uint32_t>(std::min<std::uint64_t>(window, readable - from.offset))
                   : 0;
      if (window <= f.bytes) window = 0;
    }
    if (const std::uint64_t bytes = read_hint(f, m, link, from, window); bytes != 0) {
      if (window > bytes) {
        cache_.frames().settle(m.fetched);
        const std::uint32_t brought = install_neighbours(m, agent, from, bytes, window);
        windows(agent).note_brought(brought);
        if (brought == 0) windows(agent).useless(from);
      }
      return home_address{from.region, from.generation, from.offset, size_class::of(bytes)}.pack();
    }
    // The hint is old: the agent knows, and its answer carries the bytes.
    m.counters.misses_by_slot += 1;
    std::optional<old_hints> old;
    if (!old_hints::is_readable(link, hint)) old.emplace(f.slot, link);
    const remote::slot_answer a = [&] {
      const wait_in_fetch wait(cache_, f);
      return link.fetch_slot(f.slot, old.has_value(), limits::answer_bytes_max, deadline);
    }();
    if (a.status != errc::ok) throw_access(a.status, f.slot, link);
    if (!word::is_remote(a.entry)) throw_access(errc::not_found, f.slot, link);
    hint = a.entry;
    if (old) old->correct(a.page);
    if (!old_hints::is_readable(link, hint)) {
      const wait_in_fetch wait(cache_, f);
      link.learn_region(home_address::unpack(hint).region);
    }
    if (!a.copy.empty()) {
      std::uint64_t h = 0;
      if (a.copy.size() < header::bytes) throw_access(errc::bad_frame, f.slot, link);
      std::memcpy(&h, a.copy.data(), sizeof h);
      const std::uint64_t bytes =
          header::slot(h) == f.slot
              ? home_bytes(h, reinterpret_cast<const char*>(a.copy.data()) + header::bytes, a.copy.size())
              : 0;
      if (bytes == 0 || bytes > a.copy.size() ||
          bytes > frame::total_bytes_of(f.payload) - sizeof(frame_prefix) + header::bytes)
        throw_access(errc::corrupt, f.slot, link);
      check_references(cache_, h, reinterpret_cast<const char*>(a.copy.data()) + header::bytes, f.slot, link);
      copy_bytes(frame::home_copy(f.payload), a.copy.data(), bytes);
      m.counters.fetched_bytes += a.copy.size();
      return hint;
    }
    if (clock::now() >= deadline) throw_access(errc::timed_out, f.slot, link);
  }
  throw_access(errc::corrupt, f.slot, link);
}

void miss_handler::miss_unknown(slot_t slot, std::atomic<word_t>& word) {
  const time_point begin = clock::now(), deadline = begin + cache_.options().access_within;
  mutator& m = cache_.here();
  const tablet_home tablet(slot);
  remote::agent_session& link = *cache_.agents()[tablet.agent()];
  const hit_pages::group group = cache_.pages().open_group(slot);
  const std::uint32_t drops = group.drops[slot / page_slots - group.first];
  if (word.load(std::memory_order_acquire) != word::unknown) return;  // it was only put aside
  if (link.lost() || !tablet.is_open()) throw_access(errc::agent_lost, slot, link);
  cache_.losses().check(slot);
  if (!std::has_single_bit(group.opened)) {
    learn_group(group, slot, tablet, deadline);
    if (word.load(std::memory_order_acquire) != word::unknown) {
      m.counters.misses_by_slot += 1;
      return;
    }
  }
  const remote::slot_answer a = [&] {
    const access_wait wait(cache_.pressure(), slot);
    return link.fetch_slot(slot, true, limits::answer_bytes_max, deadline);
  }();
  if (!tablet.is_still()) return;  // who was asked is asked no more
  if (a.status != errc::ok) throw_access(a.status, slot, link);
  if (!word::is_remote(a.entry)) throw_access(errc::not_found, slot, link);
  m.counters.misses_by_slot += 1;
  if (link.lost()) throw_access(errc::agent_lost, slot, link);
  if (!cache_.pages().put(slot / page_slots * page_slots, drops, a.page)) return;  // given back meanwhile: ask again
  if (cache_.pages().over()) cache_.eviction().wake();
  word_t expected = word::unknown;
  if (a.page.empty()) word.compare_exchange_strong(expected, a.entry, std::memory_order_acq_rel);
  // The copy came along: use it, unless somebody was quicker.
  if (a.copy.size() < header::bytes) return;
  std::uint64_t h = 0;
  std::memcpy(&h, a.copy.data(), sizeof h);
  const std::uint64_t bytes =
      header::slot(h) == slot
          ? home_bytes(h, reinterpret_cast<const char*>(a.copy.data()) + header::bytes, a.copy.size())
          : 0;
  if (bytes == 0 || bytes > a.copy.size()) throw_access(errc::corrupt, slot, link);
  if (bytes > cache_.stored_bytes_max()) throw_size(cache_, slot, link, bytes);
  check_references(cache_, h, reinterpret_cast<const char*>(a.copy.data()) + header::bytes, slot, link);
  // If the section is left, the copy is good as long as the word names the place that it came from.
  bool left = false;
  char* payload = cache_.pressure().frame_in_section(m, slot, bytes - header::bytes, left);
  copy_bytes(frame::home_copy(payload), a.copy.data(), bytes);
  if (left) cache_.memory().of(payload).end_hold();
  frame::prefix(payload).home.store(a.entry, std::memory_order_relaxed);
  note_back(slot, payload);
  m.counters.fetched_bytes += a.copy.size();
  expected = a.entry;
  if (!tablet.is_still() || link.lost() ||
      !word.compare_exchange_strong(expected, word::resident(payload, word::clean_bit), std::memory_order_acq_rel)) {
    frame::prefix(payload).header.store(0, std::memory_order_relaxed);
    cache_.frames().unbump(m.fetched, payload);
    return;
  }
  cache_.frames().settle(m.fetched);
  m.counters.misses += 1;
  cache_.pressure().note_read();
  miss_ns.add(static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - begin).count()));
}

void miss_handler::learn_group(const hit_pages::group& group, slot_t slot, const tablet_home& tablet,
                               time_point deadline) {
  remote::agent_session& link = *cache_.agents()[tablet.agent()];
  const slot_t first = group.first * page_slots;
  std::vector<word_t> entries;
  const errc e = [&] {
    const access_wait wait(cache_.pressure(), slot);
    return link.read_entries(first, limits::pages_asked_together * page_slots, entries, deadline);
  }();
  if (e != errc::ok || !tablet.is_still() || link.lost()) return;
  for (std::uint32_t page = 0; page < limits::pages_asked_together; ++page) {
    const std::uint64_t from = page * page_slots;
    if ((group.opened >> page & 1) != 0)
      cache_.pages().put(first + from, group.drops[page], std::span(entries).subspan(from, page_slots));
  }
}

std::uint32_t miss_handler::install_neighbours(mutator& m, std::uint32_t agent, const home_address& first,
                                               std::uint64_t skip, std::uint32_t window) {
  std::uint32_t installed = 0;
  // What this section installs it has installed before a word of the agent's tablets is swept, or it begins after the loss.
  if (cache_.agents()[agent]->lost()) return installed;
  const char* bytes = staging_of(m);
  // At most one segment is taken for neighbours, and none that others wait for.
  const std::uint32_t leave =
      std::max<std::uint32_t>(cache_.frames().reserve() + 1, cache_.memory().capacity_segments() / 16);
  for (std::uint64_t at = skip; at + header::bytes <= window;) {
    std::uint64_t h = 0;
    std::memcpy(&h, bytes + at, sizeof h);
    if (static_cast<std::uint32_t>(h) == protocol::batch_magic) {
      // Perhaps a batch header. An object of that slot would be `remote` at exactly this address; the header never is.
      at += sizeof(protocol::batch_header);
      continue;
    }
    const std::uint64_t copy = home_bytes(h, bytes + at + header::bytes, window - at);
    if (copy == 0 || at + copy > window) return installed;
    const slot_t slot = header::slot(h);
    const home_address here{first.region, first.generation, static_cast<std::uint32_t>(first.offset + at),
                            size_class::of(copy)};
    if (slot != 0 && slot < hit.slots && tablet_info_of(slot).heap.load(std::memory_order_acquire) == &cache_ &&
        is_at(slot, agent)) {
      std::atomic<word_t>& word = word_at(slot);
      word_t w = word.load(std::memory_order_relaxed);
      // One that refers to what the heap does not have stays remote: whoever wants it hears of that.
      if (word::is_remote(w) && home_address::unpack(w) == here &&
          foreign_reference(h, bytes + at + header::bytes, &cache_) == 0) {
        char* payload = cache_.frames().bump_frame(m.fetched, copy - header::bytes, leave);
        if (!payload) return installed;
        copy_bytes(frame::home_copy(payload), bytes + at, copy);
        frame_prefix& px = frame::prefix(payload);
        px.home.store(w, std::memory_order_relaxed);
        // Nobody else knows the frame yet; an atomic or here waited for the copied bytes to reach memory.
        px.shape.store(px.shape.load(std::memory_order_relaxed) | frame::elastic_bit, std::memory_order_relaxed);
        if (word.compare_exchange_strong(w, word::resident(payload, word::cold_bit | word::clean_bit),
                                         std::memory_order_acq_rel)) {
          m.counters.elastic_installs += 1;
          ++installed;
        } else {
          px.header.store(0, std::memory_order_relaxed);
          cache_.frames().unbump(m.fetched, payload);
        }
      }
    }
    at += copy;
  }
  return installed;
}

void miss_handler::wait_for_fetch(slot_t slot, std::atomic<word_t>& word, word_t seen, time_point deadline) {
  auto* f = word::fetch_of<fetch>(seen);
  const access_wait wait(cache_.pressure(), slot);
  cache_.here().counters.waits_for_fetch += 1;
  f->waiters.fetch_add(1, std::memory_order_seq_cst);
  for (os::spin spin(waits_, limits::spin_for);;) {
    const std::uint32_t sequence = f->sequence.load(std::memory_order_seq_cst);
    if (word.load(std::memory_order_acquire) != seen) break;
    if (clock::now() >= deadline) {
      f->waiters.fetch_sub(1, std::memory_order_relaxed);
      cache_.pressure().expired.fetch_add(1, std::memory_order_relaxed);
      throw error(errc::timed_out, "waiting for another thread's fetch of the same object");
    }
    bool polled = false;
    for (auto& link : cache_.agents()) polled = link->session().poll() != 0 || polled;
    if (polled || spin.again()) continue;
    const polling_pause sessions_look(cache_.agents());
    os::futex_wait(f->sequence, sequence, std::min(deadline, clock::now() + std::chrono::milliseconds(1)));
  }
  f->waiters.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace fm::detail
