// The regions that an evacuation takes, its phases and steps, and its progress report; see evacuator.h.
// Following references is in traversal.cc, moving a batch of copies in mover.cc.
// Called under heap::mover by evacuate_step, which the first tracing thread runs.
#include "evacuator.h"

#include "agent/base/limits.h"
#include "base/log.h"

namespace fm::agent {

namespace {

bool is_live(const heap& h, const region& r, std::uint32_t generation) {
  return h.owns(r) && r.generation == generation && r.state == region_state::sealed && r.live_count != 0;
}

}  // namespace

void evacuator::choose(const move_options& o) {
  const evacuate_body& asked = evacuation_->asked;
  evacuate_answer& told = evacuation_->told;
  const std::uint64_t region_bytes = h_.regions_pool.region_bytes();
  const bool whole = asked.below_live == evacuation_whole;
  sources_.clear();  // there may have been no memory for the rest of this before
  low_ = h_.is_low();
  if (whole && !low_ && h_.move_target != nullptr && !h_.move_target->extents.empty()) seal_target(h_);
  std::vector<region*> sparse;
  const std::uint64_t below = region_bytes / evacuation_whole * asked.below_live;
  for (region* r : h_.regions)
    if (r->state == region_state::sealed && !r->unwalkable && (whole || r->live_bytes < below)) sparse.push_back(r);
  std::sort(sparse.begin(), sparse.end(), [](const region* a, const region* b) {
    return a->live_bytes != b->live_bytes ? a->live_bytes < b->live_bytes : a->number < b->number;
  });
  told.regions = sparse.size();

  auto order = static_cast<evacuation_order>(asked.order);
  if (order != evacuation_order::address) {
    try {
      stack_ = os::reservation(o.stack_slots * sizeof(slot_t), detail::page_bytes);
    } catch (const error& e) {
      log::warn("heap {}: evacuation in address order: {}", h_.name, e.what());
      order = evacuation_order::address;
    }
  }
  std::size_t n = 0;
  if (order != evacuation_order::address) {
    // What is live in the set has to fit beside it. The last bytes of a target may stay empty.
    std::uint64_t room = h_.until_low() * (region_bytes - region_bytes / 32);
    if (h_.move_target != nullptr) room += region_bytes - h_.move_target->append_end.load(std::memory_order_relaxed);
    std::uint64_t live = 0;
    for (; n < sparse.size() && live + sparse[n]->live_bytes <= room; ++n) live += sparse[n]->live_bytes;
    if (n == 0 && !sparse.empty()) order = evacuation_order::address;
  }
  if (order == evacuation_order::address) {
    // On a heap that is low, only what surely fits into a fresh target: so each region of the reserve brings another
    // one back.
    const std::uint64_t most = region_bytes - region_bytes / 4;
    n = low_ ? std::partition_point(sparse.begin(), sparse.end(),
                                    [&](const region* r) { return r->live_bytes <= most; }) -
                   sparse.begin()
             : sparse.size();
  }
  for (std::size_t i = 0; i < n; ++i) sources_.push_back({sparse[i], sparse[i]->generation});
  told.order = static_cast<std::uint32_t>(order);
  told.left_behind = n != sparse.size();
  if (order == evacuation_order::address || n == 0) {
    phase_ = phase::in_address_order;
    return;
  }

  // Neighbours in memory are walked one after the other, so that starts are found in the order of their addresses.
  std::sort(sources_.begin(), sources_.end(),
            [](const chosen& a, const chosen& b) { return a.source->number < b.source->number; });
  set_.resize(sources_.back().source->number + 1);
  for (const chosen& c : sources_) set_[c.source->number].generation = c.generation;
  breadth_first_ = order == evacuation_order::breadth_first;
  stack_max_ = o.stack_slots;
  h_.move_bits_used = true;
  phase_ = phase::note_references;
}

bool evacuator::next_source() {
  if (walking_ && is_live(h_, *sources_[source_].source, sources_[source_].generation)) return true;
  if (walking_) ++source_;
  walking_ = false;
  while (source_ < sources_.size() && !is_live(h_, *sources_[source_].source, sources_[source_].generation)) ++source_;
  at_ = {};
  return walking_ = source_ < sources_.size();
}

bool evacuator::step(const move_options& o) {
  if (phase_ == phase::choose) {
    std::lock_guard lock(h_.mutex);
    if (h_.closed.load()) return false;
    choose(o);
    return true;
  }
  if (phase_ == phase::over) return false;
  return phase_ == phase::note_references ? note_step() : move_step(o);
}

bool evacuator::note_step() {
  const std::uint64_t begun = os::thread_cpu_ns();
  entered_region source(h_.regions_pool);
  {
    std::lock_guard lock(h_.mutex);
    if (h_.closed.load()) return false;
    if (!next_source()) {
      phase_ = phase::from_starts;
      source_ = 0;
      return true;
    }
    source.enter(sources_[source_].source->number, sources_[source_].generation);
  }
  const walked how = walk_live(h_, *source, at_, limits::walk_bytes_max,
                               [&](entry_t&, word_t, std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
                                 note_references(header, copy, bytes);
                                 return visit::on;
                               });
  std::lock_guard lock(h_.mutex);
  if (how != walked::more) {  // damaged: what is behind it is reached by its entries, or stays
    ++source_;
    walking_ = false;
  }
  account({}, os::thread_cpu_ns() - begun);
  return true;
}

bool evacuator::move_step(const move_options& o) {
  const std::uint64_t begun = os::thread_cpu_ns();
  entered_region source(h_.regions_pool);
  move_batch batch(h_);
  {
    std::lock_guard lock(h_.mutex);
    if (h_.closed.load()) return false;
    if (!next_source() && count_ == 0) {
      if (phase_ != phase::from_starts) {
        finish();
        return false;
      }
      phase_ = phase::from_the_rest;
      source_ = 0;
      return true;
    }
    const bool cleans = low_ && !traverses() && h_.may_empty_regions();
    if (!batch.begin(h_, cleans ? region_use::cleaning : region_use::evacuation)) {
      evacuation_->told.left_behind = 1;
      finish();
      return false;
    }
    if (walking_) source.enter(sources_[source_].source->number, sources_[source_].generation);
  }
  walked how = walked::more;
  bool no_memory = false;
  try {
    if (traverses())
      how = traverse(batch);
    else
      how =
          walk_live(h_, *source, at_, limits::copy_bytes_max,
                    [&](entry_t& entry, word_t here, std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
                      return batch.add(entry, here, header, copy, bytes) ? visit::on : visit::stop_here;
                    });
  } catch (const std::bad_alloc&) {
    no_memory = true;  // the copies that were made are marked as taken: they are published all the same
  }
  if (o.copied != nullptr && !batch.empty()) o.copied(o.context);
  const move_batch::outcome done = batch.publish(h_);
  leave_regions();

  std::lock_guard lock(h_.mutex);
  if (how == walked::all || how == walked::damaged) {
    if (!h_.closed.load() && phase_ != phase::from_starts) note_unwalkable(h_, *source, at_);
    ++source_;
    walking_ = false;
  }
  account(done, os::thread_cpu_ns() - begun);
  if (no_memory) throw std::bad_alloc();
  return true;
}

void evacuator::account(const move_batch::outcome& o, std::uint64_t cpu_ns) {
  evacuate_answer& told = evacuation_->told;
  told.objects += o.objects;
  told.bytes += o.bytes;
  told.lost += o.lost;
  told.cpu_ns += cpu_ns;
  h_.objects_evacuated += o.objects;
  h_.bytes_evacuated += o.bytes;
}

void evacuator::finish() {
  evacuate_answer& told = evacuation_->told;
  for (const chosen& c : sources_)
    told.emptied += !(h_.owns(*c.source) && c.source->generation == c.generation && c.source->live_count != 0);
  h_.regions_evacuated += told.emptied;
  phase_ = phase::over;
}

void evacuator::end() {
  leave_regions();  // of a step for which there was no memory
  std::vector<std::byte*> blocks;
  std::unique_lock lock(h_.mutex);
  if (h_.move_bits_used && !h_.closed.load()) {
    for (const auto& [first, block] : h_.tablet_blocks)
      for (std::uint64_t at = 0; at < block.bytes(); at += heap::tablet_block) blocks.push_back(block.base() + at);
    lock.unlock();
    for (std::byte* const b : blocks) os::reservation::discard(b + heap::moves_at, 2 * marks_bytes);
    lock.lock();
    h_.move_bits_used = false;
  }
  evacuation_->told.done = 1;
  if (h_.asked_evacuation == evacuation_) h_.evacuation_runs.store(false);
}

bool evacuate_step(heap& h, const move_options& o) {
  if (!h.evacuation_runs.load()) return false;
  std::lock_guard one(h.mover);
  std::shared_ptr<evacuation> asked;
  {
    std::lock_guard lock(h.mutex);
    if (h.closed.load()) return false;
    asked = h.asked_evacuation;
  }
  if (h.evacuating != nullptr && h.evacuating->carries_out() != asked.get()) {
    h.evacuating->end();
    h.evacuating.reset();
  }
  if (h.evacuating == nullptr) h.evacuating = std::make_shared<evacuator>(h, asked);
  if (h.evacuating->step(o)) return true;
  h.evacuating->end();
  h.evacuating.reset();
  return h.evacuation_runs.load();  // a later one was asked for meanwhile
}

}  // namespace fm::agent
