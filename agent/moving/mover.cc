// Walking the batches of a region, and publishing moves; see mover.h for the three parts of a move.
// Invariant owned here: an entry changes from exactly the address that was copied, under the heap's mutex, or not at
// all.
// Called by the cleaner and by evacuators, under heap::mover.
#include "mover.h"

#include "agent/base/limits.h"
#include "base/log.h"

namespace fm::agent {

walked find_copy(const heap& h, const region& source, heap::copy_walk& at, std::uint64_t& budget, std::uint64_t& bytes,
                 std::uint64_t& header) {
  const std::byte* const from = source.memory.base();
  while (at.extent < source.extents.size()) {
    const extent& e = source.extents[at.extent];
    if (at.offset < e.begin) at.offset = at.batch_end = e.begin;
    if (at.offset == e.end) {
      ++at.extent;
      continue;
    }
    if (budget == 0) return walked::more;
    if (at.offset == at.batch_end) {
      batch_header b;
      if (e.end - at.offset < sizeof b) return walked::damaged;
      std::memcpy(&b, from + at.offset, sizeof b);
      if (b.magic != batch_magic || b.length < sizeof b || b.length % 8 != 0 || b.length > e.end - at.offset)
        return walked::damaged;
      at.batch_end = at.offset + b.length;
      at.offset = b.count == 0 ? at.batch_end : at.offset + sizeof b;
      budget -= std::min(budget, std::uint64_t{b.count == 0 ? 64 : sizeof b});
      continue;
    }
    bytes = h.copy_bytes(from + at.offset, at.batch_end - at.offset, header);
    if (bytes == 0) return walked::damaged;
    budget -= std::min(budget, bytes);
    return walked::found;
  }
  return walked::all;
}

bool move_batch::begin(heap& h, region_use use) {
  errc why = errc::ok;
  if (h.move_target == nullptr) h.move_target = h.open_region(use, why);
  if (h.move_target == nullptr) return false;
  h.move_target->extents.reserve(h.move_target->extents.size() + 1);  // so that publish asks for no memory
  begin_ = h.move_target->append_end.load(std::memory_order_relaxed);
  end_ = begin_ + sizeof(batch_header);
  target_.enter(h.move_target->number, h.move_target->generation);
  return true;
}

move_batch::outcome move_batch::publish(heap& h) {
  outcome o;
  region& target = *target_;
  if (!copies_.empty()) {
    batch_header b{batch_magic, 0, 0, static_cast<std::uint32_t>(end_ - begin_),
                   static_cast<std::uint32_t>(copies_.size())};
    const std::uint32_t seed = detail::crc32c(&b, sizeof b);
    b.crc = detail::crc32c(target.memory.base() + begin_ + sizeof b, b.length - sizeof b, seed);
    std::memcpy(target.memory.base() + begin_, &b, sizeof b);
  }
  std::unique_lock lock(h.mutex);
  if (!h.closed.load() && !copies_.empty()) {
    target.append(static_cast<std::uint32_t>(begin_), static_cast<std::uint32_t>(end_));
    o.bytes = end_ - begin_;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (i != 0 && i % limits::moves_at_once == 0) {
        lock.unlock();
        lock.lock();
        if (h.closed.load()) break;
      }
      const moved& m = copies_[i];
      word_t expected = m.from;
      if (!m.entry->compare_exchange_strong(expected, m.to, std::memory_order_acq_rel)) {
        ++o.lost;
        continue;
      }
      h.add_live(target, m.to);
      h.drop_live(*h.regions_pool.find(home_address::unpack(m.from).region), m.from);
      ++o.objects;
    }
  }
  if (!h.closed.load() && full_) seal_target(h);
  return o;
}

void note_unwalkable(const heap& h, region& r, const heap::copy_walk& at) {
  if (r.state != region_state::sealed || r.live_count == 0) return;
  r.unwalkable = true;
  log::warn("heap {}: region {} cannot be evacuated, its batches are damaged at offset {}", h.name, r.number,
            at.offset);
}

}  // namespace fm::agent
