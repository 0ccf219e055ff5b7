// Allocation, access and release of a pool's objects; see blocks.h for the invariants and for who may do what.
// An operation that turns out to change the structure while it is shared has done nothing, and comes again.
// Called by pool_session with the pool's structure, and by compaction.
#include "blocks.h"
#include "object_memory.h"
#include "structure_lock.h"

namespace fm::agent {

using blocks::consistency;
using blocks::object_header;

// ---- objects in memory ----

void pool_blocks::mark(const frame& f, std::uint32_t slot, std::uint16_t flags) {
  std::byte* const at = slot_memory(f, slot);
  std::uint64_t word = shared_memory::load_word(at + 8);
  word = (word & ~(std::uint64_t{0xffff} << 16)) | std::uint64_t{flags} << 16;
  shared_memory::store_word(at + 8, word);
}

object_header pool_blocks::header_of(const frame& f, std::uint32_t slot) const {
  const std::byte* const at = slot_memory(f, slot);
  const std::array<std::uint64_t, 3> words{shared_memory::load_word(at), shared_memory::load_word(at + 8),
                                           shared_memory::load_word(at + 16)};
  object_header h;
  static_assert(sizeof words == sizeof h);
  std::memcpy(&h, words.data(), sizeof h);
  return h;
}

/// Readers see the header locked before the first byte changes, and unlocked after the last.
void pool_blocks::store_object(frame& f, std::uint32_t slot, const blocks::identity& id,
                               std::span<const std::byte> payload, std::uint32_t version) {
  if (merge_.running && merge_.from == f.number) merge_.changed.set(slot);
  const auto payload_bytes = static_cast<std::uint32_t>(payload.size());
  object_header h{id.vblock, id.generation, id.index, blocks::flag_live | blocks::flag_locked,
                  version,   payload_bytes, 0};
  const consistency how = layout().mode(f.size_class);
  std::byte* const at = slot_memory(f, slot);
  std::array<std::uint64_t, 3> words;
  const auto pack = [&] { std::memcpy(words.data(), &h, sizeof h); };
  pack();
  shared_memory::store_word(at + 8, words[1]);
  shared_memory::fence();
  shared_memory::store_word(at, words[0]);
  if (how == consistency::checksum) {
    h.crc = blocks::checksum(h, payload.data());
    shared_memory::copy(at + blocks::header_bytes, payload.data(), payload.size());
  } else {
    const std::uint32_t bytes = blocks::occupied_bytes(payload_bytes, how);
    thread_local std::vector<std::byte> lines;
    if (lines.size() < bytes) lines.resize(bytes);
    blocks::scatter_lines(lines.data(), h.version, payload.data(), payload_bytes);
    shared_memory::copy(at + blocks::header_bytes, lines.data() + blocks::header_bytes, bytes - blocks::header_bytes);
  }
  h.flags = blocks::flag_live;
  pack();
  shared_memory::store_word(at + 16, words[2]);
  shared_memory::fence();
  shared_memory::store_word(at + 8, words[1]);
}

errc pool_blocks::load_object(const frame& f, std::uint32_t slot, std::vector<std::byte>& payload) const {
  const consistency how = layout().mode(f.size_class);
  const std::byte* const at = slot_memory(f, slot);
  const object_header h = header_of(f, slot);
  if (!is_resident(f, slot, h)) return errc::corrupt;
  const std::size_t begin = payload.size();
  payload.resize(begin + h.bytes);
  if (how == consistency::checksum) {
    shared_memory::copy(payload.data() + begin, at + blocks::header_bytes, h.bytes);
    return blocks::checksum(h, payload.data() + begin) == h.crc ? errc::ok : errc::corrupt;
  }
  std::vector<std::byte> slot_bytes(blocks::occupied_bytes(h.bytes, how));
  shared_memory::copy(slot_bytes.data(), at, slot_bytes.size());
  return blocks::gather_lines(slot_bytes.data(), h.version, payload.data() + begin, h.bytes) ? errc::ok : errc::corrupt;
}

// ---- births ----

namespace {

std::uint32_t hash_of(std::uint32_t vblock, std::uint16_t index) {
  return static_cast<std::uint32_t>((std::uint64_t{vblock} << 16 | index) * 0x9e3779b97f4a7c15 >> 32);
}

}  // namespace

void pool_blocks::index_slot(frame& f, std::uint32_t slot, const blocks::identity& id) {
  if (slot == id.index) return;
  const std::uint64_t before = f.displaced.bytes();
  f.displaced.add(hash_of(id.vblock, id.index), static_cast<std::uint16_t>(slot), [&](std::uint16_t s) {
    const object_header h = header_of(f, s);
    return hash_of(h.vblock, h.index);
  });
  frame_books_.fetch_add(f.displaced.bytes() - before, std::memory_order_relaxed);
}

void pool_blocks::unindex_slot(frame& f, std::uint32_t slot, const blocks::identity& id) {
  if (slot == id.index) return;
  const std::uint64_t before = f.displaced.bytes();
  f.displaced.remove(hash_of(id.vblock, id.index), static_cast<std::uint16_t>(slot), [&](std::uint16_t s) {
    const object_header h = header_of(f, s);
    return hash_of(h.vblock, h.index);
  });
  frame_books_.fetch_sub(before - f.displaced.bytes(), std::memory_order_relaxed);
}

errc pool_blocks::bear(frame& f, std::uint32_t slot, blocks::identity& out) {
  if (out_of_births(f))
    if (const errc e = add_primary(f); e != errc::ok) return e;
  vblock& b = vblocks_[f.primary];
  std::uint32_t index = slot;
  if (const std::uint32_t bits = blocks::random_bits(classes_[f.size_class].naming); bits != 0) {
    const std::uint32_t ids = 1u << bits;
    const std::lock_guard lock(random_mutex_);
    // In the middle of a merge, an id must be new to both blocks.
    const frame* const other = !merge_.running           ? nullptr
                               : merge_.from == f.number ? all_[merge_.to].get()
                               : merge_.to == f.number   ? all_[merge_.from].get()
                                                         : nullptr;
    do index = static_cast<std::uint32_t>(random_.next()) & (ids - 1);
    while (f.ids.test(index) || (other != nullptr && other->ids.test(index)));
    f.ids.set(index);
  }
  ++b.live;
  out = {f.primary, ++b.last_generation, static_cast<std::uint16_t>(index)};
  return errc::ok;
}

void pool_blocks::unbear(frame& f, const blocks::identity& id) {
  if (classes_[f.size_class].random()) f.ids.clear(id.index);
  if (--vblocks_[id.vblock].live == 0 && id.vblock != f.primary) unmap(id.vblock);
}

pool_blocks::where pool_blocks::where_of(std::uint32_t slot, const blocks::identity& id) const {
  return {id, static_cast<std::uint16_t>(slot), word_of(id.vblock)};
}

pool_blocks::found pool_blocks::find(const where& at, frame_guard& inside) const {
  const found o = locate(at, inside);
  return o.f != nullptr && has_expired(*o.f, o.slot) ? found{} : o;
}

pool_blocks::found pool_blocks::locate(const where& at, frame_guard& inside) const {
  if (at.id.generation == 0 || at.id.vblock >= vblocks_.size() || vblocks_[at.id.vblock].frame == none) return {};
  frame& f = *all_[vblocks_[at.id.vblock].frame];
  inside = enter(f);
  found o;
  const auto lives_in = [&](std::uint32_t slot) {
    if (slot >= f.slots) return false;
    const object_header h = header_of(f, slot);
    if (!blocks::names(h, at.id) || !is_resident(f, slot, h)) return false;
    o = {&f, slot, h.bytes, blocks::version_of(h)};
    return true;
  };
  if (!lives_in(at.slot) && !lives_in(at.id.index))
    (void)f.displaced.find(hash_of(at.id.vblock, at.id.index), lives_in);
  return o;
}

// ---- the log ----

pool_log::entry pool_blocks::note_object(const frame& f, std::span<const std::byte> payload) const {
  return writes_down(f) ? pool_log::make(record_kind::object, object_record{}, payload) : pool_log::entry();
}

// ---- what clients ask for ----

outcome pool_blocks::allocate(std::span<const std::byte> payload, std::uint32_t arena_wanted, where& out, held how,
                              std::uint64_t expires_ms, const asked_change& by) {
  const std::uint32_t c = payload.empty() ? blocks::class_count : layout().class_for(payload.size());
  if (c == blocks::class_count) return errc::too_large;
  size_class_state& k = classes_[c];
  const std::uint32_t arena_number = serving_number() * options_.arenas + arena_wanted % options_.arenas;
  frame_guard inside;
  frame* f = current_frame(k, arena_number, inside);
  if (f == nullptr) f = frame_with_room(k, arena_number, inside);
  if (how == held::shared && (f == nullptr || out_of_births(*f))) return {};
  if (f == nullptr) {
    if (const errc e = add_frame(c, arena_number); e != errc::ok) return e;
    f = frame_with_room(k, arena_number, inside);
    FM_CHECK(f != nullptr, "a frame that was added has room");
  }
  const std::uint32_t slot = free_slot(*f, f->cursor);
  pool_log::entry note = note_object(*f, payload);
  blocks::identity id;
  if (const errc e = bear(*f, slot, id); e != errc::ok) return e;
  const expiry expires = expires_ms != 0 ? expiry_in(expires_ms) : 0;
  if (note != nullptr)
    pool_log::fill(note, object_record{by.origin, f->number, slot, id.vblock, id.generation, id.index, 0, 0,
                                       static_cast<std::uint32_t>(object_change::allocated), expires});
  take_slot(*f, slot);
  f->cursor = slot + 1 == f->slots ? 0 : slot + 1;
  ++f->live;
  store_object(*f, slot, id, payload, static_cast<std::uint32_t>(write_down(std::move(note))));
  index_slot(*f, slot, id);
  if (expires != 0) set_expiry(*f, slot, expires);
  k.counts.allocated.fetch_add(1, std::memory_order_release);
  k.counts.payload_bytes.fetch_add(payload.size(), std::memory_order_relaxed);
  out = where_of(slot, id);
  return errc::ok;
}

errc pool_blocks::read(where& at, std::vector<std::byte>& payload, std::uint32_t bytes_max) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  if (o.bytes > bytes_max) return errc::too_large;
  at = where_of(o.slot, at.id);
  at.version = o.version;
  return load_object(*o.f, o.slot, payload);
}

