// Allocation, access and release of a pool's objects; see shared_blocks.h.
#include "shared_blocks.h"

#include <cmath>

#include "shared_memory.h"

namespace fm::store::node {

using blocks::consistency;
using blocks::object_header;

shared_blocks::shared_blocks(shared_frames& frames, const options& o)
    : frames_(frames), options_(o), classes_(blocks::class_count) {
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    size_class_state& s = classes_[c];
    s.with_room.resize(o.arenas);
    s.empty.assign(o.arenas, none);
    s.naming = o.wanted[c];
    const std::uint32_t bits = blocks::random_bits(s.naming);
    if (bits == 0 || !o.layout.exists(c)) continue;
    // Two half full blocks of n slots can be merged with a probability of about exp(-(n/2)^2 / 2^bits) (CoRM section 3.1.2).
    const double half = o.layout.slots(c) / 2.0, ids = std::ldexp(1.0, static_cast<int>(bits));
    const bool enough = half * 2 < ids;
    const bool likely = enough && std::exp(-half * half / ids) >= 0.01;
    if (o.otherwise == blocks::fallback::none) {
      s.compactable = enough;
      if (!enough) s.naming = blocks::naming::birth;
    } else if (!likely) {
      s.naming = o.otherwise == blocks::fallback::offset ? blocks::naming::offset : blocks::naming::birth;
    }
  }
}

// ---- the table ----

void shared_blocks::set_word(std::uint32_t v, std::uint64_t word) {
  shared_memory::store_word(frames_.memory(chunks_[v / blocks::chunk_words]) + v % blocks::chunk_words * 8, word);
}

std::uint64_t shared_blocks::word_of(std::uint32_t v) const {
  return shared_memory::load_word(frames_.memory(chunks_[v / blocks::chunk_words]) + v % blocks::chunk_words * 8);
}

void shared_blocks::map(std::uint32_t v, frame& f) {
  vblock& b = vblocks_[v];
  b.frame = f.number;
  b.in_frame = static_cast<std::uint32_t>(f.vblocks.size());
  f.vblocks.push_back(v);
  ++vblocks_mapped_;
  ++classes_[f.size_class].counts.vblocks;
  set_word(v, blocks::table_word(f.size_class, f.at, ++changes_));
}

void shared_blocks::unmap(std::uint32_t v) {
  vblock& b = vblocks_[v];
  FM_ASSERT(b.live == 0 && b.frame != none, "a virtual block is unmapped when nothing that was born in it lives");
  frame& f = *all_[b.frame];
  f.vblocks[b.in_frame] = f.vblocks.back();
  vblocks_[f.vblocks[b.in_frame]].in_frame = b.in_frame;
  f.vblocks.pop_back();
  b.frame = none;
  b.slot_of = {};
  --vblocks_mapped_;
  --classes_[f.size_class].counts.vblocks;
  set_word(v, 0);
  if (b.last_generation == generation_max)
    ++vblocks_retired_;
  else
    unmapped_.push_back(v);
}

errc shared_blocks::add_primary(frame& f) {
  std::uint32_t v = 0;
  if (!unmapped_.empty()) {
    v = unmapped_.back();
    unmapped_.pop_back();
    ++vblocks_reused_;
  } else {
    v = static_cast<std::uint32_t>(vblocks_.size());
    if (v >= blocks::vblock_limit) return errc::agent_full;
    if (v / blocks::chunk_words >= chunks_.size()) {
      blocks::place at;
      if (const errc e = frames_.take(blocks::frame_bytes_min, at); e != errc::ok) return e;
      chunks_.push_back(at);
      std::byte* const words = frames_.memory(at);
      for (std::uint32_t i = 0; i < blocks::chunk_words; ++i) shared_memory::store_word(words + i * 8, 0);
    }
    vblocks_.emplace_back();
    vblocks_[v].last_generation = options_.first_generation - 1;
  }
  vblock& b = vblocks_[v];
  b.next_index = 0;
  if (!classes_[f.size_class].random()) b.slot_of.assign(f.slots, no_slot);
  const std::uint32_t before = f.primary;
  f.primary = v;
  map(v, f);
  if (before != none && vblocks_[before].live == 0) unmap(before);
  return errc::ok;
}

