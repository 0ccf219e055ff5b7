// Entries, types and regions of one heap; see heap.h for the layout of a tablet and for the invariants.
// Everything here changes a heap, so its caller holds the heap's mutex; tell_traced takes it itself.
// Called by heap_session, by the tracer, and by whoever moves objects.
#include "heap.h"

#include "base/log.h"

#include <bit>

#include "agent/base/answers.h"
#include "agent/base/limits.h"
#include "agent/base/session.h"
#include "base/text.h"

namespace fm::agent {

heap::heap(region_pool& p, const open_heap_body& b, std::uint64_t quota, std::uint32_t lease)
    : regions_pool(p),
      key{{b.heap_id[0], b.heap_id[1]}, b.incarnation},
      name(detail::readable({b.name, sizeof b.name})),
      quota_bytes(quota),
      lease_ms(lease),
      tablets_(std::uint64_t{tablet_limit} * 8, detail::page_bytes),
      type_entries_(std::uint64_t{type_limit} * sizeof(type_entry), detail::page_bytes) {}

heap::~heap() = default;

errc heap::grant(std::uint32_t first, std::uint32_t count) {
  changes();
  forget_backups(first, count);
  if (const errc e = reserve_tablets(first, count); e != errc::ok) return e;
  return promote(first, count);
}

errc heap::replicate(std::uint32_t first, std::uint32_t count) {
  changes();
  for (std::uint32_t t = first; t < first + count; ++t) {
    const std::uint64_t word = tablet_word(t).load(std::memory_order_relaxed);
    if (word != 0 && (word & is_backup) == 0) return errc::refused;
  }
  forget_backups(first, count);
  const errc e = reserve_tablets(first, count);
  for (std::uint32_t t = first; t < first + count; ++t)
    if (std::atomic<std::uint64_t>& word = tablet_word(t); word.load(std::memory_order_relaxed) != 0)
      word.fetch_or(is_backup, std::memory_order_acq_rel);
  return e;
}

errc heap::leave(std::uint32_t first, std::uint32_t count) {
  changes();
  for (std::uint32_t t = first; t < first + count; ++t)
    if (std::atomic<std::uint64_t>& word = tablet_word(t); word.load(std::memory_order_relaxed) != 0)
      word.fetch_or(is_backup, std::memory_order_acq_rel);
  forget_backups(first, count);
  return errc::ok;
}

void heap::forget_backups(std::uint32_t first, std::uint32_t count) {
  slot_bits all{};
  std::fill(std::begin(all.bits), std::end(all.bits), ~std::uint64_t{0});
  release_answer forgotten{};
  for (std::uint32_t t = first; t < first + count; ++t) {
    if ((tablet_word(t).load(std::memory_order_relaxed) & is_backup) == 0) continue;
    for (std::uint64_t page = 0; page < tablet_pages; ++page) {
      all.first_slot = t * detail::tablet_slots + page * page_slots;
      release(all, forgotten);
    }
  }
}

errc heap::reserve_tablets(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t t = first; t < first + count;) {
    if (tablet_block_of(t) != nullptr) {
      ++t;
      continue;
    }
    std::uint32_t n = 1;  // of a run that is not granted yet: one reservation
    while (t + n < first + count && tablet_block_of(t + n) == nullptr) ++n;
    const std::uint64_t most =
        std::min<std::uint64_t>(limits::tablets_max, limits::tablets_least + quota_bytes / limits::quota_per_tablet);
    if (n > most - tablets) return errc::quota_exceeded;
    os::reservation block;
    try {
      block = os::reservation(tablet_block * n, detail::page_bytes);
    } catch (const error& e) {
      log::error("heap {}: {}", name, e.what());
      return errc::agent_full;
    }
    const std::byte* const base = tablet_blocks.emplace(t, std::move(block)).first->second.base();
    for (std::uint32_t i = 0; i < n; ++i)
      tablet_word(t + i).store(reinterpret_cast<std::uint64_t>(base + tablet_block * i), std::memory_order_release);
    tablets += n;
    t += n;
  }
  return errc::ok;
}

errc heap::promote(std::uint32_t first, std::uint32_t count) {
  changes();
  for (std::uint32_t t = first; t < first + count; ++t)
    if (tablet_word(t).load(std::memory_order_relaxed) == 0) return errc::not_found;
  for (std::uint32_t t = first; t < first + count; ++t) tablet_word(t).fetch_and(~is_backup, std::memory_order_acq_rel);
  return errc::ok;
}

