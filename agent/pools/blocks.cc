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

/// Readers see the header locked before the first byte changes, and unlocked after the last.
void pool_blocks::store_object(frame& f, std::uint32_t slot, std::span<const std::byte> payload) {
  resident& r = f.residents[slot];
  r.changed = true;
  object_header h{r.vblock,
                  r.generation,
                  r.index,
                  blocks::flag_live | blocks::flag_locked,
                  last_version_.fetch_add(1, std::memory_order_relaxed) + 1,
                  r.bytes,
                  0};
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
    const std::uint32_t bytes = blocks::occupied_bytes(r.bytes, how);
    thread_local std::vector<std::byte> lines;
    if (lines.size() < bytes) lines.resize(bytes);
    blocks::scatter_lines(lines.data(), h.version, payload.data(), r.bytes);
    shared_memory::copy(at + blocks::header_bytes, lines.data() + blocks::header_bytes, bytes - blocks::header_bytes);
  }
  h.flags = blocks::flag_live;
  pack();
  shared_memory::store_word(at + 16, words[2]);
  shared_memory::fence();
  shared_memory::store_word(at + 8, words[1]);
}

errc pool_blocks::load_object(const frame& f, std::uint32_t slot, std::vector<std::byte>& payload) const {
  const resident& r = f.residents[slot];
  const consistency how = layout().mode(f.size_class);
  const std::uint32_t bytes = blocks::occupied_bytes(r.bytes, how);
  const std::byte* const at = slot_memory(f, slot);
  object_header h;
  shared_memory::copy(&h, at, sizeof h);
  if (!blocks::names(h, {r.vblock, r.generation, r.index}) || h.bytes != r.bytes || h.flags != blocks::flag_live)
    return errc::corrupt;
  const std::size_t begin = payload.size();
  payload.resize(begin + r.bytes);
  if (how == consistency::checksum) {
    shared_memory::copy(payload.data() + begin, at + blocks::header_bytes, r.bytes);
    return blocks::checksum(h, payload.data() + begin) == h.crc ? errc::ok : errc::corrupt;
  }
  std::vector<std::byte> slot_bytes(bytes);
  shared_memory::copy(slot_bytes.data(), at, bytes);
  return blocks::gather_lines(slot_bytes.data(), h.version, payload.data() + begin, r.bytes) ? errc::ok : errc::corrupt;
}

// ---- births ----

errc pool_blocks::bear(frame& f, std::uint32_t slot) {
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
    while (has_id(f, index) || (other != nullptr && has_id(*other, index)));
    f.ids[index / 64] |= std::uint64_t{1} << index % 64;
  } else {
    // Fewer objects were born here and live than the block has slots, since they all live in this frame; so there is
    // one.
    if (b.slot_of[index] != no_slot) {
      index = b.next_index;
      while (b.slot_of[index] != no_slot) index = index + 1 == f.slots ? 0 : index + 1;
      b.next_index = index;
    }
    b.slot_of[index] = static_cast<std::uint16_t>(slot);
  }
  ++b.live;
  resident& r = f.residents[slot];
  r.vblock = f.primary;
  r.generation = ++b.last_generation;
  r.index = static_cast<std::uint16_t>(index);
  return errc::ok;
}

void pool_blocks::unbear(frame& f, const resident& r) {
  vblock& b = vblocks_[r.vblock];
  if (classes_[f.size_class].random())
    f.ids[r.index / 64] &= ~(std::uint64_t{1} << r.index % 64);
  else
    b.slot_of[r.index] = no_slot;
  if (--b.live == 0 && r.vblock != f.primary) unmap(r.vblock);
}

pool_blocks::where pool_blocks::where_of(const frame& f, std::uint32_t slot) const {
  const resident& r = f.residents[slot];
  return {{r.vblock, r.generation, r.index}, static_cast<std::uint16_t>(slot), word_of(r.vblock)};
}