// ---- frames ----

shared_blocks::frame* shared_blocks::new_frame(std::uint32_t size_class, std::uint32_t arena, errc& why) {
  const std::uint32_t bytes = layout().block(size_class);
  blocks::place at;
  if ((why = frames_.take(bytes, at)) != errc::ok) return nullptr;
  if (unused_.empty()) {
    all_.push_back(std::make_unique<frame>());
    all_.back()->number = static_cast<std::uint32_t>(all_.size() - 1);
    unused_.push_back(all_.back()->number);
  }
  frame& f = *all_[unused_.back()];
  const std::uint32_t number = f.number;
  f = frame{};
  f.number = number;
  f.size_class = static_cast<std::uint8_t>(size_class);
  f.arena = static_cast<std::uint16_t>(arena);
  f.at = at;
  f.slots = layout().slots(size_class);
  f.used.assign((f.slots + 63) / 64, 0);
  f.residents.resize(f.slots);
  if (const std::uint32_t bits = blocks::random_bits(classes_[size_class].naming); bits != 0)
    f.ids.assign((std::size_t{1} << bits) / 64, 0);
  // What is left there from before must not look like anything that lives.
  for (std::uint32_t s = 0; s < f.slots; ++s) mark(f, s, blocks::flag_freed);
  if ((why = add_primary(f)) != errc::ok) {
    frames_.give_back(at, bytes);
    return nullptr;
  }
  unused_.pop_back();
  f.state = frame_state::open;
  size_class_state& c = classes_[size_class];
  f.class_at = static_cast<std::uint32_t>(c.frames.size());
  c.frames.push_back(number);
  ++c.counts.frames;
  return &f;
}

void shared_blocks::list_room(frame& f) {
  if (f.listed || f.state != frame_state::open || f.taken == f.slots) return;
  f.listed = true;
  size_class_state& c = classes_[f.size_class];
  auto& list = c.with_room[f.arena];
  if (list.size() > 2 * c.frames.size() + 64)  // frames that were buried leave their numbers behind
    std::erase_if(list, [&](std::uint32_t n) {
      const frame& o = *all_[n];
      return o.state != frame_state::open || o.size_class != f.size_class || o.arena != f.arena || n == f.number;
    });
  list.push_back(f.number);
}

shared_blocks::frame* shared_blocks::frame_with_room(std::uint32_t size_class, std::uint32_t arena, errc& why) {
  auto& list = classes_[size_class].with_room[arena];
  while (!list.empty()) {
    frame& f = *all_[list.back()];
    // A frame may have been used for another class or arena since it was listed; then it is not listed there.
    if (f.state == frame_state::open && f.taken < f.slots && f.size_class == size_class && f.arena == arena) return &f;
    if (f.size_class == size_class && f.arena == arena) f.listed = false;
    list.pop_back();
  }
  frame* const f = new_frame(size_class, arena, why);
  if (f != nullptr) list_room(*f);
  return f;
}

std::uint32_t shared_blocks::free_slot(const frame& f, std::uint32_t from) {
  const auto words = static_cast<std::uint32_t>(f.used.size());
  std::uint64_t mask = ~std::uint64_t{0} << from % 64;
  for (std::uint32_t i = 0, w = from / 64; i <= words; ++i, w = (w + 1) % words, mask = ~std::uint64_t{0}) {
    const std::uint64_t open = ~f.used[w] & mask;
    if (open == 0) continue;
    const std::uint32_t slot = w * 64 + static_cast<std::uint32_t>(std::countr_zero(open));
    if (slot < f.slots) return slot;
  }
  return none;
}

