// What can be verified while the program goes on (heap_options::verify_cycles); heap.verify() wants a heap that nobody uses.
//
//   before, after marking, at the end   every agent audits its half under its lock: entries against copies, batches and accounts;
//                                       outside of cycles no mark is set, and within one as many as were counted
//   after marking                       what the owner read of an agent's marks is no more than the agent counted
//   at the end                          no root names a freed slot; every resident frame is its slot's; no live object's frame
//                                       refers to a freed slot
//
// The last ones hold at any moment, since only cycles free slots and one runs at a time: whatever an object that was not found
// dead refers to was not found dead either. Dead objects that had to stay for a later cycle are passed over. A collection of
// young objects looks at these only: the others may be such that had to stay.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cycle.h"

namespace fm::detail {

namespace {

constexpr std::size_t faults_told = 20;

bool is_freed(slot_t slot) { return slot < hit.slots && word_at(slot).load(std::memory_order_acquire) == word::free; }

}  // namespace

void cycle::fault(std::string what) {
  if (report_.faults++ >= faults_told) return;
  spdlog::error("cycle {}: {}", report_.number, what);
  report_.fault_texts.push_back(std::move(what));
}

// A cycle that does not add up frees nothing.
void cycle::check_faults() const {
  if (report_.faults != 0)
    throw error(errc::corrupt,
                fmt::format("{} contradictions, the first: {}", report_.faults, report_.fault_texts.front()));
}

void cycle::verify_agents(const char* when) {
  for (const agent& a : agents_) {
    if (a.link->lost()) continue;
    protocol::audit_answer said{};
    std::string text;
    const errc e = a.link->audit(said, text);
    if (e != errc::ok) {
      spdlog::warn("cycle {}: {} cannot be audited {}: {}", report_.number, a.link->url(), when, to_string(e));
    } else if (said.faults != 0) {
      while (!text.empty() && text.back() == '\n') text.pop_back();
      std::replace(text.begin(), text.end(), '\n', ';');
      fault(fmt::format("{}, {}: {} contradictions: {}", a.link->url(), when, said.faults, text));
    }
  }
}

void cycle::verify_marks() {
  if (who_ == tracing::compute_node) return;
  for (const agent& a : agents_) {
    std::uint64_t read = 0;
    const std::vector<std::uint32_t>& tablets = marks_->tablets();
    for (std::size_t i = 0; i < tablets.size(); ++i) {
      if (by_number_[hit.tablets[tablets[i]].agent.load(std::memory_order_relaxed)] != &a) continue;
      for (std::size_t w = 0; w < slot_marks::tablet_words; ++w)
        read += static_cast<std::uint64_t>(__builtin_popcountll(marks_->marked(i)[w] & ~marks_->newer(i)[w]));
    }
    if (read > a.said.marked)
      fault(fmt::format("{} has {} mark bits and counts {} objects marked", a.link->url(), read, a.said.marked));
  }
}

void cycle::compare_tracers() {
  for (std::size_t i = 0; i < marks_->tablets().size(); ++i)
    for (std::size_t w = 0; w < slot_marks::tablet_words; ++w) {
      const std::uint64_t allocated = marks_->allocated(i)[w];
      const std::uint64_t agents = marks_->marked(i)[w] & allocated, here = second_marks_->marked(i)[w] & allocated;
      for (std::uint64_t differ = agents ^ here; differ != 0; differ &= differ - 1) {
        const auto bit = static_cast<std::uint64_t>(__builtin_ctzll(differ));
        fault(fmt::format("slot {:#x} is marked by {} only",
                          std::uint64_t{marks_->tablets()[i]} * tablet_slots + w * 64 + bit,
                          (agents >> bit & 1) != 0 ? "the agents" : "the compute node"));
      }
    }
  check_faults();
}

void cycle::verify_references() {
  roots::for_each(
      [](root_cell& cell, slot_t slot, void* self) {
        auto& c = *static_cast<cycle*>(self);
        if (!c.marks_->covers(slot) || !is_freed(slot)) return;
        // The root may have gone meanwhile, and the object with it in another heap's cycle: not while it is still there.
        if (cell.word.load(std::memory_order_acquire) == slot)
          c.fault(fmt::format("a root names slot {:#x}, which was freed", slot));
      },
      this);
  class frames final : public frame_visitor {
   public:
    explicit frames(cycle& c) : cycle_(c) {}
    bool frame(slot_t slot, bool, bool young) override {
      return (young || !cycle_.young_) && !cycle_.marks_->dead(slot);
    }
    void references(slot_t slot, std::span<const slot_t> refs) override {
      for (const slot_t r : refs)
        if (is_freed(r)) cycle_.fault(fmt::format("slot {:#x} refers to slot {:#x}, which was freed", slot, r));
    }
    void pinned(slot_t slot) override {
      if (is_freed(slot)) cycle_.fault(fmt::format("slot {:#x} is pinned and was freed", slot));
    }
    void between_pages() override { cycle_.check_stop(); }

   private:
    cycle& cycle_;
  } visitor(*this);
  cache_.scan_frames(marks_->tablets(), visitor);
  std::vector<resident_object> near;
  for (const std::uint32_t t : marks_->tablets()) {
    near.clear();
    cache_.list_resident(std::uint64_t{t} * tablet_slots, tablet_slots, near);
    for (const resident_object& o : near) {
      if (o.in_frame != o.slot) fault(fmt::format("the frame of slot {:#x} names slot {:#x}", o.slot, o.in_frame));
      if (o.bytes == 0) fault(fmt::format("the frame of slot {:#x} has no known type", o.slot));
    }
  }
}

}  // namespace fm::detail
