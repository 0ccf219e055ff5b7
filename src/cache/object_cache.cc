// Putting the parts together, opening and closing, and the slow path of the barriers; see object_cache.h.
//
// Invariant: closing goes from the outside in. First nothing is evicted. Then no thread finds the heap by its slots.
// Then no section is left that had found it; a second is allowed for that. Only then do its words and numbers go back.
#include "object_cache.h"
#include "cache/eviction/evictor.h"
#include "cache/memory/holders.h"
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace fm::detail {

object_cache::object_cache(const cache_options& options, links& agents) : options_(options), links_(agents) {
  stored_bytes_max_ =
      std::min<std::uint64_t>(home_address::offset_limit, options.capacity_bytes / limits::objects_of_cache);
  for (auto& link : links_) stored_bytes_max_ = std::min(stored_bytes_max_, link->region_bytes() / 2);
  for (std::size_t i = 0; i < links_.size(); ++i) slots_.add_agent(), misses_.add_agent();
  mutators_.open();
  // Where a device reads and writes memory by itself, what misses fetch lands in the frames. A segment is registered at
  // a time, because that is what the arena gives back.
  for (auto& link : links_)
    link->session().lend(memory().address_space(), memory().address_space_bytes(), memory().segment_bytes());
  memory().before_discard([this](std::byte* from, std::uint64_t bytes) {
    for (auto& link : links_) link->session().take_back(from, bytes, false);
  });
  evictor_ = std::make_unique<evictor>(*this);
  evictor_->start();
}

void object_cache::expect_agent(remote::agent_session& next, const std::function<void()>& add) {
  slots_.add_agent();
  misses_.add_agent();
  fabric::session& session = next.session();
  session.lend(memory().address_space(), memory().address_space_bytes(), memory().segment_bytes());
  leases_.lend_staging(
      [&](std::byte* buffer) { session.lend(buffer, elastic_windows::window_max, elastic_windows::window_max); }, add);
}

object_cache::~object_cache() {
  close();
  keep_what_is_pinned(*this);
}

void object_cache::close() noexcept {
  if ((unusual_.fetch_or(is_closed) & is_closed) != 0) return;
  memory().leave_gate();
  evictor_->stop();
  memory().wake_waiters();
  // Nobody may be inside a section that uses this heap; whoever comes later finds the tablets without an owner.
  slots_.disown();
  epochs::wait_passed(epochs::stamp(), clock::now() + std::chrono::seconds(1));
  for (auto& link : links_) link->close();
  for (auto& link : links_) {
    link->session().take_back(memory().address_space(), memory().address_space_bytes(), true);
    leases_.for_each_staging(
        [&](std::byte* buffer) { link->session().take_back(buffer, elastic_windows::window_max, true); });
  }
  // Those who have left their sections to wait find their requests failed; they go on in sections, and end.
  pressure_.await_waiters();
  epochs::wait_passed(epochs::stamp(), clock::now() + std::chrono::seconds(1));
  mutators_.close();
  pressure_.await_waiters();
  slots_.give_back();
}

void object_cache::give_back_pieces() noexcept {
  if (mutator* m = mutators_.known()) leases_.give_back_pieces(*m);
}

errc object_cache::evict_all(time_point deadline) {
  const section_break outside;
  section_break::require_left("evicting everything");
  give_back_pieces();
  leases_.take_back_all();
  const errc e = evictor_->drain(deadline);
  pages_.look_again();
  if (pages_.over()) evictor_->wake();
  return e;
}

// ---- resolving ----

object_cache& object_cache::owner_of(slot_t slot) {
  if (slot == 0)
    throw error(
        errc::null_handle,
        fmt::format("a null fm::ptr or fm::ref was dereferenced{}",
                    os::fork_depth() == 0 ? "" : " (after fork, a child's handles to its parent's heaps are null)"));
  if (slot >= hit.slots)
    throw error(errc::not_found, fmt::format("slot {:#x} is outside of the slot range {:#x}", slot, hit.slots));
  object_cache* c = tablet_info_of(slot).heap.load(std::memory_order_acquire);
  if (!c) throw error(errc::heap_closed, fmt::format("the heap of slot {:#x} is closed", slot));
  return *c;
}

char* object_cache::resolve_here(slot_t slot, access how) {
  (void)mutators_.here(slot);  // asked for again below, where the section must not be left
  std::atomic<word_t>& word = word_at(slot);
  time_point waited_since{};  // for the fetches of others
  for (;;) {
    word_t w = word.load(std::memory_order_acquire);
    if (word::is_resident(w)) {
      if (word::is_cold(w)) {
        if (word::is_busy(w))
          cpu_relax();
        else
          frames_.touch(here(), word, w);
        continue;
      }
      if (how == access::write && word::is_clean(w)) {
        if (frames_.keeps_for_reads() && pressure_.await_share(here(), slot)) continue;
        if (word.compare_exchange_strong(w, w & ~word::clean_bit, std::memory_order_acq_rel)) {
          note_dirty(slot);
          if (frames_.keeps_for_reads()) losses_.note_changed(slot, word::payload(w));
        }
        continue;
      }
      return word::payload(w);
    }
    if (word::is_fetching(w)) {
      // Such a fetch ends by its own deadline, which its agent's answers to others put off (fabric::request::patience).
      if (waited_since == time_point{}) waited_since = clock::now();
      misses_.wait_for_fetch(slot, word, w, waited_since + limits::waits_at_most * options_.access_within);
    } else if (w == word::free) {
      throw error(errc::not_found, fmt::format("slot {:#x} holds no object", slot));
    } else {
      // All threads that waited for a fetch that failed would try in turn, and wait for each other's.
      if (waited_since != time_point{} && clock::now() >= waited_since + options_.access_within)
        throw_access(errc::timed_out, slot, link_of(slot));
      const tablet_home home(slot);
      try {
        misses_.miss(slot, word, w);
      } catch (const error& e) {
        if (e.code() != errc::agent_lost || !losses_.await_home(slot, home)) throw;
      }
    }
  }
}

// ---- for code that is compiled into programs (farmem/detail/barriers/access.h) ----

char* resolve(slot_t slot, access how) { return object_cache::resolve(slot, how); }

new_object allocate(object_cache& cache, const type_descriptor& type, std::uint64_t length, const void* init,
                    std::uint64_t init_bytes) {
  return cache.allocate(type, length, init, init_bytes);
}

bool names_objects(const object_cache& cache, const type_descriptor& type, const void* init) noexcept {
  for (const std::uint32_t at : type.ref_offsets) {
    slot_t s = 0;
    std::memcpy(&s, static_cast<const char*>(init) + at, sizeof s);
    if (s == 0) continue;
    if (s >= hit.slots || tablet_info_of(s).heap.load(std::memory_order_acquire) != &cache) return false;
    if (word_at(s).load(std::memory_order_acquire) == word::free) return false;
  }
  return true;
}

std::uint64_t capacity_bytes(const object_cache& cache) noexcept { return cache.capacity_bytes(); }

}  // namespace fm::detail