pool_blocks::found pool_blocks::find(const where& at, frame_guard& inside) const {
  if (at.id.generation == 0 || at.id.vblock >= vblocks_.size() || vblocks_[at.id.vblock].frame == none) return {};
  const vblock& b = vblocks_[at.id.vblock];
  frame& f = *all_[b.frame];
  inside = enter(f);
  const auto lives_in = [&](std::uint32_t slot) {
    const resident& r = f.residents[slot];
    return r.vblock == at.id.vblock && r.generation == at.id.generation && r.index == at.id.index;
  };
  if (at.slot < f.slots && lives_in(at.slot)) return {&f, at.slot};
  if (!classes_[f.size_class].random()) {
    if (at.id.index >= b.slot_of.size()) return {};
    const std::uint16_t slot = b.slot_of[at.id.index];
    return slot != no_slot && lives_in(slot) ? found{&f, slot} : found{};
  }
  for (std::uint32_t s = 0; s < f.slots; ++s)
    if (lives_in(s)) return {&f, s};
  return {};
}

// ---- what clients ask for ----

outcome pool_blocks::allocate(std::span<const std::byte> payload, std::uint32_t arena_wanted, where& out, held how) {
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
  if (const errc e = bear(*f, slot); e != errc::ok) return e;
  take_slot(*f, slot);
  f->cursor = slot + 1 == f->slots ? 0 : slot + 1;
  ++f->live;
  f->residents[slot].bytes = static_cast<std::uint32_t>(payload.size());
  store_object(*f, slot, payload);
  k.counts.allocated.fetch_add(1, std::memory_order_release);
  k.counts.payload_bytes.fetch_add(payload.size(), std::memory_order_relaxed);
  out = where_of(*f, slot);
  return errc::ok;
}

errc pool_blocks::read(where& at, std::vector<std::byte>& payload, std::uint32_t bytes_max) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  if (o.f->residents[o.slot].bytes > bytes_max) return errc::too_large;
  at = where_of(*o.f, o.slot);
  return load_object(*o.f, o.slot, payload);
}

std::uint32_t pool_blocks::bytes_of(const where& at) const {
  frame_guard inside;
  const found o = find(at, inside);
  return o.f == nullptr ? 0 : o.f->residents[o.slot].bytes;
}

errc pool_blocks::write(where& at, std::span<const std::byte> payload, std::uint32_t& bytes) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  bytes = o.f->residents[o.slot].bytes;
  if (bytes != payload.size()) return errc::layout_mismatch;
  store_object(*o.f, o.slot, payload);
  at = where_of(*o.f, o.slot);
  return errc::ok;
}

outcome pool_blocks::free(const where& at, held how) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  size_class_state& c = classes_[f.size_class];
  const resident r = f.residents[o.slot];
  const bool kept = c.arenas[f.arena]->empty == f.number;
  if (how == held::shared && (is_last_of_block(f, r) || (f.live == 1 && !kept))) return {};
  mark(f, o.slot, blocks::flag_freed);
  f.residents[o.slot] = {};
  drop_slot(f, o.slot);
  --f.live;
  c.counts.payload_bytes.fetch_sub(r.bytes, std::memory_order_relaxed);
  c.counts.freed.fetch_add(1, std::memory_order_relaxed);
  unbear(f, r);
  const bool listed = f.listed;
  inside.unlock();
  if (!listed) list_room(f);
  if (how == held::exclusive) bury_if_empty(f, false);
  return errc::ok;
}

outcome pool_blocks::release(where& at, held how) {
  frame_guard inside;
  const found o = find(at, inside);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  const resident before = f.residents[o.slot];
  if (before.vblock != f.primary) {
    // Ids that are new to both blocks of a merge are looked for with both blocks at hand.
    const bool merges_ids = f.state == frame_state::merging && classes_[f.size_class].random();
    if (how == held::shared && (is_last_of_block(f, before) || out_of_births(f) || merges_ids)) return {};
    std::vector<std::byte> payload;
    if (const errc e = load_object(f, o.slot, payload); e != errc::ok) return e;
    if (const errc e = bear(f, o.slot); e != errc::ok) return e;
    store_object(f, o.slot, payload);
    unbear(f, before);
  }
  at = where_of(f, o.slot);
  return errc::ok;
}

}  // namespace fm::agent