void shared_blocks::bury(frame& f) {
  FM_ASSERT(f.live == 0, "a frame with live objects is buried");
  while (!f.vblocks.empty()) unmap(f.vblocks.back());
  size_class_state& c = classes_[f.size_class];
  c.frames[f.class_at] = c.frames.back();
  all_[c.frames[f.class_at]]->class_at = f.class_at;
  c.frames.pop_back();
  --c.counts.frames;
  f.state = frame_state::buried;
  f.primary = none;
  f.residents = {};
  f.used = {};
  f.ids = {};
  graves_.push_back({f.number, ++epoch_});
  grave_bytes_ += layout().block(f.size_class);
}

void shared_blocks::bury_if_empty(frame& f, bool all) {
  if (f.live != 0 || f.taken != 0 || f.state != frame_state::open) return;
  // An arena keeps one: the next object would want it back.
  std::uint32_t& kept = classes_[f.size_class].empty[f.arena];
  if (!all) {
    const frame* const other = kept == none ? nullptr : all_[kept].get();
    if (other == nullptr || other == &f || other->state != frame_state::open || other->live != 0 ||
        other->size_class != f.size_class || other->arena != f.arena) {
      kept = f.number;
      return;
    }
  }
  bury(f);
}

bool shared_blocks::reclaim(std::uint64_t passed) {
  bool any = false;
  while (!graves_.empty() && graves_.front().epoch <= passed) {
    frame& f = *all_[graves_.front().frame];
    graves_.pop_front();
    const std::uint32_t bytes = layout().block(f.size_class);
    grave_bytes_ -= bytes;
    frames_.give_back(f.at, bytes);
    f.state = frame_state::unused;
    unused_.push_back(f.number);
    any = true;
  }
  return any;
}

// ---- objects in memory ----

void shared_blocks::mark(const frame& f, std::uint32_t slot, std::uint16_t flags) {
  std::byte* const at = slot_memory(f, slot);
  std::uint64_t word = shared_memory::load_word(at + 8);
  word = (word & ~(std::uint64_t{0xffff} << 16)) | std::uint64_t{flags} << 16;
  shared_memory::store_word(at + 8, word);
}

/// Readers see the header locked before the first byte changes, and unlocked after the last.
void shared_blocks::store_object(frame& f, std::uint32_t slot, std::span<const std::byte> payload) {
  resident& r = f.residents[slot];
  r.changed = true;
  object_header h{r.vblock,        r.generation, r.index, blocks::flag_live | blocks::flag_locked,
                  ++last_version_, r.bytes,      0};
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
    scratch_.resize(std::max<std::size_t>(scratch_.size(), bytes));
    blocks::scatter_lines(scratch_.data(), h.version, payload.data(), r.bytes);
    shared_memory::copy(at + blocks::header_bytes, scratch_.data() + blocks::header_bytes,
                        bytes - blocks::header_bytes);
  }
  h.flags = blocks::flag_live;
  pack();
  shared_memory::store_word(at + 16, words[2]);
  shared_memory::fence();
  shared_memory::store_word(at + 8, words[1]);
}

