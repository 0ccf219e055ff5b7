// Evacuating in traversal order: from object to object along references, within the set of regions chosen; see
// evacuator.h. An object is two random accesses, its entry and its copy; both are prefetched when it is met, as far as
// the order allows.
//
// References come from bytes that the owner may change: each is read once, and only ever leads to an entry.
#include "agent/base/limits.h"
#include "evacuator.h"

namespace fm::agent {

namespace {

constexpr std::uint64_t bit_of(slot_t slot) { return std::uint64_t{1} << (slot % 64); }
bool is_set(const heap::bits_t* bits, slot_t slot) {
  return (bits->load(std::memory_order_relaxed) & bit_of(slot)) != 0;
}
void set(heap::bits_t* bits, slot_t slot) {  // one mover at a time
  bits->store(bits->load(std::memory_order_relaxed) | bit_of(slot), std::memory_order_relaxed);
}

/// Calls `f(slot)` for the references of a copy, which are `bytes` with the header. Backwards: from the last to the
/// first.
template <class F>
void for_each_reference(const heap& h, std::uint64_t header, const std::byte* copy, std::uint64_t bytes, bool backwards,
                        F&& f) {
  const heap::type_references refs = h.references_of(detail::header::type(header));
  if (refs.count == 0) return;
  const std::byte* const first = copy + detail::header::bytes + (refs.stride != 0 ? 8 : 0);
  const std::uint64_t elements = refs.stride != 0 ? (bytes - 16) / refs.stride : 1;
  const auto visit_at = [&](std::uint64_t element, std::uint32_t field) {
    const slot_t slot = heap::load_word(first + element * refs.stride + refs.offsets[field]);
    if (slot != 0 && slot < detail::slot_limit) f(slot);
  };
  for (std::uint64_t e = 0; e < elements; ++e)
    for (std::uint32_t i = 0; i < refs.count; ++i)
      backwards ? visit_at(elements - 1 - e, refs.count - 1 - i) : visit_at(e, i);
}

}  // namespace

heap::bits_t* evacuator::bits_of(slot_t slot, bool taken) const noexcept {
  std::byte* const block = h_.tablet_block_of(detail::tablet_of(slot));
  if (block == nullptr) return nullptr;
  return (taken ? heap::taken_bits(block) : heap::referenced_bits(block)) + slot % detail::tablet_slots / 64;
}

void evacuator::note_references(std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
  const slot_t self = detail::header::slot(header);
  for_each_reference(h_, header, copy, bytes, false, [&](slot_t to) {
    if (to == self) return;
    if (heap::bits_t* const bits = bits_of(to, false); bits != nullptr) set(bits, to);
  });
}

walked evacuator::traverse(move_batch& batch) {
  std::uint64_t walk_budget = limits::walk_bytes_max;
  for (std::uint32_t visits = 0; visits < limits::visits_max && batch.bytes() < limits::copy_bytes_max;) {
    for (; count_ != 0 && visits < limits::visits_max && batch.bytes() < limits::copy_bytes_max; ++visits) {
      const slot_t slot = pop();
      try {
        prefetch_next();
        if (move_object(batch, slot)) continue;
      } catch (const std::bad_alloc&) {
        push_back(slot);
        throw;
      }
      push_back(slot);
      return walked::more;
    }
    if (count_ != 0 || !walking_ || walk_budget == 0) return walked::more;
    const std::uint64_t from = at_.offset;
    const walked how = walk_live(h_, *sources_[source_].source, at_, walk_budget,
                                 [&](entry_t&, word_t, std::uint64_t header, const std::byte*, std::uint64_t) {
                                   const slot_t slot = detail::header::slot(header);
                                   if (is_set(bits_of(slot, true), slot)) return visit::on;
                                   if (phase_ == phase::from_starts && is_set(bits_of(slot, false), slot))
                                     return visit::on;
                                   push(slot);
                                   return visit::stop_behind;
                                 });
    if (how != walked::stopped) return how;
    walk_budget -= std::min(walk_budget, at_.offset - from);
    ++visits;
  }
  return walked::more;
}

// False: there is no room for it in the target.
bool evacuator::move_object(move_batch& batch, slot_t slot) {
  entry_t* const entry = h_.entry(slot);
  if (entry == nullptr) return true;
  const word_t word = entry->load(std::memory_order_acquire);
  if (!detail::word::is_remote(word)) return true;
  const home_address at = home_address::unpack(word);
  if (!in_set(at)) return true;
  heap::bits_t* const taken = bits_of(slot, true);
  if (is_set(taken, slot)) return true;
  const std::byte* const base = enter(at);
  const std::uint64_t region_bytes = h_.regions_pool.region_bytes();
  if (base == nullptr || at.offset >= region_bytes) return true;
  const std::byte* const copy = base + at.offset;
  const std::uint64_t room =
      std::min<std::uint64_t>(region_bytes - at.offset, detail::size_class::bytes(at.size_class));
  std::uint64_t header = 0;
  const std::uint64_t bytes = h_.copy_bytes(copy, room, header);
  // Bytes that are not what was indexed stay where they are, and their region with them.
  if (bytes == 0 || detail::header::slot(header) != slot || detail::size_class::of(bytes) != at.size_class) return true;
  if (!batch.add(*entry, word, header, copy, bytes)) return batch.is_fresh();
  set(taken, slot);
  push_references(header, copy, bytes);
  return true;
}

void evacuator::push_references(std::uint64_t header, const std::byte* copy, std::uint64_t bytes) {
  for_each_reference(h_, header, copy, bytes, !breadth_first_, [&](slot_t to) {
    const heap::bits_t* const taken = bits_of(to, true);
    if (taken == nullptr || is_set(taken, to)) return;
    __builtin_prefetch(h_.entry(to), 1);
    push(to);
  });
}

// ---- the slots that have been met ----

void evacuator::push(slot_t slot) noexcept {
  if (count_ == stack_max_) {
    if (breadth_first_) return;  // what is dropped is found by the last walk
    first_ = wrap(first_ + 1);
    --count_;
  }
  met(count_++) = slot;
}

slot_t evacuator::pop() noexcept {
  --count_;
  if (!breadth_first_) return met(count_);
  const slot_t slot = met(0);
  first_ = wrap(first_ + 1);
  return slot;
}

void evacuator::push_back(slot_t slot) noexcept {
  if (breadth_first_) first_ = wrap(first_ + stack_max_ - 1);
  ++count_;
  met(breadth_first_ ? 0 : count_ - 1) = slot;
}

void evacuator::prefetch_next() {
  if (!breadth_first_) {
    if (count_ != 0) prefetch_copy(met(count_ - 1));
    return;
  }
  if (count_ > limits::visit_ahead) __builtin_prefetch(h_.entry(met(limits::visit_ahead)), 1);
  if (count_ > limits::visit_ahead / 2) prefetch_copy(met(limits::visit_ahead / 2));
}

void evacuator::prefetch_copy(slot_t slot) {
  const home_address at = home_address::unpack(h_.entry(slot)->load(std::memory_order_acquire));
  if (!in_set(at)) return;
  const std::byte* const base = enter(at);
  if (base == nullptr) return;
  __builtin_prefetch(base + at.offset);
  __builtin_prefetch(base + at.offset + detail::cache_line_bytes);
}

// ---- regions ----

const std::byte* evacuator::enter(home_address at) {
  member& m = set_[at.region];
  if (m.base != nullptr) return m.base;
  inside_.push_back(nullptr);  // before it is entered
  region* const r = h_.regions_pool.enter(at.region, at.generation);
  if (r == nullptr) {
    inside_.pop_back();
    return nullptr;
  }
  inside_.back() = r;
  return m.base = r->memory.base();
}

void evacuator::leave_regions() noexcept {
  for (region* const r : inside_) {
    set_[r->number].base = nullptr;
    h_.regions_pool.leave(*r);
  }
  inside_.clear();
}

}  // namespace fm::agent
