// What a cycle learns from the owner's side: which slots roots, pins and waiting threads name, and which frames may be newer than
// their home copies. Beside the program, after the snapshot; see cycle.h.
//
// Invariant owned here: every slot whose home copy may be older than the snapshot is noted as newer, and its agent knows, before
// anybody traces. A slot that is not noted was clean, and not being written, at a moment after the snapshot: its home copy is
// what its frame was then, or newer.
#include <algorithm>
#include <cstring>

#include "cycle.h"

namespace fm::detail {

namespace {

constexpr std::uint64_t roots_between_looks = 8192;
constexpr std::uint64_t pages_between_looks = 8;

}  // namespace

cycle::agent* cycle::agent_of(slot_t slot) noexcept {
  if (!marks_->covers(slot)) return nullptr;  // younger than the snapshot, or another heap's
  return by_number_[tablet_info_of(slot).agent.load(std::memory_order_relaxed)];
}

void cycle::add(slot_t slot) {
  if (!marks_->covers(slot)) return;
  if (here_) here_->add(slot);
  if (near_) near_->add(slot);
}

void cycle::refers_to(slot_t slot) {
  if (young_) return;  // not young: what it refers to that is young is a root, if it is newer, or was none any more
  agent* a = agent_of(slot);
  if (a && marks_->mark(slot)) a->pending.push_back(slot);
}

void cycle::went_home(slot_t slot) {
  if (mutated(mutation::forget_gone_home) || young_)
    return;  // what it referred to was logged, or had been, as not young any more
  if (agent* a = agent_of(slot)) a->pending.push_back(slot | protocol::scan_at_home);
}

void cycle::scan() {
  if (young_) return scan_young();
  if (who_ == tracing::both) second_marks_ = std::make_unique<slot_marks>(*marks_);
  if (who_ != tracing::agents) {
    slot_marks& marks = second_marks_ ? *second_marks_ : *marks_;
    mark_lost(marks);
    here_ = std::make_unique<compute_tracer>(cache_, marks, owner_.trace_stack_.load(std::memory_order_relaxed));
  }
  find_roots();
  cache_.scan_frames(marks_->tablets(), *this);
  if (who_ != tracing::compute_node) {
    send_newer();
    tracing_elsewhere* const agents = this;
    near_ = std::make_unique<compute_tracer>(cache_, *marks_, compute_tracer::near_stack_slots, agents);
  }
  add_found();
}

void cycle::find_roots() {
  marks_->expect_newer();
  roots::for_each(
      [](root_cell&, slot_t slot, void* self) {
        auto& c = *static_cast<cycle*>(self);
        if (!c.marks_->covers(slot)) return;
        c.found_.push_back(slot);
        if (++c.report_.roots % roots_between_looks == 0) c.pace();
      },
      this);
  found_.insert(found_.end(), waiting_.begin(), waiting_.end());
  check_stop();
}

void cycle::add_found() {
  for (std::size_t i = 0; i < found_.size(); ++i) {
    add(found_[i]);
    if (i % roots_between_looks == 0) pace();
  }
  found_ = {};
}

bool cycle::frame(slot_t slot, bool newer, bool young) {
  if (young_) {
    if (!young) return newer && !mutated(mutation::young_only);
    if (marks_->covers(slot)) marks_->note_newer(slot);
    ++report_.newer;
    return false;
  }
  if (!marks_->covers(slot)) return false;
  // Of an agent that is lost only the frames are left: nobody else can say what they refer to.
  if (!agent_of(slot)) return true;
  if (newer && !mutated(mutation::scan_old_homes)) {
    marks_->note_newer(slot);
    ++report_.newer;
  }
  return false;
}

void cycle::references(slot_t, std::span<const slot_t> refs) {
  for (const slot_t r : refs)
    if (marks_->covers(r)) found_.push_back(r);
}

void cycle::pinned(slot_t slot) { found_.push_back(slot); }

// All of it before anything is traced: an agent must not scan a home copy that is older than the snapshot.
void cycle::send_newer() {
  const std::vector<std::uint32_t>& tablets = marks_->tablets();
  const auto send = [&](agent& a) {
    check(a.link->add_newer(report_.number, a.pages, call_deadline()), a, "is not told what is newer here");
    a.pages.clear();
  };
  for (std::size_t i = 0; i < tablets.size(); ++i) {
    agent* a = by_number_[hit.tablets[tablets[i]].agent.load(std::memory_order_relaxed)];
    if (!a) continue;
    constexpr std::size_t page_words = page_slots / 64;
    for (std::size_t w = 0; w < slot_marks::tablet_words; w += page_words) {
      const std::uint64_t* const bits = marks_->newer(i) + w;
      if (std::all_of(bits, bits + page_words, [](std::uint64_t b) { return b == 0; })) continue;
      protocol::slot_bits& page = a->pages.emplace_back();
      page.first_slot = tablets[i] * tablet_slots + w * 64;
      std::memcpy(page.bits, bits, sizeof page.bits);
    }
    if (a->pages.size() >= pages_per_message - tablet_slots / page_slots) send(*a);
  }
  for (agent& a : agents_)
    if (!a.pages.empty()) send(a);
}

void cycle::between_pages() {
  if (++pages_passed_ % pages_between_looks == 0) pace();
}

}  // namespace fm::detail
