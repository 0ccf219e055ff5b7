// Merging sparse blocks of a pool, in steps; see blocks.h.
//
// While a merge copies, the emptied block's objects are the ones that count: copies are locked, and what is changed
// meanwhile is copied again at the end. Then, in one step: copies are unlocked, the table words name the other frame,
// the old slots become tombstones. In between both are the same, so a reader needs no luck; and one that comes to a
// tombstone reads the table word again, and finds the object in its slot, or in one of the next.
#include <algorithm>
#include <utility>

#include "agent/base/limits.h"
#include "blocks.h"
#include "object_memory.h"

namespace fm::agent {

void pool_blocks::begin_round() { begin_round_of(~std::uint64_t{0}); }

void pool_blocks::begin_round(const thresholds& above) {
  static_assert(blocks::class_count <= 64);
  std::uint64_t wanted = 0;
  for (std::uint32_t c = 0; c < blocks::class_count; ++c)
    if (has_free_above(c, above[c])) wanted |= std::uint64_t{1} << c;
  begin_round_of(wanted);
}

void pool_blocks::begin_round_of(std::uint64_t wanted) {
  if (merge_.running) finish_merge();
  plan_ = plan{};
  plan_.running = true;
  plan_.classes = wanted;
  next_order();
}

bool pool_blocks::has_free_above(std::uint32_t size_class, std::uint32_t above) const {
  const size_class_state& s = classes_[size_class];
  const std::uint64_t all = s.counts.frames * layout().slots(size_class);
  return above != 0 && all > s.counts.objects() && (all - s.counts.objects()) * 65536 > all * above;
}

bool pool_blocks::is_sparse(const thresholds& above) const {
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    const size_class_state& s = classes_[c];
    if (above[c] == 0 || !s.compactable || s.counts.frames < 2) continue;
    if (s.counts.freed.load(std::memory_order_relaxed) - s.counts.freed_before >= layout().slots(c) &&
        has_free_above(c, above[c]))
      return true;
  }
  return false;
}

bool pool_blocks::compact_step(std::uint32_t objects, std::uint64_t bytes, std::uint32_t looks) {
  if (!plan_.running) return false;
  if (imaging_) return true;
  if (!merge_.running) {
    if (plan_.collecting) {
      collect_some(looks);
      return true;
    }
    const search done = next_merge(looks);
    if (done == search::unfinished) return true;
    if (done == search::nothing) {
      if (!plan_.merged) ++plan_.size_class;
      next_order();
      return plan_.running;
    }
  }
  frame& from = *all_[merge_.from];
  frame& to = *all_[merge_.to];
  const std::uint32_t slot_bytes = blocks::slot_bytes(from.size_class);
  std::uint64_t copied = 0;
  for (; merge_.next < from.slots; ++merge_.next) {
    if (!from.used.test(merge_.next)) continue;
    if (copied == objects || copied * slot_bytes >= bytes) return true;
    copy_resident(from, merge_.next, to);
    ++copied;
  }
  finish_merge();
  return true;
}

// ---- the order of a class's blocks ----

void pool_blocks::next_order() {
  // Classes without a block, and those that the round does not look at, are passed over at once.
  while (plan_.size_class < blocks::class_count &&
         (classes_[plan_.size_class].frames.empty() || (plan_.classes >> plan_.size_class & 1) == 0))
    ++plan_.size_class;
  plan_.running = plan_.collecting = plan_.size_class < blocks::class_count;
  plan_.merged = false;
  plan_.next = plan_.low = plan_.high = 0;
  ++orders_made_;  // no frame is in it yet
  if (plan_.running)
    plan_.lists.assign(layout().slots(plan_.size_class) + 1, plan::ends());
  else
    plan_.lists = std::vector<plan::ends>();
}

void pool_blocks::put_in_order(frame& f, bool in_front) {
  plan::ends& list = plan_.lists[f.live];
  f.order = orders_made_;
  f.order_live = f.live;
  f.order_before = in_front ? none : list.back;
  f.order_next = in_front ? list.front : none;
  (f.order_before != none ? all_[f.order_before]->order_next : list.front) = f.number;
  (f.order_next != none ? all_[f.order_next]->order_before : list.back) = f.number;
}