errc heap::learn_type(std::uint32_t id, heap_type t) {
  if (const auto known = types.find(id); known != types.end()) {
    const heap_type& k = known->second;
    const bool same = k.kind == t.kind && k.bytes == t.bytes && k.layout_hash == t.layout_hash &&
                      k.ref_offsets == t.ref_offsets && k.name == t.name;
    return same ? errc::ok : errc::layout_mismatch;
  }
  const std::uint64_t bytes = sizeof(heap_type) + 64 + t.name.size() + t.ref_offsets.size() * 4;
  changes();
  if (types.size() >= limits::types_max || type_bytes + bytes > limits::type_bytes_max) return errc::too_large;
  const std::uint64_t size = type_known | (t.kind == 1 ? type_array : 0) | t.bytes;
  const heap_type& known = types.emplace(id, std::move(t)).first->second;
  type_bytes += bytes;
  type_entry& e = type_entries()[id];
  e.offsets = known.ref_offsets.data();
  e.count = static_cast<std::uint32_t>(known.ref_offsets.size());
  e.size.store(size, std::memory_order_release);
  return errc::ok;
}

region* heap::open_region(region_use use, errc& why) {
  const bool too_many = use == region_use::owner ? (regions.size() + 1) * regions_pool.region_bytes() > quota_bytes
                        : use == region_use::evacuation ? until_low() == 0
                                                        : false;
  if (too_many) {
    why = errc::quota_exceeded;
    return nullptr;
  }
  if (regions.size() == regions.capacity()) regions.reserve(2 * regions.size() + 8);  // before one is taken
  region* r = regions_pool.take(this, key, use);
  if (r == nullptr) {
    why = errc::agent_full;
    return nullptr;
  }
  regions.push_back(r);
  return r;
}

void heap::seal(region& r) {
  r.writable.store(false, std::memory_order_release);
  const auto fill = [&](std::uint64_t from, std::uint64_t to) {
    if (to - from >= sizeof(batch_header)) {
      batch_header filler{batch_magic, 0, 0, static_cast<std::uint32_t>(to - from), 0};
      filler.crc = detail::crc32c(&filler, sizeof filler);
      std::memcpy(r.memory.base() + from, &filler, sizeof filler);
    } else if (to > from) {
      std::memset(r.memory.base() + from, 0, to - from);
    }
  };
  std::uint64_t at = 0;
  for (const extent& e : r.extents) {
    fill(at, e.begin);
    at = e.end;
  }
  fill(at, r.memory.bytes());
  r.state = region_state::sealed;
  if (r.live_count == 0) {
    r.state = region_state::retiring;
    send_notice(r);
  }
}

void heap::add_live(region& r, word_t w) noexcept {
  ++r.live_count;
  r.live_bytes += detail::size_class::bytes(home_address::unpack(w).size_class);
}

void heap::drop_live(region& r, word_t w) {
  const std::uint64_t bytes = detail::size_class::bytes(home_address::unpack(w).size_class);
  FM_CHECK(r.live_count > 0 && r.live_bytes >= bytes, "a region's account went below zero");
  --r.live_count;
  r.live_bytes -= bytes;
  if (r.live_count == 0 && r.state == region_state::sealed) {
    r.state = region_state::retiring;
    send_notice(r);
  }
}

bool heap::send_drain_notice(bool drains) {
  const struct {
    message_head head;
    drain_notice body;
  } notice{{static_cast<std::uint16_t>(message_type::drain), 0, sizeof(drain_notice)}, {drains ? 1u : 0u, 0}};
  if (!owner->peer.notify({reinterpret_cast<const std::byte*>(&notice), sizeof notice})) return false;
  told_to_leave = drains;
  was_told = true;
  tell_again = false;
  return true;
}

void heap::send_notice(region& r) {
  r.notice_pending = true;
  notices_pending = true;  // until store::maintain has looked
  if (owner == nullptr) return;
  struct __attribute__((packed)) {
    message_head head;
    region_name name;
  } const notice{{static_cast<std::uint16_t>(message_type::retire_region), 0, sizeof(region_name)},
                 {r.number, r.generation}};
  if (owner->peer.notify({reinterpret_cast<const std::byte*>(&notice), sizeof notice})) r.notice_pending = false;
}

void heap::free_region(region& r) {
  regions.erase(std::find(regions.begin(), regions.end(), &r));
  ++regions_retired;
  regions_pool.give_back(r, true);
}

void heap::close() {
  closed.store(true);
  // Whoever is tracing leaves by itself: it keeps the regions that it has entered, and the heap.
  if (const auto c = running_cycle()) c->abandon();
  for (region* r : regions) regions_pool.give_back(*r, false);
  regions.clear();
  owner = nullptr;
  cleaning = {};
  move_target = nullptr;
}

void heap::begin_cycle(std::shared_ptr<heap_cycle> t) {
  changes();
  for (const auto& [first, block] : tablet_blocks)
    for (std::uint32_t i = 0; i < block.bytes() / tablet_block; ++i)
      if (std::atomic<std::uint64_t>& word = tablet_word(first + i);
          (word.load(std::memory_order_relaxed) & is_backup) == 0)
        word.fetch_or(in_cycle, std::memory_order_release);
  std::lock_guard lock(cycle_mutex_);
  cycle_ = std::move(t);
}

