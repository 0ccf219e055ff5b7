// Best fit over whole pages; see farmem/paged/resource.h. Owns the two indexes of free extents, which agree whenever
// the lock is free. size_class_resource calls it, and so may a program.
#include "base/base.h"
#include <farmem/paged/resource.h>

#include <new>

namespace fm {

paged_extents::paged_extents(void* base, std::size_t bytes, discard_function discard, void* context)
    : base_(static_cast<std::byte*>(base)),
      bytes_(detail::round_down(bytes, detail::page_bytes)),
      discard_(discard),
      context_(context) {
  insert(0, bytes_);
}

std::size_t paged_extents::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_;
}

std::size_t paged_extents::largest_free() const {
  const std::lock_guard lock(mutex_);
  return by_size_.empty() ? 0 : by_size_.rbegin()->first;
}

void paged_extents::insert(std::size_t from, std::size_t bytes) {
  if (bytes == 0) return;
  by_place_.emplace(from, bytes);
  by_size_.emplace(bytes, from);
  free_ += bytes;
}

void* paged_extents::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > std::size_t{1} << 62) throw std::bad_alloc();
  bytes = detail::round_up(std::max<std::size_t>(bytes, 1), detail::page_bytes);
  const std::lock_guard lock(mutex_);
  for (auto at = by_size_.lower_bound({bytes, 0}); at != by_size_.end(); ++at) {
    const auto [room, from] = *at;
    const auto address = reinterpret_cast<std::uintptr_t>(base_) + from;
    const std::size_t skip = detail::round_up(address, std::max(alignment, detail::page_bytes)) - address;
    if (skip > room - bytes) continue;
    by_size_.erase(at);
    by_place_.erase(from);
    free_ -= room;
    insert(from, skip);
    insert(from + skip + bytes, room - skip - bytes);
    return base_ + from + skip;
  }
  throw std::bad_alloc();
}

void paged_extents::do_deallocate(void* p, std::size_t bytes, std::size_t) {
  bytes = detail::round_up(std::max<std::size_t>(bytes, 1), detail::page_bytes);
  if (discard_ != nullptr) discard_(context_, p, bytes);
  auto from = static_cast<std::size_t>(static_cast<std::byte*>(p) - base_);
  const std::lock_guard lock(mutex_);
  const auto take = [&](auto at) {
    by_size_.erase({at->second, at->first});
    free_ -= at->second;
    by_place_.erase(at);
  };
  if (const auto next = by_place_.lower_bound(from); next != by_place_.end() && next->first == from + bytes) {
    bytes += next->second;
    take(next);
  }
  if (auto before = by_place_.lower_bound(from); before != by_place_.begin()) {
    --before;
    if (before->first + before->second == from) {
      from = before->first;
      bytes += before->second;
      take(before);
    }
  }
  insert(from, bytes);
}

}  // namespace fm