void pool_blocks::take_out_of_order(frame& f) {
  if (f.order != orders_made_) return;
  plan::ends& list = plan_.lists[f.order_live];
  f.order = 0;
  (f.order_before != none ? all_[f.order_before]->order_next : list.front) = f.order_next;
  (f.order_next != none ? all_[f.order_next]->order_before : list.back) = f.order_before;
}

void pool_blocks::collect_some(std::uint32_t looks) {
  size_class_state& c = classes_[plan_.size_class];
  if (plan_.next == 0) c.counts.freed_before = c.counts.freed;
  for (; looks > 0 && plan_.next < c.frames.size(); --looks, ++looked_at_) {
    frame& f = *all_[c.frames[plan_.next]];
    if (f.live == 0 && f.taken == 0) {
      bury_if_empty(f, true);  // another frame comes to its place in the list
      continue;
    }
    if (c.compactable) put_in_order(f, true);
    ++plan_.next;
  }
  if (plan_.next < c.frames.size()) return;
  plan_.collecting = false;
  plan_.high = static_cast<std::uint32_t>(plan_.lists.size()) - 1;
}

bool pool_blocks::may_merge(const frame& from, const frame& to) {
  class_counts& c = classes_[from.size_class].counts;
  ++c.merges_tried;
  const blocks::naming naming = classes_[from.size_class].naming;
  if (naming == blocks::naming::birth) return true;
  const bool by_offset = naming == blocks::naming::offset;
  const std::span<const std::uint64_t> mine = (by_offset ? from.used : from.ids).words();
  const std::span<const std::uint64_t> theirs = (by_offset ? to.used : to.ids).words();
  std::uint64_t same = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) same += static_cast<std::uint64_t>(std::popcount(mine[i] & theirs[i]));
  if (same == 0) return true;
  ++c.merges_in_conflict;
  c.ids_in_conflict += same;
  return false;
}

/// The two ends of the order meet: what does not take the sparsest block takes none of the others either. A block may
/// have changed since it was put into the order; it is looked at again in the next one.
pool_blocks::search pool_blocks::next_merge(std::uint32_t looks) {
  const auto usable = [](const frame& f) { return f.state == frame_state::open && f.live != 0; };
  for (; looks > 0; --looks, ++looked_at_) {
    if (plan_.low > plan_.high) return search::nothing;
    if (plan_.lists[plan_.low].front == none) {
      ++plan_.low;
      continue;
    }
    if (plan_.lists[plan_.high].back == none) {
      --plan_.high;
      continue;
    }
    frame& from = *all_[plan_.lists[plan_.low].front];
    if (!usable(from)) {
      take_out_of_order(from);
      continue;
    }
    frame* to = all_[plan_.lists[plan_.high].back].get();
    if (to == &from) return search::nothing;  // the only one that is left
    if (!usable(*to) || from.live + to->taken > to->slots) {
      take_out_of_order(*to);
      continue;
    }
    to = partner_of(from, *to);
    take_out_of_order(from);
    if (to == nullptr) continue;  // it is in conflict with all others
    plan_.merged = true;
    from.state = to->state = frame_state::merging;
    merge_.running = true;
    merge_.from = from.number;
    merge_.to = to->number;
    merge_.next = 0;
    merge_.kept = 0;
    merge_.copies.assign(from.slots, no_slot);
    merge_.changed = bitmap(from.slots);
    return search::found;
  }
  return search::unfinished;
}

/// A block that `from` may be merged into: `first`, which has room, or one that comes after it, going down.
pool_blocks::frame* pool_blocks::partner_of(const frame& from, frame& first) {
  frame* to = &first;
  std::uint32_t live = first.order_live;
  for (std::size_t tries = 0; tries < limits::merge_tries_max; ++tries, ++looked_at_) {
    if (to != &from && to->state == frame_state::open && to->live != 0 && from.live + to->taken <= to->slots &&
        may_merge(from, *to))
      return to;
    to = noted(to->order_before);
    while (to == nullptr && live > plan_.low) to = noted(plan_.lists[--live].back);
    if (to == nullptr) break;
  }
  return nullptr;
}

