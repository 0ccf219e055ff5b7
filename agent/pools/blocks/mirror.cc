// A backup's blocks: what the primary has written down is done here, too; members of pool_blocks.
//
// Frames and virtual blocks have the primary's numbers, and objects the slots that they have there. So everything fits
// that fitted there, and a pointer's hint is right at the new primary. What follows from a record follows here as it did
// there: a virtual block whose last object goes is unmapped by the same code. What the primary chooses is in records:
// which numbers are used again, and what is merged.
//
// Records come from another process, so each is checked against what is here before anything changes.
// Called with the pool's structure exclusively. Nobody reads a backup.
#include "blocks.h"
#include "object_memory.h"

#include <algorithm>
#include <cstring>

namespace fm::agent {

using blocks::identity;
using blocks::object_header;

namespace {

/// Takes the record apart and calls `f`. Where `F` does not take what follows, nothing may.
template <class T, class F>
errc with(std::span<const std::byte> body, F&& f) {
  T r;
  std::span<const std::byte> tail;
  if (!split_record(body, r, tail)) return errc::bad_frame;
  if constexpr (std::is_invocable_v<F, const T&, std::span<const std::byte>>)
    return f(r, tail);
  else
    return tail.empty() ? f(r) : errc::bad_frame;
}

}  // namespace

errc pool_blocks::apply(record_kind kind, std::uint64_t number, std::span<const std::byte> body) {
  mirrors_ = true;
  using bytes = std::span<const std::byte>;
  switch (kind) {
    case record_kind::frame: return with<frame_record>(body, [&](const auto& r) { return apply_frame(r); });
    case record_kind::primary: return with<frame_record>(body, [&](const auto& r) { return apply_primary(r); });
    case record_kind::block: return with<block_record>(body, [&](const auto& r) { return apply_block(r); });
    case record_kind::object:
      return with<object_record>(body, [&](const object_record& r, bytes payload) {
        return apply_object(r, static_cast<std::uint32_t>(number), payload);
      });
    case record_kind::stored:
      return with<stored_record>(body, [&](const stored_record& r, bytes payload) { return apply_stored(r, payload); });
    case record_kind::vacate: return with<vacate_record>(body, [&](const auto& r) { return apply_vacate(r); });
    case record_kind::merge:
      return with<merge_record>(body, [&](const merge_record& r, bytes pairs) { return apply_merge(r, pairs); });
    case record_kind::bury: return with<bury_record>(body, [&](const auto& r) { return apply_bury(r); });
    case record_kind::expiry: return with<expiry_record>(body, [&](const auto& r) { return apply_expiry(r); });
    case record_kind::generations:
      return with<generations_record>(
          body, [&](const generations_record& r, bytes all) { return apply_generations(r, all); });
    case record_kind::mark: return body.empty() ? errc::ok : errc::bad_frame;
    default: return errc::bad_frame;
  }
}

// ---- structure ----

pool_blocks::frame* pool_blocks::mirrored_frame(std::uint32_t number, std::uint32_t slot) {
  frame* const f = noted(number);
  return f != nullptr && f->state == frame_state::open && slot < f->slots ? f : nullptr;
}

/// There is a record and a word of the table for it, and it is mapped nowhere.
errc pool_blocks::mirror_vblock(std::uint32_t v) {
  if (v >= blocks::vblock_limit || (v < vblocks_.size() && vblocks_[v].frame != none)) return errc::bad_frame;
  while (v / blocks::chunk_words >= chunks_.size()) {
    blocks::place at;
    if (const errc e = frames_.take(blocks::frame_bytes_min, at); e != errc::ok) return e;
    chunks_.push_back(at);
    std::byte* const words = frames_.memory(at);
    for (std::uint32_t i = 0; i < blocks::chunk_words; ++i) shared_memory::store_word(words + i * 8, 0);
  }
  while (v >= vblocks_.size()) {
    vblocks_.emplace_back();
    vblocks_.back().last_generation = options_.first_generation - 1;
  }
  return errc::ok;
}

errc pool_blocks::apply_frame(const frame_record& r) {
  if (r.zero != 0 || !layout().exists(r.size_class) || r.frame >= frames_.most_frames() || noted(r.frame) != nullptr)
    return errc::bad_frame;
  if (const errc e = mirror_vblock(r.vblock); e != errc::ok) return e;
  // All in the arenas of one thread: who wants room takes it over.
  const std::uint32_t arena_number = r.arena % options_.arenas;
  size_class_state& c = classes_[r.size_class];
  if (arena_number >= c.arenas.size()) c.arenas.resize(arena_number + 1);
  if (c.arenas[arena_number] == nullptr) c.arenas[arena_number] = std::make_unique<arena>();
  const std::uint32_t bytes = layout().block(r.size_class);
  blocks::place at;
  if (const errc e = frames_.take(bytes, at); e != errc::ok) return e;
  while (r.frame >= all_.size()) all_.emplace_back();
  all_[r.frame] = std::make_unique<frame>();
  frame& f = *all_[r.frame];
  f.number = r.frame;
  f.size_class = static_cast<std::uint8_t>(r.size_class);
  f.arena = static_cast<std::uint16_t>(arena_number);
  f.at = at;
  f.slots = layout().slots(r.size_class);
  f.used = bitmap(f.slots);
  for (std::uint32_t s = 0; s < f.slots; ++s) mark(f, s, blocks::flag_freed);
  vblocks_[r.vblock].last_generation = r.last_generation;
  f.primary = r.vblock;
  map(r.vblock, f);
  frame_books_.fetch_add(sizeof f + f.used.bytes(), std::memory_order_relaxed);
  f.state = frame_state::open;
  f.class_at = static_cast<std::uint32_t>(c.frames.size());
  c.frames.push_back(f.number);
  ++c.counts.frames;
  list_room(f);
  return errc::ok;
}

errc pool_blocks::apply_primary(const frame_record& r) {
  frame* const f = mirrored_frame(r.frame);
  if (f == nullptr || r.zero != 0) return errc::bad_frame;
  if (const errc e = mirror_vblock(r.vblock); e != errc::ok) return e;
  vblocks_[r.vblock].last_generation = r.last_generation;
  const std::uint32_t before = f->primary;
  f->primary = r.vblock;
  map(r.vblock, *f);
  if (vblocks_[before].live == 0)
    unmap(before);
  else
    set_word(before, blocks::table_word(f->size_class, f->at, ++changes_, true));
  return errc::ok;
}

errc pool_blocks::apply_block(const block_record& r) {
  frame* const f = mirrored_frame(r.frame);
  if (f == nullptr) return errc::bad_frame;
  if (const errc e = mirror_vblock(r.vblock); e != errc::ok) return e;
  map(r.vblock, *f);
  set_word(r.vblock, blocks::table_word(f->size_class, f->at, ++changes_, true));
  return errc::ok;
}

errc pool_blocks::apply_bury(const bury_record& r) {
  frame* const f = mirrored_frame(r.frame);
  if (f == nullptr || r.zero != 0 || f->live != 0 || f->taken != 0) return errc::bad_frame;
  bury(*f);
  reclaim(epoch_);  // nobody reads here
  unused_.clear();
  return errc::ok;
}

errc pool_blocks::apply_generations(const generations_record& r, std::span<const std::byte> all) {
  if (r.count > limits::generations_at_once || all.size() != r.count * sizeof(std::uint32_t) ||
      r.first > blocks::vblock_limit - r.count)
    return errc::bad_frame;
  for (std::uint32_t i = 0; i < r.count; ++i) {
    const std::uint32_t v = r.first + i;
    if (v >= vblocks_.size() || vblocks_[v].frame == none)
      if (const errc e = mirror_vblock(v); e != errc::ok) return e;
    std::memcpy(&vblocks_[v].last_generation, all.data() + i * sizeof(std::uint32_t), sizeof(std::uint32_t));
  }
  return errc::ok;
}

// ---- objects ----

errc pool_blocks::place_object(frame& f, std::uint32_t slot, const identity& id, std::span<const std::byte> payload,
                               std::uint32_t version, std::uint64_t expires_ms) {
  if (f.used.test(slot) || id.generation == 0 || id.vblock >= vblocks_.size() ||
      vblocks_[id.vblock].frame != f.number || payload.empty() || payload.size() > layout().capacity(f.size_class) ||
      expires_ms > pool_expiry_ms_max)
    return errc::bad_frame;
  size_class_state& c = classes_[f.size_class];
  vblock& b = vblocks_[id.vblock];
  ++b.live;
  b.last_generation = std::max(b.last_generation, id.generation);
  take_slot(f, slot);
  ++f.live;
  store_object(f, slot, id, payload, version);
  index_slot(f, slot, id);
  if (expires_ms != 0) set_expiry(f, slot, expiry_in(expires_ms));
  c.counts.allocated.fetch_add(1, std::memory_order_release);
  c.counts.payload_bytes.fetch_add(payload.size(), std::memory_order_relaxed);
  return errc::ok;
}

errc pool_blocks::apply_stored(const stored_record& r, std::span<const std::byte> payload) {
  frame* const f = mirrored_frame(r.frame, r.slot);
  if (f == nullptr || r.index > 0xffff) return errc::bad_frame;
  return place_object(*f, r.slot, {r.vblock, r.generation, static_cast<std::uint16_t>(r.index)}, payload, r.version,
                      r.expires_ms);
}

errc pool_blocks::apply_object(const object_record& r, std::uint32_t version, std::span<const std::byte> payload) {
  frame* const f = mirrored_frame(r.frame, r.slot);
  if (f == nullptr || r.index > 0xffff || r.old_index > 0xffff) return errc::bad_frame;
  const identity id{r.vblock, r.generation, static_cast<std::uint16_t>(r.index)};
  const auto how = static_cast<object_change>(r.how);
  if (how == object_change::allocated) return place_object(*f, r.slot, id, payload, version, r.expires_ms);
  const object_header h = header_of(*f, r.slot);
  if (!is_resident(*f, r.slot, h) || h.bytes != payload.size() || r.expires_ms != 0) return errc::bad_frame;
  if (how == object_change::written) {
    if (!blocks::names(h, id)) return errc::bad_frame;
    store_object(*f, r.slot, id, payload, version);
    return errc::ok;
  }
  if (how != object_change::renamed || h.vblock != r.old_vblock || h.index != r.old_index || r.generation == 0 ||
      r.vblock >= vblocks_.size() || vblocks_[r.vblock].frame != f->number || h.vblock >= vblocks_.size())
    return errc::bad_frame;
  const identity old{h.vblock, h.generation, h.index};
  vblock& b = vblocks_[id.vblock];
  ++b.live;
  b.last_generation = std::max(b.last_generation, id.generation);
  unindex_slot(*f, r.slot, old);
  store_object(*f, r.slot, id, payload, version);
  index_slot(*f, r.slot, id);
  unbear(*f, old);
  return errc::ok;
}

errc pool_blocks::apply_vacate(const vacate_record& r) {
  frame* const f = mirrored_frame(r.frame, r.slot);
  if (f == nullptr) return errc::bad_frame;
  const object_header h = header_of(*f, r.slot);
  if (!is_resident(*f, r.slot, h) || h.vblock != r.vblock || h.index != r.index || h.vblock >= vblocks_.size() ||
      vblocks_[h.vblock].frame != f->number)
    return errc::bad_frame;
  vacate(*f, r.slot, {h.vblock, h.generation, h.index}, h.bytes);
  if (!f->listed) list_room(*f);
  return errc::ok;
}

errc pool_blocks::apply_expiry(const expiry_record& r) {
  frame* const f = mirrored_frame(r.frame, r.slot);
  if (f == nullptr || !f->used.test(r.slot) || r.expires_ms > pool_expiry_ms_max) return errc::bad_frame;
  if (r.expires_ms != 0)
    set_expiry(*f, r.slot, expiry_in(r.expires_ms));
  else
    drop_expiry(*f, r.slot);
  return errc::ok;
}

errc pool_blocks::apply_merge(const merge_record& r, std::span<const std::byte> pairs) {
  frame* const from = mirrored_frame(r.from);
  frame* const to = mirrored_frame(r.to);
  if (from == nullptr || to == nullptr || from == to || from->size_class != to->size_class || r.zero != 0 ||
      r.count != from->live || pairs.size() != std::size_t{r.count} * 4 || r.count > to->slots - to->taken)
    return errc::bad_frame;
  std::vector<std::uint16_t> moves(std::size_t{r.count} * 2);
  std::memcpy(moves.data(), pairs.data(), pairs.size());
  bitmap left(from->slots), taken(to->slots);
  for (std::size_t i = 0; i < moves.size(); i += 2) {
    const std::uint16_t s = moves[i], d = moves[i + 1];
    if (s >= from->slots || d >= to->slots || left.test(s) || taken.test(d) || to->used.test(d) ||
        !is_resident(*from, s, header_of(*from, s)))
      return errc::bad_frame;
    left.set(s);
    taken.set(d);
  }
  for (std::size_t i = 0; i < moves.size(); i += 2) {
    const std::uint16_t s = moves[i], d = moves[i + 1];
    const object_header h = header_of(*from, s);
    const identity id{h.vblock, h.generation, h.index};
    shared_memory::copy(slot_memory(*to, d), slot_memory(*from, s),
                        blocks::occupied_bytes(h.bytes, layout().mode(from->size_class)));
    take_slot(*to, d);
    index_slot(*to, d, id);
    move_expiry(*from, s, *to, d);
    unindex_slot(*from, s, id);
    drop_slot(*from, s);
    mark(*from, s, blocks::flag_freed);
  }
  for (std::uint32_t v = std::exchange(from->vblocks, none); v != none;) {
    vblock& b = vblocks_[v];
    const std::uint32_t next = std::exchange(b.next, to->vblocks);
    b.frame = to->number;
    b.before = none;
    if (b.next != none) vblocks_[b.next].before = v;
    to->vblocks = v;
    set_word(v, blocks::table_word(to->size_class, to->at, ++changes_, true));
    v = next;
  }
  const std::uint32_t old_primary = from->primary;
  to->live += from->live;
  from->live = 0;
  if (vblocks_[old_primary].live == 0) unmap(old_primary);
  return apply_bury({r.from, 0});
}

// ---- the end of it ----

void pool_blocks::stop_mirroring() {
  mirrors_ = false;
  unused_.clear();
  for (std::uint32_t n = static_cast<std::uint32_t>(all_.size()); n-- > 0;) {
    if (all_[n] == nullptr)
      unused_.push_back(n);
    else
      all_[n]->mirrored = false;
  }
  unmapped_ = none;
  for (std::uint32_t v = static_cast<std::uint32_t>(vblocks_.size()); v-- > 0;) {
    vblock& b = vblocks_[v];
    if (b.frame != none) continue;
    if (b.last_generation == generation_max) {
      ++vblocks_retired_;
    } else {
      b.next = unmapped_;
      unmapped_ = v;
    }
  }
}

}  // namespace fm::agent
