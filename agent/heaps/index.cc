// Applying one index message: check the whole batch, then publish its entries.
//
// Nothing is published before everything has been checked, and what is published is what was checked: the owner may
// have the region mapped and change it at any time, so every word is read once and what follows from it is kept in the
// heap's scratch list. Prefetching is by that list: entries are random accesses, and there is one an object.
#include "agent/base/limits.h"
#include "heap.h"

namespace fm::agent {

namespace {

/// Checks the header and the checksum; the header's own crc field counts as 0.
bool is_batch(const std::byte* p, const index_body& b) {
  batch_header h;
  std::memcpy(&h, p, sizeof h);
  if (h.magic != batch_magic || h.seq != b.seq || h.length != b.length || h.count != b.count || h.crc != b.crc)
    return false;
  h.crc = 0;
  const std::uint32_t crc = detail::crc32c(&h, sizeof h);
  return detail::crc32c(p + sizeof h, b.length - sizeof h, crc) == b.crc;
}

/// Parses the copies into heap.scratch; null when all is well, otherwise what is wrong.
const char* parse(heap& h, const region& r, const index_body& b) {
  h.scratch.clear();
  h.scratch.reserve(b.count);
  const std::byte* const base = r.memory.base();
  std::uint64_t at = b.offset + sizeof(batch_header);
  const std::uint64_t end = b.offset + b.length;
  std::uint32_t last_tablet = ~0u;
  std::byte* block = nullptr;
  for (std::uint32_t i = 0; i < b.count; ++i) {
    std::uint64_t header = 0;
    const std::uint64_t bytes = h.copy_bytes(base + at, end - at, header);
    if (bytes == 0) return "a home copy of an unknown type, or one that does not fit into its batch";
    const slot_t slot = detail::header::slot(header);
    if (slot == 0) return "a home copy for the null slot";
    if (const std::uint32_t tablet = detail::tablet_of(slot); tablet != last_tablet) {
      block = h.tablet_block_of(tablet);
      if (block == nullptr) return "a home copy for a slot whose tablet was not granted";
      last_tablet = tablet;
    }
    const std::uint64_t in_tablet = slot % detail::tablet_slots;
    const home_address to{.region = r.number,
                          .generation = r.generation,
                          .offset = static_cast<std::uint32_t>(at),
                          .size_class = detail::size_class::of(bytes)};
    h.scratch.push_back({reinterpret_cast<entry_t*>(block) + in_tablet, to.pack(),
                         heap::page_counts(block) + in_tablet / heap::page_slots});
    at += bytes;
  }
  return at == end ? nullptr : "bytes after the last home copy of a batch";
}

}  // namespace

errc index_batch(heap& h, region& r, const index_body& b, const char*& why) {
  std::byte* const p = r.memory.base() + b.offset;
  if ((b.flags & index_abandoned) != 0) {
    batch_header skipped{batch_magic, 0, b.seq, b.length, 0};
    skipped.crc = detail::crc32c(&skipped, sizeof skipped);
    std::memcpy(p, &skipped, sizeof skipped);
  } else {
    if (!is_batch(p, b)) return errc::corrupt;
    if ((why = parse(h, r, b)) != nullptr) return errc::bad_frame;
  }

  r.append(static_cast<std::uint32_t>(b.offset), static_cast<std::uint32_t>(b.offset + b.length));
  r.confirmed.store(true, std::memory_order_relaxed);
  if ((b.flags & index_abandoned) == 0) {
    const std::size_t n = h.scratch.size();
    const bool imports = (b.flags & index_import) != 0 && !detail::mutated(detail::mutation::import_over);
    for (std::size_t i = 0; i < n; ++i) {
      if (i + limits::index_prefetch < n) __builtin_prefetch(h.scratch[i + limits::index_prefetch].entry, 1);
      const heap::item& it = h.scratch[i];
      if (imports && it.entry->load(std::memory_order_relaxed) != 0) continue;  // it is newer
      const word_t old = it.entry->exchange(it.word, std::memory_order_acq_rel);
      h.add_live(r, it.word);
      if (old != 0) {
        region* from = h.regions_pool.find(home_address::unpack(old).region);
        h.drop_live(*from, old);
      } else {
        ++h.objects;
        if ((*it.page_count)++ == 0) ++h.entry_pages;
      }
    }
    h.objects_indexed += n;
  }
  h.changes();
  ++h.batches;
  h.batch_bytes += b.length;
  h.applied_seq = b.seq;
  return errc::ok;
}

}  // namespace fm::agent
