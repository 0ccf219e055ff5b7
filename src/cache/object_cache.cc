#include "object_cache.h"
#include "evictor.h"
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "retire_frame.h"

namespace fm::detail {

namespace {

std::mutex caches_mutex;
std::atomic<object_cache*> caches[heaps_max];

void thread_ends(thread_state& t) noexcept {
  for (std::size_t i = 0; i < heaps_max; ++i) {
    if (!t.mutators[i]) continue;
    // The heap cannot close meanwhile and free the mutator: closing takes the same lock first.
    const std::lock_guard lock(caches_mutex);
    if (object_cache* c = caches[i].load(std::memory_order_acquire); c && t.mutators[i])
      c->detach_thread(*t.mutators[i]);
    t.mutators[i] = nullptr;
  }
}

// Before a user's section begins while some heap is short of memory: the thread holds nothing that stands in the way, so it
// evicts or waits here. Bounded: whoever still finds no memory afterwards gets the error that says why.
void relieve_shortage() noexcept {
  std::array<mutator*, heaps_max> mine;
  std::size_t n = 0;
  {
    // A heap may be closed meanwhile: that takes the same lock, and then waits for those who are counted.
    const std::lock_guard lock(caches_mutex);
    for (mutator* m : this_thread.mutators)
      if (m != nullptr) m->cache.gate_waiters.fetch_add(1, std::memory_order_relaxed), mine[n++] = m;
  }
  const time_point begin = clock::now();
  for (std::size_t i = 0; i < n; ++i) {
    object_cache& c = mine[i]->cache;
    c.wait_at_gate(*mine[i], begin + c.options().memory_within);
    c.gate_waiters.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace

object_cache* cache_at(std::uint32_t index) noexcept { return caches[index].load(std::memory_order_acquire); }

object_cache::object_cache(const cache_options& options, links& agents)
    : options_(options),
      links_(agents),
      arena_(options.capacity_bytes, options.segment_bytes),
      pages_(options.hit_bytes, options.hit_residents_max) {
  if (arena_.capacity_segments() < 8)
    throw error(errc::invalid_argument, fmt::format("cache of {} bytes: at least 8 segments of {} bytes are needed",
                                                    options.capacity_bytes, options.segment_bytes));
  arena_.set_policy(options.queues);
  reserve_segments_ = std::max(2u, arena_.capacity_segments() / 32);
  arena_.set_gate_level(reserve_segments_);
  object_bytes_max_ = home_address::offset_limit;
  for (auto& link : links_) {
    object_bytes_max_ = std::min(object_bytes_max_, link->region_bytes() / 2);
    windows_.push_back(std::make_unique<elastic_windows>());
    slot_sources_.push_back(std::make_unique<slot_source>());
  }
  object_bytes_max_ = std::min(object_bytes_max_, options.capacity_bytes / 4);
  {
    const std::lock_guard lock(caches_mutex);
    epochs::at_thread_end(thread_ends);
    epochs::relieve.store(relieve_shortage, std::memory_order_release);
    for (index_ = 0; index_ < heaps_max && caches[index_].load() != nullptr; ++index_) {
    }
    if (index_ == heaps_max)
      throw error(errc::invalid_argument, fmt::format("{} heaps are open in this process already", heaps_max));
    caches[index_].store(this, std::memory_order_release);
  }
  // Where a device reads and writes memory by itself, what misses fetch lands in the frames. A segment is registered at a
  // time, because that is what the arena gives back.
  for (auto& link : links_)
    link->session().lend(arena_.address_space(), arena_.address_space_bytes(), arena_.segment_bytes());
  arena_.before_discard([this](std::byte* from, std::uint64_t bytes) {
    for (auto& link : links_) link->session().take_back(from, bytes, false);
  });
  evictor_ = std::make_unique<evictor>(*this);
  evictor_->start();
}

object_cache::~object_cache() { close(); }

void object_cache::close() noexcept {
  if (closed_.exchange(true)) return;
  arena_.leave_gate();
  evictor_->stop();
  arena_.wake_waiters();
  // Nobody may be inside a section that uses this heap; whoever comes later finds the tablets without an owner.
  {
    const std::lock_guard lock(tablets_mutex_);
    for (const std::uint32_t t : tablets_) hit.tablets[t].heap.store(nullptr, std::memory_order_release);
  }
  epochs::wait_passed(epochs::stamp(), clock::now() + std::chrono::seconds(1));
  for (auto& link : links_) link->close();
  for (auto& link : links_) {
    link->session().take_back(arena_.address_space(), arena_.address_space_bytes(), true);
    const std::lock_guard lock(mutators_mutex_);
    for (auto& m : mutators_) link->session().take_back(m->staging.get(), elastic_windows::window_max, true);
  }
  {
    const std::lock_guard lock(caches_mutex);
    const std::uint32_t index = index_;
    epochs::for_each_thread(
        [](thread_state& t, void* i) { t.mutators[*static_cast<const std::uint32_t*>(i)] = nullptr; },
        const_cast<std::uint32_t*>(&index));
    caches[index_].store(nullptr, std::memory_order_release);
  }
  for (std::uint32_t n; (n = gate_waiters.load(std::memory_order_acquire)) != 0;)
    os::futex_wait(gate_waiters, n, clock::now() + std::chrono::milliseconds(1));
  const std::lock_guard lock(tablets_mutex_);
  for (const std::uint32_t t : tablets_) give_back_tablets(t, 1);
}

mutator& object_cache::attach_thread() {
  const section registered;  // makes the thread known, so that its end is noticed
  const std::lock_guard lock(mutators_mutex_);
  for (auto& m : mutators_) {
    if (m->in_use.load(std::memory_order_acquire)) continue;
    m->in_use.store(true, std::memory_order_relaxed);
    return *(this_thread.mutators[index_] = m.get());
  }
  mutators_.push_back(std::make_unique<mutator>(*this));
  mutator& m = *mutators_.back();
  m.random ^= mutators_.size() * 0x2545f4914f6cdd1d;
  m.next_agent = static_cast<std::uint32_t>(mutators_.size() - 1);
  m.staging = std::make_unique<std::byte[]>(elastic_windows::window_max);
  for (auto& link : links_)
    link->session().lend(m.staging.get(), elastic_windows::window_max, elastic_windows::window_max);
  for (std::uint32_t i = 0; i < mutator::fetches_max; ++i) {
    m.fetches[i].cache = this;
    m.fetches[i].from = &m;
  }
  m.in_use.store(true, std::memory_order_relaxed);
  // Each thread may need a segment inside a section that cannot wait, and one for what it keeps.
  reserve_segments_.store(
      std::min(arena_.capacity_segments() / 4,
               std::max<std::uint32_t>(reserve_segments_, 2 + static_cast<std::uint32_t>(mutators_.size()))));
  arena_.set_gate_level(reserve_segments_);
  return *(this_thread.mutators[index_] = &m);
}

void object_cache::detach_thread(mutator& m) noexcept {
  retire_segments(m);
  m.in_use.store(false, std::memory_order_release);
}

std::vector<std::uint32_t> object_cache::tablets() const {
  const std::lock_guard lock(tablets_mutex_);
  return tablets_;
}

// ---- frames ----

// A filled segment is now and then treated as hot at once (dcm's epsilon): of a scan that is longer than the cache, a part stays
// until the scan comes round again, where queues alone would evict every object just before it is wanted.
bool object_cache::promotes(mutator& m) const noexcept { return options_.queues.promotes(m.next_random()); }

char* object_cache::bump_frame(bump& b, bool proactive, std::uint64_t payload_bytes, std::uint32_t leave) {
  settle(b);
  const std::uint64_t total = frame::total_bytes(payload_bytes);
  char* at = nullptr;
  if (total + 8 > arena_.segment_bytes()) {
    const auto span = static_cast<std::uint32_t>((total + 8 + arena_.segment_bytes() - 1) / arena_.segment_bytes());
    segment* s = arena_.take(span, leave);
    if (!s) return nullptr;
    s->used = 8 + total;
    b.large = s;
    at = s->base + 8;
  } else {
    if (!b.seg || total > static_cast<std::uint64_t>(b.end - b.at)) {
      segment* s = arena_.take(1, leave);
      if (!s) return nullptr;
      if (b.seg) arena_.retire(*b.seg, static_cast<std::uint64_t>(b.at - b.seg->base), proactive || promotes(here()));
      b.seg = s;
      b.at = s->base + 8;
      b.end = s->base + arena_.segment_bytes();
      if (arena_.available() < arena_.capacity_segments() / 8) evictor_->wake();
    }
    at = b.at;
    b.at += total;
  }
  unearth(at, total);
  char* payload = at + sizeof(frame_prefix);
  frame_prefix& px = frame::prefix(payload);
  px.home.store(0, std::memory_order_relaxed);
  px.pins.store(0, std::memory_order_relaxed);
  px.shape.store(static_cast<std::uint32_t>(total / frame::unit_bytes), std::memory_order_relaxed);
  px.header.store(0, std::memory_order_relaxed);
  return payload;
}

void object_cache::unbump(bump& b, char* payload) noexcept {
  const std::uint64_t total = frame::total_bytes_of(payload);
  if (b.large && payload == b.large->base + 8 + sizeof(frame_prefix)) {
    arena_.release(*b.large);
    b.large = nullptr;
  } else if (b.at == payload - sizeof(frame_prefix) + total) {
    b.at -= total;
    bury(b.at, total);
  } else {
    bury_frame(payload);  // it stays as a frame without a header, which the sweep passes over
  }
}

void object_cache::settle(bump& b) noexcept {
  if (!b.large) return;
  arena_.retire(*b.large, b.large->used, false);
  b.large = nullptr;
}

void object_cache::move_frame(char* from, char* to) noexcept {
  frame_prefix& old = frame::prefix(from);
  frame_prefix& px = frame::prefix(to);
  const std::uint32_t shape = old.shape.load(std::memory_order_relaxed);
  px.home.store(old.home.load(std::memory_order_relaxed), std::memory_order_relaxed);
  px.header.store(old.header.load(std::memory_order_relaxed), std::memory_order_relaxed);
  std::memcpy(to, from, frame::total_bytes_of(from) - sizeof(frame_prefix));
  px.shape.fetch_or(shape & (frame::writing_bit | frame::young_bit), std::memory_order_relaxed);
  if ((shape & frame::writing_bit) != 0) {
    arena_.of(to).writing.fetch_add(1, std::memory_order_relaxed);
    arena_.of(from).writing.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool object_cache::relocate(std::atomic<word_t>& word, word_t seen, bump& to, std::uint32_t leave) {
  char* old = word::payload(seen);
  // Nothing of the frame is looked at before the word is ours: it may be evicted until then, and its segment reused.
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen | word::busy_bit, std::memory_order_acq_rel)) return true;
  char* payload = nullptr;
  // A large object is its segment: moving it would gain nothing.
  if (arena_.of(old).span == 1 && frame::prefix(old).pins.load(std::memory_order_acquire) == 0)
    payload = bump_frame(to, true, frame::total_bytes_of(old) - sizeof(frame_prefix), leave);
  if (payload) {
    move_frame(old, payload);
    bury_frame(old);
    word.store(word::resident(payload, seen & word::clean_bit), std::memory_order_release);
    return true;
  }
  word.store(seen, std::memory_order_release);
  return false;
}

std::uint64_t object_cache::home_bytes(std::uint64_t h, const char* payload, std::uint64_t bytes_at_hand) noexcept {
  const type_descriptor* type = find_type(header::type(h));
  if (!type) return 0;
  std::uint64_t length = 0;
  if (type->kind == type_kind::array) {
    if (bytes_at_hand < 16) return 0;
    std::memcpy(&length, payload, 8);
    if (type->bytes != 0 && length > home_address::offset_limit / type->bytes) return 0;
  }
  return header::bytes + type->payload_bytes(length);
}

// ---- resolving ----

object_cache& object_cache::owner_of(slot_t slot) {
  if (slot == 0) throw error(errc::null_handle, "a null fm::ptr or fm::ref was dereferenced");
  if (slot >= hit.slots)
    throw error(errc::not_found, fmt::format("slot {:#x} is outside of the slot range {:#x}", slot, hit.slots));
  object_cache* c = tablet_info_of(slot).heap.load(std::memory_order_acquire);
  if (!c) throw error(errc::heap_closed, fmt::format("the heap of slot {:#x} is closed", slot));
  return *c;
}

char* object_cache::resolve(slot_t slot, access how, section_kind section) {
  return owner_of(slot).resolve_here(slot, how, section);
}

char* resolve(slot_t slot, access how, section_kind section) { return object_cache::resolve(slot, how, section); }

new_object allocate(object_cache& cache, const type_descriptor& type, std::uint64_t length, const void* init,
                    std::uint64_t init_bytes) {
  return cache.allocate(type, length, init, init_bytes);
}

std::uint64_t capacity_bytes(const object_cache& cache) noexcept { return cache.options().capacity_bytes; }

char* object_cache::resolve_here(slot_t slot, access how, section_kind section) {
  std::atomic<word_t>& word = word_at(slot);
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (word::is_resident(w)) {
      if (word::is_cold(w)) {
        if (word::is_busy(w))
          cpu_relax();
        else
          touch(word, w);
        continue;
      }
      if (how == access::write && word::is_clean(w)) {
        if (word.compare_exchange_strong(w, w & ~word::clean_bit, std::memory_order_acq_rel)) note_news(slot);
        continue;
      }
      return word::payload(w);
    }
    if (word::is_fetching(w))
      wait_for_fetch(word, w, clock::now() + options_.access_within);
    else if (w == word::free)
      throw error(errc::not_found, fmt::format("slot {:#x} holds no object", slot));
    else
      miss(slot, word, w, section);
  }
}

void object_cache::touch(std::atomic<word_t>& word, word_t seen) {
  mutator& m = here();
  m.counters.touches += 1;
  char* payload = word::payload(seen);
  frame_prefix& px = frame::prefix(payload);
  const std::uint64_t stamp = arena_.of(payload).cold_stamp.load(std::memory_order_acquire);
  const bool moved = stamp != 0 && epochs::passed(stamp) && relocate(word, seen, m.kept, 1);
  if (moved) {
    m.counters.relocations += 1;
    return;
  }
  word_t expected = seen;
  if (!word.compare_exchange_strong(expected, seen & ~word::cold_bit, std::memory_order_acq_rel)) return;
  if ((px.shape.load(std::memory_order_relaxed) & frame::elastic_bit) != 0) {
    px.shape.fetch_and(~frame::elastic_bit, std::memory_order_relaxed);
    m.counters.elastic_touches += 1;
    const slot_t slot = header::slot(px.header.load(std::memory_order_relaxed));
    windows(tablet_info_of(slot).agent.load(std::memory_order_relaxed))
        .stretch(home_address::unpack(px.home.load(std::memory_order_relaxed)));
  }
}

// ---- retirement and flushing ----

void object_cache::on_retire(std::uint32_t agent, std::uint32_t region, std::uint32_t generation) noexcept {
  const std::lock_guard lock(retirements_mutex_);
  // The link has made the region unreadable before this call: what reads it now began before the stamp.
  retirements_.push_back({agent, region, generation, epochs::stamp()});
  retirements_pending_.store(static_cast<std::uint32_t>(retirements_.size()), std::memory_order_release);
  evictor_->wake();
}

void object_cache::acknowledge_retired() noexcept {
  if (retirements_pending_.load(std::memory_order_acquire) == 0) return;
  std::vector<retirement> ready;
  {
    const std::lock_guard lock(retirements_mutex_);
    // First the sections, then the detached fetches: a fetch that is not seen here was posted in a section that had not
    // ended, so the stamp had not passed.
    std::uint64_t newest = 0;
    for (const retirement& r : retirements_) {  // in the order of their stamps
      if (!epochs::readers_passed(r.stamp)) break;
      newest = r.stamp;
    }
    std::uint64_t oldest_detached = ~std::uint64_t{0};
    for_each_mutator([&](mutator& m) {
      for (std::uint32_t i = 1; i < mutator::fetches_max; ++i)
        if (const std::uint64_t at = m.fetches[i].posted_at.load(std::memory_order_seq_cst); at != 0)
          oldest_detached = std::min(oldest_detached, at);
    });
    std::erase_if(retirements_, [&](const retirement& r) {
      if ((r.stamp > newest || oldest_detached <= r.stamp) && !mutated(mutation::retire_while_read)) return false;
      ready.push_back(r);
      return true;
    });
    retirements_pending_.store(static_cast<std::uint32_t>(retirements_.size()), std::memory_order_release);
  }
  for (const retirement& r : ready) links_[r.agent]->retired(r.region, r.generation);
}

void object_cache::retire_segments(mutator& m) noexcept {
  for (bump* b : {&m.young, &m.kept}) {
    settle(*b);
    if (b->seg) arena_.retire(*b->seg, static_cast<std::uint64_t>(b->at - b->seg->base), b == &m.kept);
    *b = {};
  }
}

errc object_cache::evict_all(time_point deadline) {
  retire_segments();
  return evictor_->drain(deadline);
}

}  // namespace fm::detail