void heap::end_cycle() {
  std::shared_ptr<heap_cycle> ended;
  {
    std::lock_guard lock(cycle_mutex_);
    ended = std::move(cycle_);
  }
  if (ended == nullptr) return;
  ended->end();
  trace_faults += ended->faults();
  cycle_ended_with = {objects, 0, regions.size(), ended->tracing_ns()};
  for (const region* r : regions) cycle_ended_with.live_bytes += r->live_bytes;
  for (const auto& [first, block] : tablet_blocks)
    for (std::uint32_t i = 0; i < block.bytes() / tablet_block; ++i) {
      std::atomic<std::uint64_t>& word = tablet_word(first + i);
      if ((word.fetch_and(~in_cycle, std::memory_order_acq_rel) & in_cycle) == 0) continue;
      std::byte* const b = block.base() + i * tablet_block;
      os::reservation::discard(b + marks_at, 2 * marks_bytes);
      record(b).rescan.store(0, std::memory_order_relaxed);
    }
}

void heap::tell_traced(const heap_cycle& t) {
  std::lock_guard lock(mutex);
  if (owner == nullptr || running_cycle().get() != &t) return;
  struct __attribute__((packed)) {
    message_head head;
    cycle_name name;
  } const notice{{static_cast<std::uint16_t>(message_type::traced), 0, sizeof(cycle_name)}, {t.cycle}};
  owner->peer.notify({reinterpret_cast<const std::byte*>(&notice), sizeof notice});  // lost: the owner also asks
}

bool heap::is_dead(const slot_bits& p) const noexcept {
  const std::uint64_t word = tablet_words()[detail::tablet_of(p.first_slot)].load(std::memory_order_acquire);
  if ((word & is_backup) != 0) return true;
  if ((word & in_cycle) == 0)
    return std::all_of(p.bits, p.bits + page_slots / 64, [](std::uint64_t b) { return b == 0; });
  const bits_t* const marked = marks(block_in(word)) + p.first_slot % detail::tablet_slots / 64;
  for (std::uint32_t i = 0; i < page_slots / 64; ++i)
    if ((p.bits[i] & marked[i].load(std::memory_order_acquire)) != 0) return false;
  return true;
}

void heap::release(const slot_bits& p, release_answer& a) {
  std::byte* const block = tablet_block_of(detail::tablet_of(p.first_slot));
  const std::uint64_t page = p.first_slot % detail::tablet_slots / page_slots;
  entry_t* const entries = reinterpret_cast<entry_t*>(block) + page * page_slots;
  std::uint16_t& count = page_counts(block)[page];
  if (count == 0) return;
  for (std::uint32_t word = 0; word < page_slots / 64 && count != 0; ++word)
    for (std::uint64_t bits = p.bits[word]; bits != 0; bits &= bits - 1) {
      entry_t& entry = entries[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))];
      if (entry.load(std::memory_order_relaxed) == 0) continue;
      const word_t old = entry.exchange(0, std::memory_order_acq_rel);
      const home_address at = home_address::unpack(old);
      drop_live(*regions_pool.find(at.region), old);
      --objects;
      --count;
      ++slots_released;
      ++a.entries;
      a.bytes += detail::size_class::bytes(at.size_class);
    }
  if (count != 0) return;
  // No entry is left in this page of memory. Those who read it without the lock go on reading zeros.
  --entry_pages;
  os::reservation::discard(entries, page_slots * sizeof(entry_t));
}

std::uint64_t heap::metadata_bytes() const noexcept {
  std::uint64_t n = sizeof(heap) + entry_pages * detail::page_bytes + std::uint64_t{tablets} * detail::page_bytes;
  n += type_bytes + detached.record.capacity() + scratch.capacity() * sizeof(item);
  if (const auto c = running_cycle()) n += c->memory_bytes();
  for (const region* r : regions) n += sizeof(region) + r->extents.capacity() * sizeof(extent);
  return n;
}

bool heap::may_empty_regions() const noexcept {
  const auto waiting =
      std::count_if(regions.begin(), regions.end(), [](const region* r) { return r->state == region_state::retiring; });
  return owner != nullptr && waiting < limits::retiring_most;
}

std::uint64_t heap::left() const noexcept {
  const std::uint64_t quota = quota_bytes / regions_pool.region_bytes();
  return std::min(regions_pool.left_for_owners(), regions.size() < quota ? quota - regions.size() : 0);
}

std::uint64_t heap::until_low() const noexcept {
  const std::uint64_t quota = quota_bytes / regions_pool.region_bytes();
  const std::uint64_t left = regions.size() < quota ? quota - regions.size() : 0;
  return std::min(regions_pool.until_low(), left - std::min(left, region_pool::low_mark(quota)));
}

bool heap::is_low() const noexcept {
  const std::uint64_t quota = quota_bytes / regions_pool.region_bytes();
  const std::uint64_t left = regions.size() < quota ? quota - regions.size() : 0;
  return regions_pool.is_low() || left < region_pool::low_mark(quota);
}

}  // namespace fm::agent
