// Merging sparse blocks of a pool, in steps; see blocks.h.
//
// While a merge copies, the emptied block's objects are the ones that count: copies are locked, and what is changed
// meanwhile is copied again at the end. Then, in one step: copies are unlocked, the table words name the other frame,
// the old slots become tombstones. In between both are the same, so a reader needs no luck; and one that comes to a
// tombstone reads the table word again, and finds the object in its slot, or in one of the next.
#include <algorithm>

#include "agent/base/limits.h"
#include "blocks.h"
#include "object_memory.h"

namespace fm::agent {

void pool_blocks::begin_round() {
  if (merge_.running) finish_merge();
  plan_ = plan{};
  plan_.running = plan_.collecting = true;
}

bool pool_blocks::is_sparse(std::uint32_t above) const {
  if (above == 0) return false;
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    const size_class_state& s = classes_[c];
    if (!s.compactable || s.counts.frames < 2) continue;
    const std::uint64_t slots = layout().slots(c), all = s.counts.frames * slots;
    if (s.counts.freed.load(std::memory_order_relaxed) - s.counts.freed_before >= slots &&
        (all - s.counts.objects()) * 65536 > all * above)
      return true;
  }
  return false;
}

bool pool_blocks::compact_step(std::uint32_t objects, std::uint64_t bytes) {
  if (!plan_.running) return false;
  if (!merge_.running) {
    if (plan_.collecting) {
      collect_some(4096);
      return true;
    }
    if (!next_merge()) {
      if (!plan_.merged) ++plan_.size_class;
      plan_.collecting = true;
      plan_.merged = false;
      plan_.next = 0;
      plan_.sparse.clear();
      plan_.running = plan_.size_class < blocks::class_count;
      return plan_.running;
    }
  }
  frame& from = *all_[merge_.from];
  frame& to = *all_[merge_.to];
  const std::uint32_t slot_bytes = blocks::slot_bytes(from.size_class);
  std::uint64_t copied = 0;
  for (; merge_.next < from.slots; ++merge_.next) {
    if (from.residents[merge_.next].generation == 0) continue;
    if (copied == objects || copied * slot_bytes >= bytes) return true;
    copy_resident(from, merge_.next, to);
    ++copied;
  }
  finish_merge();
  return true;
}

void pool_blocks::collect_some(std::uint32_t n) {
  // Classes without a block are passed over at once.
  while (plan_.size_class < blocks::class_count && classes_[plan_.size_class].frames.empty()) ++plan_.size_class;
  if (plan_.size_class == blocks::class_count) {
    plan_.running = false;
    return;
  }
  size_class_state& c = classes_[plan_.size_class];
  if (plan_.next == 0) c.counts.freed_before = c.counts.freed;
  for (; n > 0 && plan_.next < c.frames.size(); --n) {
    frame& f = *all_[c.frames[plan_.next]];
    if (f.live == 0 && f.taken == 0) {
      bury_if_empty(f, true);  // another frame comes to its place in the list
      continue;
    }
    if (c.compactable) plan_.sparse.emplace_back(f.live, f.number);
    ++plan_.next;
  }
  if (plan_.next < c.frames.size()) return;
  plan_.collecting = false;
  std::sort(plan_.sparse.begin(), plan_.sparse.end());
  plan_.low = 0;
  plan_.high = plan_.sparse.empty() ? 0 : plan_.sparse.size() - 1;
}

bool pool_blocks::may_merge(const frame& from, const frame& to) {
  class_counts& c = classes_[from.size_class].counts;
  ++c.merges_tried;
  const blocks::naming naming = classes_[from.size_class].naming;
  if (naming == blocks::naming::birth) return true;
  const bool by_offset = naming == blocks::naming::offset;
  const std::vector<std::uint64_t>& mine = by_offset ? from.used : from.ids;
  const std::vector<std::uint64_t>& theirs = by_offset ? to.used : to.ids;
  std::uint64_t same = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) same += static_cast<std::uint64_t>(std::popcount(mine[i] & theirs[i]));
  if (same == 0) return true;
  ++c.merges_in_conflict;
  c.ids_in_conflict += same;
  return false;
}