errc shared_blocks::load_object(const frame& f, std::uint32_t slot, std::vector<std::byte>& payload) const {
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

errc shared_blocks::bear(frame& f, std::uint32_t slot) {
  if (vblocks_[f.primary].last_generation == generation_max)
    if (const errc e = add_primary(f); e != errc::ok) return e;
  vblock& b = vblocks_[f.primary];
  std::uint32_t index = slot;
  if (const std::uint32_t bits = blocks::random_bits(classes_[f.size_class].naming); bits != 0) {
    const std::uint32_t ids = 1u << bits;
    // In the middle of a merge, an id must be new to both blocks.
    const frame* const other = !merge_.running           ? nullptr
                               : merge_.from == f.number ? all_[merge_.to].get()
                               : merge_.to == f.number   ? all_[merge_.from].get()
                                                         : nullptr;
    do index = static_cast<std::uint32_t>(random_.next()) & (ids - 1);
    while (has_id(f, index) || (other != nullptr && has_id(*other, index)));
    f.ids[index / 64] |= std::uint64_t{1} << index % 64;
  } else {
    // Fewer objects were born here and live than the block has slots, since they all live in this frame; so there is one.
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

void shared_blocks::unbear(frame& f, const resident& r) {
  vblock& b = vblocks_[r.vblock];
  if (classes_[f.size_class].random())
    f.ids[r.index / 64] &= ~(std::uint64_t{1} << r.index % 64);
  else
    b.slot_of[r.index] = no_slot;
  if (--b.live == 0 && r.vblock != f.primary) unmap(r.vblock);
}

shared_blocks::where shared_blocks::where_of(const frame& f, std::uint32_t slot) const {
  const resident& r = f.residents[slot];
  return {{r.vblock, r.generation, r.index}, static_cast<std::uint16_t>(slot), word_of(r.vblock)};
}

shared_blocks::found shared_blocks::find(const where& at) const {
  if (at.id.generation == 0 || at.id.vblock >= vblocks_.size() || vblocks_[at.id.vblock].frame == none) return {};
  const vblock& b = vblocks_[at.id.vblock];
  frame& f = *all_[b.frame];
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

errc shared_blocks::allocate(std::span<const std::byte> payload, std::uint32_t arena, where& out) {
  const std::uint32_t c = payload.empty() ? blocks::class_count : layout().class_for(payload.size());
  if (c == blocks::class_count) return errc::too_large;
  errc why = errc::ok;
  frame* const f = frame_with_room(c, arena % options_.arenas, why);
  if (f == nullptr) return why;
  const std::uint32_t slot = free_slot(*f, f->cursor);
  if ((why = bear(*f, slot)) != errc::ok) return why;
  take_slot(*f, slot);
  f->cursor = slot + 1 == f->slots ? 0 : slot + 1;
  ++f->live;
  f->residents[slot].bytes = static_cast<std::uint32_t>(payload.size());
  store_object(*f, slot, payload);
  ++classes_[c].counts.objects;
  classes_[c].counts.payload_bytes += payload.size();
  out = where_of(*f, slot);
  return errc::ok;
}

errc shared_blocks::read(where& at, std::vector<std::byte>& payload) {
  const found o = find(at);
  if (o.f == nullptr) return errc::not_found;
  at = where_of(*o.f, o.slot);
  return load_object(*o.f, o.slot, payload);
}

std::uint32_t shared_blocks::bytes_of(where at) const {
  const found o = find(at);
  return o.f == nullptr ? 0 : o.f->residents[o.slot].bytes;
}

errc shared_blocks::write(where& at, std::span<const std::byte> payload, std::uint32_t& bytes) {
  const found o = find(at);
  if (o.f == nullptr) return errc::not_found;
  bytes = o.f->residents[o.slot].bytes;
  if (bytes != payload.size()) return errc::layout_mismatch;
  store_object(*o.f, o.slot, payload);
  at = where_of(*o.f, o.slot);
  return errc::ok;
}

errc shared_blocks::free(const where& at) {
  const found o = find(at);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  class_counts& c = classes_[f.size_class].counts;
  mark(f, o.slot, blocks::flag_freed);
  const resident r = f.residents[o.slot];
  f.residents[o.slot] = {};
  drop_slot(f, o.slot);
  --f.live;
  --c.objects;
  ++c.freed_since;
  c.payload_bytes -= r.bytes;
  unbear(f, r);
  list_room(f);
  bury_if_empty(f, false);
  return errc::ok;
}

errc shared_blocks::release(where& at) {
  const found o = find(at);
  if (o.f == nullptr) return errc::not_found;
  frame& f = *o.f;
  if (f.residents[o.slot].vblock != f.primary) {
    std::vector<std::byte> payload;
    if (const errc e = load_object(f, o.slot, payload); e != errc::ok) return e;
    const resident before = f.residents[o.slot];
    if (const errc e = bear(f, o.slot); e != errc::ok) return e;
    store_object(f, o.slot, payload);
    unbear(f, before);
  }
  at = where_of(f, o.slot);
  return errc::ok;
}

}  // namespace fm::store::node
