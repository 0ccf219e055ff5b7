// Verifying one heap, independently of how it came to be: from the entries to the copies, and from the regions' batches
// to the entries.
//
// Equations that the audit checks, with the sums taken by the walk of the batches on one side and by the walk of the
// entries on the other:
//   appended(region)   = batch headers and skipped batches + live copies + dead copies
//   live_count(region) = entries that name the region            = copies in it whose slot's entry names them
//   live_bytes(region) = size-class bytes of those entries
//   objects(heap)      = entries that are not 0
//   live + garbage     = appended(heap)
//   notes of an evacuation = 0, unless one runs
//   mark bits          = slots that the running cycle has marked; 0 when none runs
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "heap.h"

namespace fm::agent {

namespace {

struct region_sums {
  std::uint64_t entries = 0;  ///< by entries
  std::uint64_t class_bytes = 0;
  std::uint64_t entry_bytes = 0;  ///< exact
  std::uint64_t live_copies = 0;  ///< by batches
  std::uint64_t live_bytes = 0;
  std::uint64_t dead_bytes = 0;
  std::uint64_t header_bytes = 0;
};

class auditor {
 public:
  auditor(heap& h, std::string& text) : h_(h), text_(text) {}

  audit_answer run() {
    for (region* r : h_.regions) sums_.emplace(r->number, region_sums{});
    for (const auto& [first, block] : h_.tablet_blocks)
      for (std::uint64_t i = 0; i < block.bytes() / heap::tablet_block; ++i)
        walk_tablet(static_cast<std::uint32_t>(first + i), block.base() + i * heap::tablet_block);
    std::uint64_t appended = 0, live = 0;
    for (region* r : h_.regions) {
      walk_region(*r);
      appended += r->appended();
      live += sums_[r->number].entry_bytes;
    }
    if (objects_ != h_.objects) fault("heap: {} entries name copies, {} are accounted", objects_, h_.objects);
    if (pages_ != h_.entry_pages)
      fault("heap: {} pages of entries are in use, {} are accounted", pages_, h_.entry_pages);
    check_cycle();
    check_moves();
    return {objects_, live, appended - std::min(appended, live), h_.metadata_bytes(), faults_};
  }

 private:
  template <class... A>
  void fault(fmt::format_string<A...> f, A&&... a) {
    if (faults_++ >= limits::audit_faults_told) return;
    text_ += fmt::format(f, std::forward<A>(a)...);
    text_ += '\n';
  }

  void walk_tablet(std::uint32_t tablet, std::byte* block) {
    const auto* entries = reinterpret_cast<const entry_t*>(block);
    for (std::uint32_t page = 0; page < detail::tablet_slots / heap::page_slots; ++page) {
      const std::uint16_t counted = heap::page_counts(block)[page];
      if (counted != 0) ++pages_;
      std::uint16_t found = 0;
      // A page that was never written has no memory, and looking would give it some: its counter stands for it.
      for (std::uint32_t i = 0; counted != 0 && i < heap::page_slots; ++i) {
        const std::uint32_t in_tablet = page * heap::page_slots + i;
        const word_t w = entries[in_tablet].load(std::memory_order_acquire);
        if (w == 0) continue;
        ++found;
        check_entry(slot_t{tablet} * detail::tablet_slots + in_tablet, w);
      }
      if (found != counted) fault("tablet {} page {}: {} entries, {} counted", tablet, page, found, counted);
    }
  }

  void check_moves() {
    if (h_.move_bits_used) return;
    for (const auto& [first, block] : h_.tablet_blocks)
      for (std::uint64_t i = 0; i < block.bytes() / heap::tablet_block; ++i) {
        const heap::bits_t* const bits = heap::referenced_bits(block.base() + i * heap::tablet_block);
        const auto is_set = [](const heap::bits_t& w) { return w.load(std::memory_order_relaxed) != 0; };
        if (std::any_of(bits, bits + 2 * marks_bytes / 8, is_set))
          fault("tablet {}: there are notes of an evacuation, and none runs", first + i);
      }
  }

  void check_cycle() {
    const auto cycle = h_.running_cycle();
    if (cycle != nullptr && cycle->marks_add_up() == false)
      fault("cycle {}: {} slots were marked, but not as many bits are set", cycle->cycle, cycle->marked());
    for (const auto& [first, block] : h_.tablet_blocks)
      for (std::uint64_t i = 0; cycle == nullptr && i < block.bytes() / heap::tablet_block; ++i) {
        std::byte* const b = block.base() + i * heap::tablet_block;
        const heap::bits_t* const bits = heap::marks(b);  // and behind them what is dirty at the owner
        const auto is_set = [](const heap::bits_t& w) { return w.load(std::memory_order_relaxed) != 0; };
        const std::uint64_t word = h_.tablet_words()[first + i].load(std::memory_order_acquire);
        if ((word & heap::in_cycle) != 0 || heap::record(b).rescan.load() != 0 ||
            std::any_of(bits, bits + 2 * marks_bytes / 8, is_set))
          fault("tablet {}: there are marks, and no cycle runs", first + i);
      }
  }

