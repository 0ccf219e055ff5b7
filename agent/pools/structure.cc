// The structure of a pool's blocks: the table, virtual blocks, frames, and who allocates in which; see blocks.h for the
// invariants. Members of pool_blocks. The caller has the pool's structure exclusively; to look for a frame with room,
// and to list one, it is enough to share it.
#include <cmath>

#include "blocks.h"
#include "object_memory.h"

namespace fm::agent {

pool_blocks::pool_blocks(pool_frames& frames, const options& o)
    : frames_(frames), options_(o), classes_(blocks::class_count) {
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    size_class_state& s = classes_[c];
    s.naming = o.wanted[c];
    const std::uint32_t bits = blocks::random_bits(s.naming);
    if (bits == 0 || !o.layout.exists(c)) continue;
    // Two half full blocks of n slots can be merged with a probability of about exp(-(n/2)^2 / 2^bits) (CoRM section
    // 3.1.2).
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

void pool_blocks::set_word(std::uint32_t v, std::uint64_t word) {
  shared_memory::store_word(frames_.memory(chunks_[v / blocks::chunk_words]) + v % blocks::chunk_words * 8, word);
}

std::uint64_t pool_blocks::word_of(std::uint32_t v) const {
  return shared_memory::load_word(frames_.memory(chunks_[v / blocks::chunk_words]) + v % blocks::chunk_words * 8);
}

void pool_blocks::map(std::uint32_t v, frame& f) {
  vblock& b = vblocks_[v];
  b.frame = f.number;
  b.in_frame = static_cast<std::uint32_t>(f.vblocks.size());
  f.vblocks.push_back(v);
  ++vblocks_mapped_;
  ++classes_[f.size_class].counts.vblocks;
  set_word(v, blocks::table_word(f.size_class, f.at, ++changes_));
}

void pool_blocks::unmap(std::uint32_t v) {
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

errc pool_blocks::add_primary(frame& f) {
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

errc pool_blocks::new_frame(std::uint32_t size_class, std::uint32_t arena_number) {
  const std::uint32_t bytes = layout().block(size_class);
  blocks::place at;
  if (const errc e = frames_.take(bytes, at); e != errc::ok) return e;
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::uint32_t>(all_.size()));
    all_.emplace_back();
  }
  const std::uint32_t number = unused_.back();
  all_[number] = std::make_unique<frame>();
  frame& f = *all_[number];
  f.number = number;
  f.size_class = static_cast<std::uint8_t>(size_class);
  f.arena = static_cast<std::uint16_t>(arena_number);
  f.at = at;
  f.slots = layout().slots(size_class);
  f.used.assign((f.slots + 63) / 64, 0);
  f.residents.resize(f.slots);
  if (const std::uint32_t bits = blocks::random_bits(classes_[size_class].naming); bits != 0)
    f.ids.assign((std::size_t{1} << bits) / 64, 0);
  // What is left there from before must not look like anything that lives.
  for (std::uint32_t s = 0; s < f.slots; ++s) mark(f, s, blocks::flag_freed);
  if (const errc e = add_primary(f); e != errc::ok) {
    frames_.give_back(at, bytes);
    return e;
  }
  unused_.pop_back();
  f.state = frame_state::open;
  size_class_state& c = classes_[size_class];
  f.class_at = static_cast<std::uint32_t>(c.frames.size());
  c.frames.push_back(number);
  ++c.counts.frames;
  list_room(f);
  return errc::ok;
}

/// For want of memory, a frame with room that another thread's arena has, or another of this thread's: rather one of
/// several than the only one, and not the one that is allocated in there, which is at the back.
bool pool_blocks::take_over(std::uint32_t size_class, std::uint32_t arena_number) {
  size_class_state& c = classes_[size_class];
  const auto arenas = static_cast<std::uint32_t>(c.arenas.size());
  for (const std::size_t at_least : {2, 1}) {
    for (std::uint32_t i = 1; i < arenas; ++i) {
      const std::uint32_t n = (arena_number + i) % arenas;
      if (c.arenas[n] == nullptr) continue;
      std::vector<std::uint32_t>& listed = c.arenas[n]->with_room;
      if (listed.size() < at_least) continue;
      const auto at = std::find_if(listed.begin(), listed.end(), [&](std::uint32_t number) {
        const frame& f = *all_[number];
        return f.state == frame_state::open && &classes_[f.size_class] == &c && f.arena == n && f.taken < f.slots;
      });
      if (at == listed.end()) continue;
      frame& f = *all_[*at];
      listed.erase(at);
      f.listed = false;
      f.arena = static_cast<std::uint16_t>(arena_number);
      list_room(f);
      return true;
    }
  }
  return false;
}

errc pool_blocks::add_frame(std::uint32_t size_class, std::uint32_t arena_number) {
  size_class_state& c = classes_[size_class];
  if (arena_number >= c.arenas.size()) c.arenas.resize(arena_number + 1);
  if (c.arenas[arena_number] == nullptr) c.arenas[arena_number] = std::make_unique<arena>();
  const errc e = new_frame(size_class, arena_number);
  return e != errc::ok && take_over(size_class, arena_number) ? errc::ok : e;
}

// ---- frames with room: also while the structure is shared ----

pool_blocks::frame_guard pool_blocks::enter(frame& f) const {
  frame_guard inside(f.mutex);
  if (options_.in_frame != nullptr) options_.in_frame(options_.context, f.number);
  return inside;
}

void pool_blocks::list_room(frame& f) {
  size_class_state& c = classes_[f.size_class];
  arena& a = *c.arenas[f.arena];
  const std::lock_guard lock(a.mutex);
  const std::lock_guard inside(f.mutex);
  if (f.listed || f.state != frame_state::open) return;
  f.listed = true;
  if (a.with_room.size() > 2 * c.frames.size() + 64)  // frames that were buried leave their numbers behind
    std::erase_if(a.with_room, [&](std::uint32_t n) {
      const frame& o = *all_[n];
      // One that is being merged comes back, and is listed still.
      return (o.state != frame_state::open && o.state != frame_state::merging) || o.size_class != f.size_class ||
             o.arena != f.arena || n == f.number;
    });
  a.with_room.push_back(f.number);
}

/// What it names may have been buried since, and used for something else.
pool_blocks::frame* pool_blocks::current_frame(size_class_state& c, std::uint32_t arena_number, frame_guard& inside) {
  if (arena_number >= c.arenas.size() || c.arenas[arena_number] == nullptr) return nullptr;
  const std::uint32_t number = c.arenas[arena_number]->current.load(std::memory_order_relaxed);
  if (number == none) return nullptr;
  frame& f = *all_[number];
  if (&classes_[f.size_class] != &c || f.arena != arena_number || f.state != frame_state::open) return nullptr;
  inside = enter(f);
  if (f.taken < f.slots) return &f;
  inside = {};
  return nullptr;
}

pool_blocks::frame* pool_blocks::frame_with_room(size_class_state& c, std::uint32_t arena_number, frame_guard& inside) {
  if (arena_number >= c.arenas.size() || c.arenas[arena_number] == nullptr) return nullptr;
  arena& a = *c.arenas[arena_number];
  const std::lock_guard lock(a.mutex);
  for (; !a.with_room.empty(); a.with_room.pop_back()) {
    frame& f = *all_[a.with_room.back()];
    // It may have been used for another class or arena since it was listed; then it is not listed here.
    if (&classes_[f.size_class] != &c || f.arena != arena_number) continue;
    inside = enter(f);
    if (f.state == frame_state::open && f.taken < f.slots) {
      a.current.store(f.number, std::memory_order_relaxed);
      return &f;
    }
    f.listed = false;  // whoever frees a slot of it lists it again, and has to enter it before
    inside = {};
  }
  return nullptr;
}

std::uint32_t pool_blocks::free_slot(const frame& f, std::uint32_t from) {
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

void pool_blocks::bury(frame& f) {
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

void pool_blocks::bury_if_empty(frame& f, bool all) {
  if (f.live != 0 || f.taken != 0 || f.state != frame_state::open) return;
  // An arena keeps one: the next object would want it back.
  std::uint32_t& kept = classes_[f.size_class].arenas[f.arena]->empty;
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

bool pool_blocks::reclaim(std::uint64_t passed) {
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

}  // namespace fm::agent