std::uint32_t pool_blocks::bytes_of(const where& at) const {
  frame_guard inside;
  return find(at, inside).bytes;
}

errc pool_blocks::write(where& at, std::span<const std::byte> payload, std::uint32_t& bytes, const asked_change& by,
                        std::optional<std::uint64_t> only_if) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  bytes = o.bytes;
  if (bytes != payload.size()) return errc::layout_mismatch;
  if (by.has_passed()) return errc::timed_out;
  if (only_if && *only_if != o.version) return errc::conflict;
  pool_log::entry note = note_object(*o.f, payload);
  if (note != nullptr)
    pool_log::fill(note, object_record{by.origin, o.f->number, o.slot, at.id.vblock, at.id.generation, at.id.index, 0,
                                       0, static_cast<std::uint32_t>(object_change::written), 0});
  store_object(*o.f, o.slot, at.id, payload, static_cast<std::uint32_t>(write_down(std::move(note))));
  at = where_of(o.slot, at.id);
  at.version = blocks::version_of(header_of(*o.f, o.slot));
  return errc::ok;
}

void pool_blocks::vacate(frame& f, std::uint32_t slot, const blocks::identity& id, std::uint32_t bytes) {
  class_counts& counts = classes_[f.size_class].counts;
  drop_expiry(f, slot);
  mark(f, slot, blocks::flag_freed);
  unindex_slot(f, slot, id);
  drop_slot(f, slot);
  --f.live;
  counts.payload_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  counts.freed.fetch_add(1, std::memory_order_relaxed);
  unbear(f, id);
}

