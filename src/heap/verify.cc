// heap.verify(): walks frames, words and entries, and compares what the owner and the agents believe. Called while no
// thread of the program uses the heap. It runs on the collector's thread: no collection looks at words meanwhile, and no
// tablet gets another home.
//
// Conditions that hold when nothing runs
//   frame that a word names   header names the slot, type known, size fits; clean -> home is an address
//   segment::writing          = frames named by words with the writing bit, in that segment
//   remote word               the agent's entry is an address too, and the same one unless the agent moved the object
//                             since. Only of a slot that is allocated: when a page is given back, its hints may come
//                             from an answer that was asked for before the agent forgot a dead slot
//                             (collector_view::free_slot)
//   young                     never copied out, and no clean frame refers to it; the agent's entry is 0
//   resident, never written   the agent's entry is 0, or older
//   weak cell                 its slot is allocated, and its index leads to the cell
#include "cache/frames/frame_contents.h"
#include "cache/tablets/replica_set.h"
#include "collector/roots/weak_cells.h"
#include "heap/heap_core.h"
#include "table/young_bits.h"
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

namespace fm::detail {

namespace {

constexpr std::size_t messages_max = 20;

struct findings {
  verify_report& report;
  template <class... A>
  void fault(fmt::format_string<A...> f, A&&... a) {
    ++report.faults;
    if (report.messages.size() < messages_max) report.messages.push_back(fmt::format(f, std::forward<A>(a)...));
  }
};

bool is_young_here(object_cache& cache, slot_t slot) {
  if (slot >= hit.slots) return false;
  const word_t w = cache.pages().now(slot);
  return word::is_resident(w) && is_young(slot);
}

void verify_frames(object_cache& cache, findings& out) {
  std::vector<slot_t> refs;
  cache.memory().for_each([&](segment& s) {
    if (s.state.load() == segment_state::filling) return;  // its end is its thread's business
    std::uint32_t writing = 0;
    const char* end = s.base + s.used;
    for (char* at = s.base + 8; at < end;) {
      char* payload = at + sizeof(frame_prefix);
      const std::uint64_t total = frame::total_bytes_of(payload);
      if (total == 0 || at + total > end) {
        out.fault("segment {}: a frame of {} bytes at {} leaves it", static_cast<const void*>(s.base), total,
                  at - s.base);
        return;
      }
      at += total;
      if (at <= payload) continue;  // a filler
      frame_prefix& px = frame::prefix(payload);
      const std::uint64_t h = px.header.load();
      if (h == 0) continue;
      const slot_t slot = header::slot(h);
      if (slot >= hit.slots) continue;
      const word_t w = cache.pages().now(slot);
      if (!word::is_resident(w) || word::payload(w) != payload) continue;
      ++out.report.frames;
      const std::uint64_t bytes = home_bytes(h, payload, total - sizeof(frame_prefix) + header::bytes);
      if (bytes == 0 || bytes - header::bytes > total - sizeof(frame_prefix))
        out.fault("slot {:#x}: header {:#x} does not describe its frame of {} bytes", slot, h, total);
      if (word::is_busy(w)) out.fault("slot {:#x}: its word is busy although nothing runs", slot);
      const bool in_flight = (px.shape.load() & frame::writing_bit) != 0;
      writing += in_flight;
      if (is_young(slot) && (word::is_clean(w) || in_flight || px.home.load() != 0))
        out.fault("slot {:#x}: young, though it was copied out", slot);
      if (word::is_clean(w) && !in_flight) {
        read_refs(payload, refs);
        for (const slot_t r : refs)
          if (is_young_here(cache, r))
            out.fault("slot {:#x}: as at home, and refers to slot {:#x}, which is young", slot, r);
      }
      // After a promotion nobody knows where the new primary has it.
      const bool is_replaced = tablet_info_of(slot).handovers.load() != 0;
      const bool may_be_unknown = is_replaced && px.home.load() == word::unknown;
      if (word::is_clean(w) && !in_flight && !may_be_unknown && !word::is_remote(px.home.load()))
        out.fault("slot {:#x}: clean without a home copy", slot);
    }
    if (writing != s.writing.load())
      out.fault("segment {}: {} objects being written, {} counted", static_cast<const void*>(s.base), writing,
                s.writing.load());
  });
}

void verify_tablet(object_cache& cache, std::uint32_t tablet, const slot_marks& nothing_marked,
                   std::vector<word_t>& entries, findings& out) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  remote::agent_session& link = cache.link_of(first);
  if (const errc e = link.read_entries(first, tablet_slots, entries); e != errc::ok || entries.size() != tablet_slots) {
    out.fault("tablet {}: its entries cannot be read from {}: {}", tablet, link.url(), to_string(e));
    return;
  }
  for (std::uint64_t i = 0; i < tablet_slots; ++i) {
    const word_t w = cache.pages().now(first + i);
    const word_t entry = entries[i];
    out.report.entries += entry != 0;
    if (entry != 0 && !word::is_remote(entry)) out.fault("slot {:#x}: entry {:#x} is no address", first + i, entry);
    if (word::is_resident(w)) {
      ++out.report.resident;
      char* payload = word::payload(w);
      if (!cache.memory().contains(payload)) {
        out.fault("slot {:#x}: its word points outside of the cache", first + i);
        continue;
      }
      if (header::slot(frame::prefix(payload).header.load()) != first + i)
        out.fault("slot {:#x}: its frame names slot {:#x}", first + i,
                  header::slot(frame::prefix(payload).header.load()));
      const bool in_flight = (frame::prefix(payload).shape.load() & frame::writing_bit) != 0;
      if (is_young(first + i) && entry != 0) out.fault("slot {:#x}: young, but its agent stores it", first + i);
      if (word::is_clean(w) && !in_flight && entry == 0)
        out.fault("slot {:#x}: clean, but its agent stores nothing", first + i);
    } else if (word::is_remote(w)) {
      ++out.report.remote;
      const home_address here = home_address::unpack(w), there = home_address::unpack(entry);
      if (entry == 0 && nothing_marked.dead(first + i))
        out.fault("slot {:#x}: remote, but its agent stores nothing", first + i);
      else if (entry != 0 && here.region == there.region && here.generation == there.generation &&
               here.offset != there.offset)
        // Within one region nothing moves: another offset would be an older or a newer copy.
        out.fault("slot {:#x}: remote at {:#x}, but the agent's entry is {:#x}", first + i, w, entry);
    } else if (w == word::unknown) {
      out.report.unknown += entry != 0;
    } else if (word::is_fetching(w)) {
      out.fault("slot {:#x}: a fetch is in flight although nothing runs", first + i);
    }
  }
}

// A live backup has a copy of whatever the primary has one of, unless a newer one is here and on its way.
void verify_backups(object_cache& cache, std::uint32_t tablet, const std::vector<word_t>& entries, findings& out) {
  const slot_t first = std::uint64_t{tablet} * tablet_slots;
  const replica_set set = replica_set::of_tablet(tablet);
  if (set.backups() == 0 || entries.size() != tablet_slots) return;
  std::vector<word_t> backup;
  set.for_each_backup([&](std::uint32_t a) {
    remote::agent_session& link = *cache.agents()[a];
    if (link.lost()) return;
    if (const errc e = link.read_entries(first, tablet_slots, backup); e != errc::ok || backup.size() != tablet_slots)
      return out.fault("tablet {}: its entries cannot be read from {}, its backup: {}", tablet, link.url(),
                       to_string(e));
    for (std::uint64_t i = 0; i < tablet_slots; ++i) {
      const word_t w = cache.pages().now(first + i);
      const bool is_dirty = word::is_resident(w) && !word::is_clean(w);
      if ((entries[i] != 0) != (backup[i] != 0) && !is_dirty)
        out.fault("slot {:#x}: its primary {} it, and {}, its backup, {}", first + i,
                  entries[i] != 0 ? "stores" : "does not store", link.url(), backup[i] != 0 ? "does" : "does not");
    }
  });
}

void verify_weak_cells(const slot_marks& nothing_marked, findings& out) {
  std::pair<const slot_marks&, findings&> context{nothing_marked, out};
  for_each_weak(
      [](slot_t slot, bool indexed, void* at) {
        auto& [allocated, found] = *static_cast<std::pair<const slot_marks&, findings&>*>(at);
        if (!allocated.covers(slot)) return;  // another heap's
        if (!allocated.dead(slot)) found.fault("slot {:#x}: weak handles name it, and it is not allocated", slot);
        if (!indexed) found.fault("slot {:#x}: weak handles name it by a cell that is not its own", slot);
      },
      &context);
}

}  // namespace