/// The two ends of the snapshot meet: what does not take the sparsest block takes none of the others either.
bool pool_blocks::next_merge() {
  const auto usable = [&](std::size_t i) -> frame* {
    frame& f = *all_[plan_.sparse[i].second];
    return f.state == frame_state::open && f.size_class == plan_.size_class && f.live != 0 ? &f : nullptr;
  };
  while (plan_.low < plan_.high) {
    frame* const from = usable(plan_.low);
    frame* to = usable(plan_.high);
    if (from == nullptr) {
      ++plan_.low;
      continue;
    }
    if (to == nullptr || from->live + to->taken > to->slots) {
      --plan_.high;
      continue;
    }
    std::size_t at = plan_.high;
    for (std::size_t tries = 0;;) {
      if (to != nullptr && from->live + to->taken <= to->slots) {
        if (may_merge(*from, *to)) break;
        if (++tries == limits::merge_tries_max) at = plan_.low + 1;
      }
      to = --at > plan_.low ? usable(at) : nullptr;
      if (at <= plan_.low) break;
    }
    ++plan_.low;
    if (to == nullptr) continue;  // it is in conflict with all others
    plan_.merged = true;
    from->state = to->state = frame_state::merging;
    merge_.running = true;
    merge_.from = from->number;
    merge_.to = to->number;
    merge_.next = 0;
    merge_.kept = 0;
    merge_.copies.assign(from->slots, no_slot);
    return true;
  }
  return false;
}

void pool_blocks::copy_resident(frame& from, std::uint32_t slot, frame& to) {
  resident& r = from.residents[slot];
  std::uint16_t& copy = merge_.copies[slot];
  if (copy == no_slot) {
    const std::uint32_t at = free_slot(to, slot);
    FM_CHECK(at != none, "a merge into a block without room");
    take_slot(to, at);
    copy = static_cast<std::uint16_t>(at);
    if (at == slot) ++merge_.kept;
  }
  r.changed = false;
  const std::uint32_t bytes = blocks::occupied_bytes(r.bytes, layout().mode(from.size_class));
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
  for (std::uint32_t s = 0; s < from.slots; ++s) {
    resident& r = from.residents[s];
    std::uint16_t& copy = merge_.copies[s];
    if (r.generation != 0) {
      if (copy == no_slot || r.changed) copy_resident(from, s, to);
      to.residents[copy] = r;
      if (random)
        to.ids[r.index / 64] |= std::uint64_t{1} << r.index % 64;
      else
        vblocks_[r.vblock].slot_of[r.index] = copy;
      ++c.objects_moved;
    } else if (copy != no_slot) {
      mark(to, copy, blocks::flag_freed);
      drop_slot(to, copy);
      copy = no_slot;
    }
  }
  shared_memory::fence();
  for (std::uint32_t s = 0; s < from.slots; ++s)
    if (merge_.copies[s] != no_slot) mark(to, merge_.copies[s], blocks::flag_live);
  shared_memory::fence();
  for (const std::uint32_t v : from.vblocks) {
    vblock& b = vblocks_[v];
    b.frame = to.number;
    b.in_frame = static_cast<std::uint32_t>(to.vblocks.size());
    to.vblocks.push_back(v);
    set_word(v, blocks::table_word(to.size_class, to.at, ++changes_));
  }
  shared_memory::fence();
  for (std::uint32_t s = 0; s < from.slots; ++s)
    if (merge_.copies[s] != no_slot) mark(from, s, blocks::flag_live | blocks::flag_moved);

  const std::uint32_t old_primary = from.primary;
  to.live += from.live;
  from.live = from.taken = 0;
  from.vblocks.clear();
  if (vblocks_[old_primary].live == 0) unmap(old_primary);
  ++c.merges_made;
  c.slots_kept += merge_.kept;
  c.bytes_returned += layout().block(from.size_class);
  bury(from);
  to.state = frame_state::open;
  list_room(to);
  bury_if_empty(to, true);
  merge_.running = false;
}

std::vector<std::uint32_t> pool_blocks::fill(std::uint32_t size_class) const {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t f : classes_[size_class].frames) all.push_back(all_[f]->live);
  return all;
}

}  // namespace fm::agent