  void check_entry(slot_t slot, word_t w) {
    ++objects_;
    const home_address at = home_address::unpack(w);
    if (!detail::word::is_remote(w)) return fault("slot {}: entry {:#x} is no home address", slot, w);
    const region* r = h_.regions_pool.find(at.region);
    if (r == nullptr || !h_.owns(*r) || r->state == region_state::free || r->generation != at.generation)
      return fault("slot {}: region {} generation {} is not this heap's", slot, at.region, at.generation);
    region_sums& sums = sums_[at.region];
    ++sums.entries;
    sums.class_bytes += detail::size_class::bytes(at.size_class);
    const extent* e = r->containing(at.offset, detail::header::bytes);
    if (e == nullptr) return fault("slot {}: offset {} of region {} was never appended", slot, at.offset, at.region);
    std::uint64_t header = 0;
    const std::uint64_t bytes = h_.copy_bytes(r->memory.base() + at.offset, e->end - at.offset, header);
    if (bytes == 0)
      return fault("slot {}: header {:#x} at region {} offset {} is of no known type, or too long", slot, header,
                   at.region, at.offset);
    if (detail::header::slot(header) != slot)
      return fault("slot {}: the copy at region {} offset {} names slot {}", slot, at.region, at.offset,
                   detail::header::slot(header));
    if (detail::size_class::of(bytes) != at.size_class)
      return fault("slot {}: {} bytes at region {} offset {}, size class {}", slot, bytes, at.region, at.offset,
                   at.size_class);
    sums.entry_bytes += bytes;
  }

  void walk_region(region& r) {
    region_sums& sums = sums_[r.number];
    for (const extent& e : r.extents)
      for (std::uint64_t at = e.begin; at < e.end;) {
        batch_header b;
        if (e.end - at >= sizeof b) std::memcpy(&b, r.memory.base() + at, sizeof b);
        if (e.end - at < sizeof b || b.magic != batch_magic || b.length < sizeof b || b.length % 8 != 0 ||
            b.length > e.end - at)
          return fault("region {}: no batch at offset {}", r.number, at);
        if (!walk_batch(r, at, b, sums)) return;
        at += b.length;
      }
    const std::uint64_t walked = sums.header_bytes + sums.live_bytes + sums.dead_bytes;
    if (walked != r.appended()) fault("region {}: {} bytes appended, {} walked", r.number, r.appended(), walked);
    if (sums.entries != r.live_count || sums.live_copies != r.live_count)
      fault("region {}: {} live copies accounted, {} by entries, {} by batches", r.number, r.live_count, sums.entries,
            sums.live_copies);
    if (sums.class_bytes != r.live_bytes)
      fault("region {}: {} live bytes accounted, {} by entries", r.number, r.live_bytes, sums.class_bytes);
    if (sums.entry_bytes != sums.live_bytes)
      fault("region {}: {} live bytes by entries, {} by batches", r.number, sums.entry_bytes, sums.live_bytes);
    if (r.state == region_state::retiring && r.live_count != 0)
      fault("region {} retires with {} live copies", r.number, r.live_count);
  }

  bool walk_batch(const region& r, std::uint64_t batch, const batch_header& b, region_sums& sums) {
    if (b.count == 0) {  // skipped, or empty
      sums.header_bytes += b.length;
      return true;
    }
    sums.header_bytes += sizeof b;
    const std::uint64_t end = batch + b.length;
    std::uint64_t at = batch + sizeof b;
    for (std::uint32_t i = 0; i < b.count; ++i) {
      std::uint64_t header = 0;
      const std::uint64_t bytes = h_.copy_bytes(r.memory.base() + at, end - at, header);
      if (bytes == 0) {
        fault("region {}: no home copy at offset {}, {} of batch {}", r.number, at, i, b.seq);
        return false;
      }
      const home_address here{r.number, r.generation, static_cast<std::uint32_t>(at), detail::size_class::of(bytes)};
      const entry_t* entry = h_.entry(detail::header::slot(header));
      if (entry == nullptr)
        fault("region {} offset {}: slot {} is not granted", r.number, at, detail::header::slot(header));
      if (entry != nullptr && entry->load(std::memory_order_acquire) == here.pack()) {
        ++sums.live_copies;
        sums.live_bytes += bytes;
      } else {
        sums.dead_bytes += bytes;
      }
      at += bytes;
    }
    if (at != end) fault("region {}: batch at {} ends at {}, its copies at {}", r.number, batch, end, at);
    return at == end;
  }

  heap& h_;
  std::string& text_;
  std::unordered_map<std::uint32_t, region_sums> sums_;
  std::uint64_t objects_ = 0, pages_ = 0, faults_ = 0;
};

}  // namespace

audit_answer audit_heap(heap& h, std::string& text) { return auditor(h, text).run(); }

}  // namespace fm::agent