void pool_blocks::copy_resident(frame& from, std::uint32_t slot, frame& to) {
  std::uint16_t& copy = merge_.copies[slot];
  if (copy == no_slot) {
    const std::uint32_t at = free_slot(to, slot);
    FM_CHECK(at != none, "a merge into a block without room");
    take_slot(to, at);
    copy = static_cast<std::uint16_t>(at);
    if (at == slot) ++merge_.kept;
  }
  merge_.changed.clear(slot);
  const std::uint32_t object_bytes = std::min(header_of(from, slot).bytes, layout().capacity(from.size_class));
  const std::uint32_t bytes = blocks::occupied_bytes(object_bytes, layout().mode(from.size_class));
  const std::byte* const source = slot_memory(from, slot);
  std::byte* const target = slot_memory(to, copy);
  std::uint64_t state = shared_memory::load_word(source + 8);
  state |= std::uint64_t{blocks::flag_locked} << 16;
  shared_memory::store_word(target + 8, state);
  shared_memory::fence();
  shared_memory::store_word(target, shared_memory::load_word(source));
  shared_memory::copy(target + 16, source + 16, bytes - 16);
}

void pool_blocks::finish_merge() {
  frame& from = *all_[merge_.from];
  frame& to = *all_[merge_.to];
  const bool random = classes_[from.size_class].random();
  class_counts& c = classes_[from.size_class].counts;
  std::vector<std::uint16_t> moves;  // for the log: a slot, and the one that it is now
  for (std::uint32_t s = 0; s < from.slots; ++s) {
    std::uint16_t& copy = merge_.copies[s];
    if (from.used.test(s)) {
      if (copy == no_slot || merge_.changed.test(s)) copy_resident(from, s, to);
      const blocks::object_header h = header_of(from, s);
      index_slot(to, copy, {h.vblock, h.generation, h.index});
      if (random) to.ids.set(h.index);
      move_expiry(from, s, to, copy);
      if (writes_down(from)) moves.insert(moves.end(), {static_cast<std::uint16_t>(s), copy});
      ++c.objects_moved;
    } else if (copy != no_slot) {
      mark(to, copy, blocks::flag_freed);
      drop_slot(to, copy);
      copy = no_slot;
    }
  }
  if (writes_down(from))
    (void)write_down(pool_log::make(
        record_kind::merge, merge_record{from.number, to.number, static_cast<std::uint32_t>(moves.size() / 2), 0},
        std::as_bytes(std::span(moves))));
  shared_memory::fence();
  for (std::uint32_t s = 0; s < from.slots; ++s)
    if (merge_.copies[s] != no_slot) mark(to, merge_.copies[s], blocks::flag_live);
  shared_memory::fence();
  for (std::uint32_t v = std::exchange(from.vblocks, none); v != none;) {
    vblock& b = vblocks_[v];
    const std::uint32_t next = std::exchange(b.next, to.vblocks);
    b.frame = to.number;
    b.before = none;
    if (b.next != none) vblocks_[b.next].before = v;
    to.vblocks = v;
    set_word(v, blocks::table_word(to.size_class, to.at, ++changes_, true));
    v = next;
  }
  shared_memory::fence();
  for (std::uint32_t s = 0; s < from.slots; ++s)
    if (merge_.copies[s] != no_slot) mark(from, s, blocks::flag_live | blocks::flag_moved);

  const std::uint32_t old_primary = from.primary;
  to.live += from.live;
  from.live = from.taken = 0;
  if (vblocks_[old_primary].live == 0) unmap(old_primary);
  ++c.merges_made;
  c.slots_kept += merge_.kept;
  c.bytes_returned += layout().block(from.size_class);
  from.mirrored = false;  // the record of the merge says it
  bury(from);
  to.state = frame_state::open;
  if (to.order == orders_made_) {  // it has more objects now
    take_out_of_order(to);
    put_in_order(to, false);
    plan_.high = std::max(plan_.high, to.live);
  }
  list_room(to);
  bury_if_empty(to, true);
  merge_ = merge{};
}

std::vector<std::uint32_t> pool_blocks::fill(std::uint32_t size_class) const {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t f : classes_[size_class].frames) all.push_back(all_[f]->live);
  return all;
}

}  // namespace fm::agent
