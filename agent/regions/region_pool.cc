// Taking regions with memory and giving them back; see region_pool.h.
// Invariant owned here: memory is made when a region is taken, where a shortage is an answer, and goes away when the
// last user has left.
// take and give_back are called under a heap's, a pool's or a space's lock; find, enter and leave by anybody.
#include "region_pool.h"

#include "base/log.h"

#include "protocol/region_memory.h"

namespace fm::agent {

namespace {

using slot_in_table = std::atomic<region*>;
constexpr std::uint32_t region_limit = detail::home_address::region_limit;
constexpr std::uint32_t generation_limit = detail::home_address::generation_limit;

slot_in_table* table(const os::reservation& r) { return reinterpret_cast<slot_in_table*>(r.base()); }

bool same(const std::uint64_t (&a)[3], const owner_key& k) {
  return a[0] == k.heap_id[0] && a[1] == k.heap_id[1] && a[2] == k.incarnation;
}

}  // namespace

region_pool::region_pool(std::uint64_t memory_bytes, std::uint64_t region_bytes, double reserve, bool huge_pages,
                         bool shared)
    : region_bytes_(region_bytes),
      huge_pages_(huge_pages),
      shared_(shared),
      limit_(std::min<std::uint64_t>(memory_bytes / region_bytes, region_limit)),
      reserved_(reserve > 0 && limit_ > 1
                    ? std::clamp<std::uint64_t>(std::uint64_t(double(limit_) * reserve), 1, limit_ - 1)
                    : 0),
      records_(region_limit * sizeof(slot_in_table), detail::page_bytes) {
  if (huge_pages_ && shared_ && !os::shared_huge_pages())
    log::warn(
        "huge pages were asked for, and the kernel gives none for regions: echo advise > "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

region_pool::~region_pool() {
  for (std::uint32_t i = 0; i < next_number_; ++i) delete table(records_)[i].load(std::memory_order_relaxed);
}

region* region_pool::find(std::uint32_t number) const noexcept {
  return number < region_limit ? table(records_)[number].load(std::memory_order_acquire) : nullptr;
}

region* region_pool::enter(std::uint32_t number, std::uint32_t generation) noexcept {
  region* r = find(number);
  if (r == nullptr || generation == 0) return nullptr;
  bool last_out = false;
  const bool in = r->enter(generation, last_out);
  if (last_out) release(*r);
  return in ? r : nullptr;
}

void region_pool::leave(region& r) noexcept {
  if (r.leave()) release(r);
}

// Without UBSan's look at the type of `e`: it takes a pipe, and an agent without a free descriptor comes here.
__attribute__((no_sanitize("vptr"))) region* region_pool::take(heap* owner, const owner_key& key, region_use use) {
  std::lock_guard lock(mutex_);
  const std::uint64_t may_use = use == region_use::cleaning ? limit_ : limit_ - reserved_;
  if (in_use_.load(std::memory_order_relaxed) >= may_use) return nullptr;
  if (use == region_use::evacuation && until_low() == 0) return nullptr;

  region* r = nullptr;
  for (auto k = kept_.rbegin(); k != kept_.rend() && use != region_use::readers; ++k) {
    if (!same((*k)->memory_owner, key)) continue;
    r = *k;
    kept_.erase(std::next(k).base());
    break;
  }
  if (r == nullptr) {
    if (with_memory_ >= limit_ && !evict_left() && !evict_kept()) return nullptr;
    if (bare_.empty()) {
      if (next_number_ >= region_limit) return nullptr;
      make_room_for_one_more();
      table(records_)[next_number_].store(new region(next_number_), std::memory_order_release);
      bare_.push_back(find(next_number_++));
    }
    r = bare_.back();
    try {
      // The agent's memory, whoever writes to it first; and no memory is an answer, not a fault later.
      r->memory = shared_ ? protocol::make_region(
                                region_bytes_, use == region_use::readers ? os::written_by::maker : os::written_by::all,
                                huge_pages_)
                          : os::memory_file::unshared(region_bytes_);
    } catch (const error& e) {
      log::error("no memory for a region: {}", e.what());
      return nullptr;
    }
    bare_.pop_back();
    ++with_memory_;
  }
  r->memory_owner[0] = key.heap_id[0];
  r->memory_owner[1] = key.heap_id[1];
  r->memory_owner[2] = key.incarnation;
  r->keep_memory = false;
  r->owner.store(owner, std::memory_order_relaxed);
  r->writable.store(use == region_use::owner, std::memory_order_relaxed);
  r->append_end.store(0, std::memory_order_relaxed);
  r->confirmed.store(false, std::memory_order_relaxed);
  r->state = region_state::open;
  r->by_mover = use == region_use::evacuation || use == region_use::cleaning;
  r->unwalkable = false;
  r->notice_pending = false;
  r->extents.clear();
  r->live_count = 0;
  r->live_bytes = 0;
  r->generation = ++r->last_generation;
  in_use_.fetch_add(1, std::memory_order_relaxed);
  r->open(r->generation);
  return r;
}

/// Whoever leaves a region last may release it, and then there may be no memory: each has its place in all lists.
void region_pool::make_room_for_one_more() {
  const std::size_t regions = next_number_ + std::size_t{1};
  for (std::vector<region*>* list : {&bare_, &kept_, &left_})
    if (list->capacity() < regions) list->reserve(2 * regions);
}

void region_pool::give_back(region& r, bool keep) {
  r.writable.store(false, std::memory_order_relaxed);
  r.keep_memory = keep;
  r.state = region_state::free;
  // Not only when the last user has left: whoever finds it by its number looks at the owner first, and only the owner's lock
  // says that it is not somebody else's by the next look.
  r.owner.store(nullptr, std::memory_order_relaxed);
  if (r.close()) release(r);
}

void region_pool::release(region& r) {
  std::lock_guard lock(mutex_);
  r.owner.store(nullptr, std::memory_order_relaxed);
  r.tenant.store(nullptr, std::memory_order_relaxed);
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  const bool exhausted = r.last_generation + 1 >= generation_limit;
  if (r.keep_memory && !exhausted && kept_.size() < std::max<std::uint64_t>(limit_ / 8, 2)) {
    kept_.push_back(&r);
    return;
  }
  left_.push_back(&r);
}

// While the lock is not held the region is in no list, and its memory counts.
bool region_pool::drop_one() noexcept {
  region* r = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) return false;
    r = left_.back();
    left_.pop_back();
  }
  if (r->keep_memory) r->memory.drop_pages();
  r->memory = os::memory_file();
  const std::lock_guard lock(mutex_);
  forget_memory(*r);
  return true;
}

bool region_pool::drop_some(std::size_t most) noexcept {
  for (; most != 0; --most)
    if (!drop_one()) return false;
  return true;
}

void region_pool::forget_memory(region& r) noexcept {
  --with_memory_;
  if (r.last_generation + 1 < generation_limit) bare_.push_back(&r);
}

bool region_pool::evict_left() {
  if (left_.empty()) return false;
  region* const r = left_.back();
  left_.pop_back();
  if (r->keep_memory) r->memory.drop_pages();
  r->memory = os::memory_file();
  forget_memory(*r);
  return true;
}

bool region_pool::evict_kept() {
  if (kept_.empty()) return false;
  region* r = kept_.front();
  kept_.erase(kept_.begin());
  r->memory.drop_pages();
  r->memory = os::memory_file();
  forget_memory(*r);
  return true;
}

}  // namespace fm::agent
