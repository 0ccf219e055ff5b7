// Audits of a running heap, for collections; see verify_cycle.h.
#include "collector/verify_cycle.h"

#include "cache/collections/object_counts.h"

#include "base/limits.h"
#include "base/log.h"
#include <algorithm>
#include <farmem/detail/barriers/roots.h>
#include <fmt/format.h>

namespace fm::detail {

namespace {

bool is_freed(slot_t slot) { return slot < hit.slots && word_at(slot).load(std::memory_order_acquire) == word::free; }

}  // namespace

void cycle_verifier::fault(std::string what) {
  if (report_.faults++ >= limits::faults_told) return;
  log::error("cycle {}: {}", report_.number, what);
  report_.fault_texts.push_back(std::move(what));
}

void cycle_verifier::check_faults() const {
  if (report_.faults != 0)
    throw error(errc::corrupt,
                fmt::format("{} contradictions, the first: {}", report_.faults, report_.fault_texts.front()));
}

void cycle_verifier::verify_agents(const cycle_agents& agents, const char* when) {
  for (const cycle_agents::agent& a : agents) {
    if (a.link->lost()) continue;
    protocol::audit_answer said{};
    std::string text;
    const errc e = a.link->audit(said, text);
    if (e != errc::ok) {
      log::warn("cycle {}: {} cannot be audited {}: {}", report_.number, a.link->url(), when, to_string(e));
    } else if (said.faults != 0) {
      while (!text.empty() && text.back() == '\n') text.pop_back();
      std::replace(text.begin(), text.end(), '\n', ';');
      fault(fmt::format("{}, {}: {} contradictions: {}", a.link->url(), when, said.faults, text));
    }
  }
}

void cycle_verifier::verify_marks(cycle_agents& agents, slot_marks& marks) {
  for (const cycle_agents::agent& a : agents) {
    std::uint64_t read = 0;
    const std::vector<std::uint32_t>& tablets = marks.tablets();
    for (std::size_t i = 0; i < tablets.size(); ++i) {
      if (agents.of_tablet(tablets[i]) != &a) continue;
      for (std::size_t w = 0; w < slot_marks::tablet_words; ++w)
        read += static_cast<std::uint64_t>(__builtin_popcountll(marks.marked(i)[w] & ~marks.dirty(i)[w]));
    }
    const std::uint64_t counted = agents.part(a).marked;
    if (read > counted)
      fault(fmt::format("{} has {} mark bits and counts {} objects marked", a.link->url(), read, counted));
  }
}

void cycle_verifier::compare_tracers(slot_marks& by_agents, slot_marks& by_this_node) {
  for (std::size_t i = 0; i < by_agents.tablets().size(); ++i)
    for (std::size_t w = 0; w < slot_marks::tablet_words; ++w) {
      const std::uint64_t allocated = by_agents.allocated(i)[w];
      const std::uint64_t agents = by_agents.marked(i)[w] & allocated, here = by_this_node.marked(i)[w] & allocated;
      for (std::uint64_t differ = agents ^ here; differ != 0; differ &= differ - 1) {
        const auto bit = static_cast<std::uint64_t>(__builtin_ctzll(differ));
        fault(fmt::format("slot {:#x} is marked by {} only",
                          std::uint64_t{by_agents.tablets()[i]} * tablet_slots + w * 64 + bit,
                          (agents >> bit & 1) != 0 ? "the agents" : "the compute node"));
      }
    }
  check_faults();
}

void cycle_verifier::verify_references(snapshot& of, generation which) {
  struct walk {
    cycle_verifier* self;
    slot_marks* marks;
  } roots_walk{this, &of.marks()};
  roots::for_each(
      [](root_cell& cell, slot_t slot, void* context) {
        auto& at = *static_cast<walk*>(context);
        if (!at.marks->covers(slot) || !is_freed(slot)) return;
        // The root may have gone meanwhile, and the object with it in another heap's cycle: not while it is still
        // there.
        if (cell.word.load(std::memory_order_acquire) == slot)
          at.self->fault(fmt::format("a root names slot {:#x}, which was freed", slot));
      },
      &roots_walk);
  class frames final : public frame_visitor {
   public:
    frames(cycle_verifier& v, snapshot& of, bool young_only) : verifier_(v), snapshot_(of), young_only_(young_only) {}
    bool frame(slot_t slot, bool, bool young) override {
      return (young || !young_only_) && !snapshot_.marks().dead(slot);
    }
    void references(slot_t slot, std::span<const slot_t> refs) override {
      for (const slot_t r : refs)
        if (is_freed(r)) verifier_.fault(fmt::format("slot {:#x} refers to slot {:#x}, which was freed", slot, r));
    }
    void pinned(slot_t slot) override {
      if (is_freed(slot)) verifier_.fault(fmt::format("slot {:#x} is pinned and was freed", slot));
    }
    void between_pages() override { snapshot_.check_stop(); }

   private:
    cycle_verifier& verifier_;
    snapshot& snapshot_;
    const bool young_only_;
  } visitor(*this, of, which == generation::young);
  const std::vector<std::uint32_t>& tablets = of.marks().tablets();
  const held_pages held(cache_.collections());
  cache_.collections().scan_frames(tablets, visitor);
  std::vector<resident_object> resident;
  for (const std::uint32_t t : tablets) {
    resident.clear();
    list_resident(cache_, std::uint64_t{t} * tablet_slots, tablet_slots, resident);
    for (const resident_object& o : resident) {
      if (o.in_frame != o.slot) fault(fmt::format("the frame of slot {:#x} names slot {:#x}", o.slot, o.in_frame));
      if (o.bytes == 0) fault(fmt::format("the frame of slot {:#x} has no known type", o.slot));
    }
  }
}

}  // namespace fm::detail
