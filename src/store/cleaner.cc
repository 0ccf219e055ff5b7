// The cleaner: moves what is live in sparse sealed regions into regions of its own, so that the sources retire. It needs
// no tracing: a copy is live exactly when its slot's entry names its address.
//
// One step: (1) under the heap's mutex, choose a source and a target and enter both; (2) without it, walk a bounded part
// of the source and copy live objects into the target as one batch with sequence number 0; (3) under it again, publish:
// each entry is compare-exchanged from exactly the address that was copied. An index message that came between wins,
// and the copy is garbage. The owner reads the old copies until it has agreed to the source's retirement.
//
// The source's bytes may be mapped by the owner: headers are checked against the entry (trusted) before anything is
// copied, and a region whose batch headers are damaged is left alone.
#include <spdlog/spdlog.h>

#include "heap.h"

namespace fm::store::node {

namespace {

constexpr std::uint64_t walk_bytes_max = 256 << 10;
constexpr std::uint64_t copy_bytes_max = 64 << 10;

struct moved {
  entry_t* entry;
  word_t from, to;
};

/// The sealed region with the fewest live bytes, if it is worth cleaning.
region* choose_source(const heap& h, double below_live_ratio) {
  region* best = nullptr;
  const auto most = static_cast<std::uint64_t>(below_live_ratio * double(h.regions_pool.region_bytes()));
  for (region* r : h.regions)
    if (r->state == region_state::sealed && !r->unwalkable && r->live_bytes < (best ? best->live_bytes : most))
      best = r;
  return best;
}

enum class walked { more, all, target_full, damaged };

/// Walks from c.offset on and copies what is live to target[begin...]; `end` is where the copies end.
walked copy_live(heap& h, heap::cleaning_state& c, const region& source, std::uint64_t begin, std::uint64_t& end,
                 std::vector<moved>& out) {
  const std::byte* const from = source.memory.base();
  std::byte* const to = c.target->memory.base();
  const std::uint64_t room_end = c.target->memory.bytes();
  std::uint64_t budget = walk_bytes_max;
  end = begin + sizeof(batch_header);
  while (c.extent < source.extents.size()) {
    const extent& e = source.extents[c.extent];
    if (c.offset < e.begin) c.offset = c.batch_end = e.begin;
    if (c.offset == e.end) {
      ++c.extent;
      continue;
    }
    if (budget == 0 || end - begin >= copy_bytes_max) return walked::more;
    if (c.offset == c.batch_end) {
      batch_header b;
      if (e.end - c.offset < sizeof b) return walked::damaged;
      std::memcpy(&b, from + c.offset, sizeof b);
      if (b.magic != batch_magic || b.length < sizeof b || b.length % 8 != 0 || b.length > e.end - c.offset)
        return walked::damaged;
      c.batch_end = c.offset + b.length;
      c.offset = b.count == 0 ? c.batch_end : c.offset + sizeof b;
      budget -= std::min(budget, std::uint64_t{b.count == 0 ? 64 : sizeof b});
      continue;
    }
    std::uint64_t header = 0;
    const std::uint64_t bytes = h.copy_bytes(from + c.offset, c.batch_end - c.offset, header);
    if (bytes == 0) return walked::damaged;
    const word_t here = home_address{source.number, source.generation, static_cast<std::uint32_t>(c.offset),
                                     detail::size_class::of(bytes)}
                            .pack();
    entry_t* const entry = h.entry(detail::header::slot(header));
    if (entry != nullptr && entry->load(std::memory_order_acquire) == here) {
      if (end > room_end || bytes > room_end - end) return walked::target_full;
      std::memcpy(to + end, &header, sizeof header);
      std::memcpy(to + end + sizeof header, from + c.offset + sizeof header, bytes - sizeof header);
      const home_address there{c.target->number, c.target->generation, static_cast<std::uint32_t>(end),
                               detail::size_class::of(bytes)};
      out.push_back({entry, here, there.pack()});
      end += bytes;
    }
    c.offset += bytes;
    budget -= std::min(budget, bytes);
  }
  return walked::all;
}

/// Makes the copies one batch of the target and moves the entries; heap.mutex is held.
void publish(heap& h, region& source, region& target, std::uint64_t begin, std::uint64_t end,
             const std::vector<moved>& copies) {
  batch_header b{batch_magic, 0, 0, static_cast<std::uint32_t>(end - begin), static_cast<std::uint32_t>(copies.size())};
  const std::uint32_t seed = detail::crc32c(&b, sizeof b);
  b.crc = detail::crc32c(target.memory.base() + begin + sizeof b, b.length - sizeof b, seed);
  std::memcpy(target.memory.base() + begin, &b, sizeof b);
  target.append(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
  h.bytes_cleaned += end - begin;
  for (const moved& m : copies) {
    word_t expected = m.from;
    if (!m.entry->compare_exchange_strong(expected, m.to, std::memory_order_acq_rel)) {
      ++h.cleaner_lost;
      continue;
    }
    h.add_live(target, m.to);
    h.drop_live(source, m.from);
  }
}

void seal_target(heap& h) {
  h.seal(*h.cleaning.target);
  h.cleaning.target = nullptr;
}

/// Chooses what this step works on; false when there is nothing to do. heap.mutex is held.
bool prepare(heap& h, double below_live_ratio) {
  heap::cleaning_state& c = h.cleaning;
  if (h.closed.load()) return false;
  if (c.source != nullptr &&
      (c.source->state != region_state::sealed || c.source->generation != c.source_generation || !h.owns(*c.source)))
    c.source = nullptr;  // it retired, or was freed, under way
  if (c.source == nullptr) {
    region* next = h.is_low() ? choose_source(h, below_live_ratio) : nullptr;
    if (next == nullptr) {
      // Nothing left to clean: a target in which everything has died meanwhile is worth giving back.
      if (c.target != nullptr && c.target->live_count == 0 && !c.target->extents.empty()) seal_target(h);
      return false;
    }
    c.source = next;
    c.source_generation = next->generation;
    c.extent = 0;
    c.offset = c.batch_end = 0;
  }
  errc why = errc::ok;
  if (c.target == nullptr) c.target = h.open_region(true, why);
  return c.target != nullptr;
}

}  // namespace

bool clean_step(heap& h, double below_live_ratio, void (*copied)(void*) noexcept, void* context) {
  heap::cleaning_state& c =
      h.cleaning;  // changed only here and by close(), both in the mutex; used in between as a copy
  heap::cleaning_state mine;
  std::uint64_t begin = 0;
  pool& p = h.regions_pool;
  {
    std::lock_guard lock(h.mutex);
    if (!prepare(h, below_live_ratio)) return false;
    mine = c;
    begin = c.target->append_end.load(std::memory_order_relaxed);
    const bool in = p.enter(mine.source->number, mine.source_generation) != nullptr &&
                    p.enter(mine.target->number, mine.target->generation) != nullptr;
    FM_CHECK(in, "a region of an open heap could not be entered");
  }
  std::vector<moved> copies;
  std::uint64_t end = 0;
  const walked how = copy_live(h, mine, *mine.source, begin, end, copies);
  if (copied != nullptr && !copies.empty()) copied(context);
  {
    std::lock_guard lock(h.mutex);
    if (!h.closed.load()) {
      if (!copies.empty()) publish(h, *mine.source, *mine.target, begin, end, copies);
      c = mine;
      if (how == walked::target_full) seal_target(h);
      if (how == walked::all || how == walked::damaged) {
        ++h.regions_cleaned;
        c.source = nullptr;
        // Live entries that the walk did not meet: the bytes are not what was indexed. Reads still find them.
        if (mine.source->state == region_state::sealed) {
          mine.source->unwalkable = true;
          spdlog::warn("heap {}: region {} cannot be cleaned, its batches are damaged at offset {}", h.name,
                       mine.source->number, mine.offset);
        }
      }
    }
  }
  p.leave(*mine.source);
  p.leave(*mine.target);
  return true;
}

}  // namespace fm::store::node