verify_report heap_core::verify() {
  collector_->refuse_notice("verifying");
  const section_break outside;
  section_break::require_left("verifying");
  verify_report report;
  if (!collector_->run_alone([&] { report = verify_now(); }))
    throw error(errc::heap_closed, "the heap was closed while it was verified");
  return report;
}

verify_report heap_core::verify_now() {
  verify_report report;
  findings out{report};
  std::unique_ptr<slot_marks> allocated;
  {
    // Before eviction is held: whoever moves tablets holds the sources, and then eviction.
    slot_hold slots(cache_->slots(), cache_->mutators());
    slots.note_runs();
    allocated = slots.allocated();
  }
  const auto no_eviction = cache_->eviction().hold();
  for (auto& link : links_) link->flush(clock::now() + std::chrono::seconds(10));
  verify_frames(*cache_, out);
  std::vector<word_t> entries;  // of the tablet's primary
  for (const std::uint32_t t : allocated->tablets()) {
    verify_tablet(*cache_, t, *allocated, entries, out);
    verify_backups(*cache_, t, entries, out);
  }
  verify_weak_cells(*allocated, out);
  for (auto& link : links_) {
    if (link->lost()) continue;  // a tablet that it still has is a fault already
    protocol::audit_answer a{};
    std::string text;
    if (const errc e = link->audit(a, text); e != errc::ok) {
      out.fault("{} cannot be audited: {}", link->url(), to_string(e));
      continue;
    }
    report.agent_objects += a.objects;
    report.agent_live_bytes += a.live_bytes;
    report.agent_garbage_bytes += a.garbage_bytes;
    report.agent_metadata_bytes += a.metadata_bytes;
    if (a.faults != 0) {
      report.faults += a.faults - 1;
      out.fault("{}: {}", link->url(), text);
    }
  }
  return report;
}

}  // namespace fm::detail
