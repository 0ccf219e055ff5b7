// Mapping regions of an agent on the same machine, and finding an address in them; see region_map.h. Lookups take no
// lock. A mapping stays until detach, which the owner of the session calls when no request names the region.
#include "region_map.h"

#include "base/log.h"
#include <sys/stat.h>
#include <unistd.h>

namespace fm::fabric {

region_map::~region_map() {
  for (auto& l : leaves_) delete l.load(std::memory_order_relaxed);
}

errc region_map::attach(std::uint32_t region, std::uint32_t generation, std::uint64_t bytes, memory_key key) noexcept
    try {
  struct stat st {};
  if (region >= regions_max || key.fd < 0 || ::fstat(key.fd, &st) != 0) {
    if (key.fd >= 0) ::close(key.fd);
    return errc::invalid_argument;
  }
  const std::lock_guard lock(mutex_);
  record& known = records_[region];
  std::erase(idle_, region);
  mapping* same = nullptr;
  for (const auto& m : known.mappings)
    if (m->device == st.st_dev && m->inode == st.st_ino && m->file.bytes() == bytes) same = m.get();
  if (same) {
    ::close(key.fd);
  } else {
    auto fresh = std::make_unique<mapping>(mapping{os::memory_file::adopt(key.fd, bytes, written_by_),
                                                   std::uint64_t(st.st_dev), std::uint64_t(st.st_ino)});
    same = fresh.get();
    if (known.views.empty()) known.mappings.clear();  // of memory that it had before
    known.mappings.push_back(std::move(fresh));
  }
  known.views.push_back(std::make_unique<view>(view{same->file.base(), bytes, generation}));
  auto& slot = leaves_[region >> leaf_bits];
  if (!slot.load(std::memory_order_relaxed)) slot.store(new leaf, std::memory_order_release);
  slot.load(std::memory_order_relaxed)
      ->views[region & ((1u << leaf_bits) - 1)]
      .store(known.views.back().get(), std::memory_order_release);
  return errc::ok;
} catch (const error& e) {  // adopt has closed the descriptor
  log::warn("fabric: attaching region {}: {}", region, e.what());
  forget(region);
  return e.code();
} catch (const std::bad_alloc&) {
  forget(region);
  return errc::out_of_memory;
}

void region_map::touch_ahead(std::uint32_t region) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = records_.find(region);
  if (at == records_.end() || at->second.views.empty() || forgotten_) return;
  mapping& m = *at->second.mappings.back();
  if (!std::exchange(m.is_touched, true)) os::map_pages(m.file.base(), m.file.bytes());
}

void region_map::forget(std::uint32_t region) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto at = records_.find(region); at != records_.end() && at->second.views.empty()) records_.erase(at);
}

void region_map::detach(std::uint32_t region) noexcept {
  if (region >= regions_max) return;
  const std::lock_guard lock(mutex_);
  if (leaf* l = leaves_[region >> leaf_bits].load(std::memory_order_relaxed))
    l->views[region & ((1u << leaf_bits) - 1)].store(nullptr, std::memory_order_release);
  const auto at = records_.find(region);
  if (at == records_.end() || at->second.views.empty()) return;
  record& r = at->second;
  if (forgotten_ || written_by_ != os::written_by::all) {
    records_.erase(at);
    return;
  }
  r.views.clear();
  r.mappings.erase(r.mappings.begin(), std::prev(r.mappings.end()));
  idle_.push_back(region);  // has room
  if (idle_.size() <= fabric_limits::idle_mappings_max) return;
  records_.erase(idle_.front());
  idle_.erase(idle_.begin());
}

void region_map::forget_memory() noexcept {
  const std::lock_guard lock(mutex_);
  forgotten_ = true;
  for (const std::uint32_t region : idle_) records_.erase(region);
  idle_.clear();
  for (auto& [region, r] : records_)
    for (const auto& m : r.mappings)
      if (!m->file.forget_file()) log::warn("fabric: the memory of region {} stays mapped", region);
}

const region_map::view* region_map::lookup(std::uint32_t region) const noexcept {
  if (region >= regions_max) return nullptr;
  const leaf* l = leaves_[region >> leaf_bits].load(std::memory_order_acquire);
  return l ? l->views[region & ((1u << leaf_bits) - 1)].load(std::memory_order_acquire) : nullptr;
}

std::byte* region_map::find(const remote& where, std::uint64_t bytes, bool to_write) const noexcept {
  if (to_write && written_by_ != os::written_by::all) return nullptr;
  const view* v = lookup(where.region);
  if (!v || v->generation != where.generation || bytes > v->bytes || where.offset > v->bytes - bytes) return nullptr;
  return v->base + where.offset;
}

std::byte* region_map::base(std::uint32_t region) const noexcept {
  const view* v = lookup(region);
  return v ? v->base : nullptr;
}

}  // namespace fm::fabric