void pool_blocks::vacate(frame& f, std::uint32_t slot, const blocks::identity& id, std::uint32_t bytes,
                         const asked_change& by) {
  pool_log::entry note;
  if (writes_down(f))
    note = pool_log::make(record_kind::vacate, vacate_record{by.origin, f.number, slot, id.vblock, id.index});
  if (log_ != nullptr) (void)write_down(std::move(note));
  vacate(f, slot, id, bytes);
}

outcome pool_blocks::free(const where& at, held how, const asked_change& by) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  const bool kept = classes_[f.size_class].arenas[f.arena]->empty == f.number;
  if (how == held::shared && (is_last_of_block(f, at.id.vblock) || (f.live == 1 && !kept))) return {};
  if (by.has_passed()) return errc::timed_out;
  vacate(f, o.slot, at.id, o.bytes, by);
  const bool listed = f.listed;
  inside.unlock();
  if (!listed) list_room(f);
  if (how == held::exclusive) bury_if_empty(f, false);
  return errc::ok;
}

outcome pool_blocks::release(where& at, held how, const asked_change& by) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  blocks::identity id = at.id;
  if (id.vblock != f.primary) {
    // Ids that are new to both blocks of a merge are looked for with both blocks at hand.
    const bool merges_ids = f.state == frame_state::merging && classes_[f.size_class].random();
    if (how == held::shared && (is_last_of_block(f, id.vblock) || out_of_births(f) || merges_ids)) return {};
    if (by.has_passed()) return errc::timed_out;
    std::vector<std::byte> payload;
    if (const errc e = load_object(f, o.slot, payload); e != errc::ok) return e;
    pool_log::entry note = note_object(f, payload);
    if (const errc e = bear(f, o.slot, id); e != errc::ok) return e;
    if (note != nullptr)
      pool_log::fill(note, object_record{by.origin, f.number, o.slot, id.vblock, id.generation, id.index, at.id.vblock,
                                         at.id.index, static_cast<std::uint32_t>(object_change::renamed), 0});
    unindex_slot(f, o.slot, at.id);
    store_object(f, o.slot, id, payload, static_cast<std::uint32_t>(write_down(std::move(note))));
    index_slot(f, o.slot, id);
    unbear(f, at.id);
  }
  at = where_of(o.slot, id);
  return errc::ok;
}

}  // namespace fm::agent
