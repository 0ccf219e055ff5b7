// The structure of a pool's blocks: the table, virtual blocks, frames, and who allocates in which; see blocks.h for the
// invariants. Members of pool_blocks. The caller has the pool's structure exclusively; to look for a frame with room,
// and to list one, it is enough to share it.
#include <cmath>

#include "blocks.h"
#include "object_memory.h"

namespace fm::agent {

namespace {

/// Of a list that has become much shorter.
void give_back_slack(std::vector<std::uint32_t>& list) {
  if (list.capacity() > 4 * list.size() + 64) list.shrink_to_fit();
}

}  // namespace

pool_blocks::pool_blocks(pool_frames& frames, const options& o)
    : frames_(frames), options_(o), classes_(blocks::class_count) {
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    size_class_state& s = classes_[c];
    s.naming = o.wanted[c];
    const std::uint32_t bits = blocks::random_bits(s.naming);
    if (bits == 0 || !o.layout.exists(c)) continue;
    // Two half full blocks of n slots can be merged with a probability of about exp(-(n/2)^2 / 2^bits) (CoRM section
    // 3.4).
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
  b.before = none;
  b.next = f.vblocks;
  if (b.next != none) vblocks_[b.next].before = v;
  f.vblocks = v;
  ++vblocks_mapped_;
  ++classes_[f.size_class].counts.vblocks;
  set_word(v, blocks::table_word(f.size_class, f.at, ++changes_));
}

void pool_blocks::unmap(std::uint32_t v) {
  vblock& b = vblocks_[v];
  FM_ASSERT(b.live == 0 && b.frame != none, "a virtual block is unmapped when nothing that was born in it lives");
  frame& f = *all_[b.frame];
  (b.before != none ? vblocks_[b.before].next : f.vblocks) = b.next;
  if (b.next != none) vblocks_[b.next].before = b.before;
  b.frame = b.next = b.before = none;
  --vblocks_mapped_;
  --classes_[f.size_class].counts.vblocks;
  set_word(v, 0);
  if (mirrors_) return;  // the primary says when it is used again
  if (b.last_generation == generation_max) {
    ++vblocks_retired_;
  } else {
    b.next = unmapped_;
    unmapped_ = v;
  }
}

pool_log::entry pool_blocks::note_frame(record_kind kind, bool wanted) const {
  return wanted ? pool_log::make(kind, frame_record{}) : pool_log::entry();
}

errc pool_blocks::add_primary(frame& f) {
  pool_log::entry note = note_frame(record_kind::primary, writes_down(f));
  std::uint32_t v = 0;
  if (unmapped_ != none) {
    v = unmapped_;
    unmapped_ = vblocks_[v].next;
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
  if (note != nullptr) {
    pool_log::fill(note, frame_record{f.number, f.size_class, f.arena, v, vblocks_[v].last_generation, 0});
    (void)write_down(std::move(note));
  }
  const std::uint32_t before = f.primary;
  f.primary = v;
  map(v, f);
  if (before != none && vblocks_[before].live == 0)
    unmap(before);
  else if (before != none)
    set_word(before, blocks::table_word(f.size_class, f.at, ++changes_, true));
  return errc::ok;
}

// ---- frames ----

errc pool_blocks::new_frame(std::uint32_t size_class, std::uint32_t arena_number) {
  pool_log::entry note = note_frame(record_kind::frame, log_ != nullptr && log_->is_recording());
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
  f.used = bitmap(f.slots);
  if (const std::uint32_t bits = blocks::random_bits(classes_[size_class].naming); bits != 0)
    f.ids = bitmap(std::uint32_t{1} << bits);
  // What is left there from before must not look like anything that lives.
  for (std::uint32_t s = 0; s < f.slots; ++s) mark(f, s, blocks::flag_freed);
  if (const errc e = add_primary(f); e != errc::ok) {
    frames_.give_back(at, bytes);
    all_[number].reset();
    return e;
  }
  if (note != nullptr) {
    pool_log::fill(note,
                   frame_record{number, size_class, arena_number, f.primary, vblocks_[f.primary].last_generation, 0});
    (void)write_down(std::move(note));
    f.mirrored = true;
  }
  unused_.pop_back();
  frame_books_.fetch_add(sizeof f + f.used.bytes() + f.ids.bytes(), std::memory_order_relaxed);
  f.state = frame_state::open;
  size_class_state& c = classes_[size_class];
  f.class_at = static_cast<std::uint32_t>(c.frames.size());
  c.frames.push_back(number);
  ++c.counts.frames;
  list_room(f);
  return errc::ok;
}

/// For want of memory, a frame with room that another thread's arena has, or another of this thread's: rather one of
/// several than the only one, and then not the one that is allocated in there.
bool pool_blocks::take_over(std::uint32_t size_class, std::uint32_t arena_number) {
  size_class_state& c = classes_[size_class];
  const auto arenas = static_cast<std::uint32_t>(c.arenas.size());
  for (const std::size_t at_least : {2, 1}) {
    for (std::uint32_t i = 1; i < arenas; ++i) {
      const std::uint32_t n = (arena_number + i) % arenas;
      if (c.arenas[n] == nullptr) continue;
      arena& other = *c.arenas[n];
      if (other.with_room.size() < at_least) continue;
      const std::uint32_t current = at_least == 1 ? none : other.current.load(std::memory_order_relaxed);
      const auto at = std::find_if(other.with_room.begin(), other.with_room.end(), [&](std::uint32_t number) {
        const frame& f = *all_[number];
        return f.state == frame_state::open && f.taken < f.slots && number != current;
      });
      if (at == other.with_room.end()) continue;
      frame& f = *all_[*at];
      unlist(f);
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
  arena& a = *classes_[f.size_class].arenas[f.arena];
  const std::lock_guard lock(a.mutex);
  const std::lock_guard inside(f.mutex);
  if (f.listed || f.state != frame_state::open) return;
  f.listed = true;
  f.listed_at = static_cast<std::uint32_t>(a.with_room.size());
  a.with_room.push_back(f.number);
}

void pool_blocks::take_off_list(arena& a, frame& f) {
  f.listed = false;
  a.with_room[f.listed_at] = a.with_room.back();
  all_[a.with_room[f.listed_at]]->listed_at = f.listed_at;
  a.with_room.pop_back();
  give_back_slack(a.with_room);
}

void pool_blocks::unlist(frame& f) {
  arena& a = *classes_[f.size_class].arenas[f.arena];
  const std::lock_guard lock(a.mutex);
  const std::lock_guard inside(f.mutex);
  if (f.listed) take_off_list(a, f);
}

/// What it names may have been buried since, and used for something else.
pool_blocks::frame* pool_blocks::current_frame(size_class_state& c, std::uint32_t arena_number, frame_guard& inside) {
  if (arena_number >= c.arenas.size() || c.arenas[arena_number] == nullptr) return nullptr;
  frame* const f = noted(c.arenas[arena_number]->current.load(std::memory_order_relaxed));
  if (f == nullptr || &classes_[f->size_class] != &c || f->arena != arena_number || f->state != frame_state::open)
    return nullptr;
  inside = enter(*f);
  if (f->taken < f->slots) return f;
  inside = {};
  return nullptr;
}

pool_blocks::frame* pool_blocks::frame_with_room(size_class_state& c, std::uint32_t arena_number, frame_guard& inside) {
  if (arena_number >= c.arenas.size() || c.arenas[arena_number] == nullptr) return nullptr;
  arena& a = *c.arenas[arena_number];
  const std::lock_guard lock(a.mutex);
  while (!a.with_room.empty()) {
    frame& f = *all_[a.with_room.back()];
    inside = enter(f);
    if (f.state == frame_state::open && f.taken < f.slots) {
      a.current.store(f.number, std::memory_order_relaxed);
      return &f;
    }
    take_off_list(a, f);  // whoever frees a slot of it lists it again, and has to enter it before
    inside = {};
  }
  return nullptr;
}

std::uint32_t pool_blocks::free_slot(const frame& f, std::uint32_t from) {
  const std::span<const std::uint64_t> used = f.used.words();
  const auto words = static_cast<std::uint32_t>(used.size());
  std::uint64_t mask = ~std::uint64_t{0} << from % 64;
  for (std::uint32_t i = 0, w = from / 64; i <= words; ++i, w = (w + 1) % words, mask = ~std::uint64_t{0}) {
    const std::uint64_t open = ~used[w] & mask;
    if (open == 0) continue;
    const std::uint32_t slot = w * 64 + static_cast<std::uint32_t>(std::countr_zero(open));
    if (slot < f.slots) return slot;
  }
  return none;
}

void pool_blocks::bury(frame& f) {
  FM_ASSERT(f.live == 0, "a frame with live objects is buried");
  FM_ASSERT(f.expiries == nullptr, "a frame without objects has times of some");
  if (writes_down(f)) (void)write_down(pool_log::make(record_kind::bury, bury_record{f.number, 0}));
  while (f.vblocks != none) unmap(f.vblocks);
  take_out_of_order(f);
  unlist(f);
  size_class_state& c = classes_[f.size_class];
  c.frames[f.class_at] = c.frames.back();
  all_[c.frames[f.class_at]]->class_at = f.class_at;
  c.frames.pop_back();
  give_back_slack(c.frames);
  --c.counts.frames;
  f.state = frame_state::buried;
  f.primary = none;
  frame_books_.fetch_sub(f.used.bytes() + f.ids.bytes() + f.displaced.bytes(), std::memory_order_relaxed);
  f.used = bitmap();
  f.ids = bitmap();
  f.displaced = slot_index();
  graves_.push_back({f.number, ++epoch_});
  grave_bytes_ += layout().block(f.size_class);
}

void pool_blocks::bury_if_empty(frame& f, bool all) {
  if (f.live != 0 || f.taken != 0 || f.state != frame_state::open) return;
  // An arena keeps one: the next object would want it back.
  std::uint32_t& kept = classes_[f.size_class].arenas[f.arena]->empty;
  if (!all) {
    const frame* const other = noted(kept);
    if (other == nullptr || other == &f || other->state != frame_state::open || other->live != 0 ||
        other->size_class != f.size_class || other->arena != f.arena) {
      kept = f.number;
      return;
    }
  }
  bury(f);
}

bool pool_blocks::reclaim(std::uint64_t passed, std::uint32_t most) {
  bool any = false;
  for (; most > 0 && !graves_.empty() && graves_.front().epoch <= passed; --most) {
    const frame& f = *all_[graves_.front().frame];
    graves_.pop_front();
    const std::uint32_t bytes = layout().block(f.size_class);
    grave_bytes_ -= bytes;
    frames_.give_back(f.at, bytes);
    unused_.push_back(f.number);
    all_[f.number].reset();
    frame_books_.fetch_sub(sizeof(frame), std::memory_order_relaxed);
    any = true;
  }
  return any;
}

std::uint64_t pool_blocks::books_bytes() const {
  std::uint64_t bytes = frame_books_.load(std::memory_order_relaxed) + all_.size() * sizeof(all_[0]) +
                        unused_.capacity() * sizeof(unused_[0]) + vblocks_.size() * sizeof(vblock) +
                        chunks_.capacity() * sizeof(chunks_[0]) + graves_.size() * sizeof(grave) +
                        plan_.lists.capacity() * sizeof(plan_.lists[0]) +
                        merge_.copies.capacity() * sizeof(merge_.copies[0]) + merge_.changed.bytes() +
                        expiry_queue_bytes() + frames_.books_bytes();
  for (const size_class_state& c : classes_) {
    bytes += sizeof c + c.frames.capacity() * sizeof(c.frames[0]) + c.arenas.capacity() * sizeof(c.arenas[0]);
    for (const auto& a : c.arenas)
      if (a != nullptr) bytes += sizeof *a + a->with_room.capacity() * sizeof(a->with_room[0]);
  }
  return bytes;
}

}  // namespace fm::agent
