// Registering what a session was lent, slab by slab, and taking registrations back; see local_memory.h. Owns the
// invariant that memory is registered nowhere once take_back has returned. Called by one verbs_session and by its
// lanes.
#include "local_memory.h"
#include "base/limits.h"

#include "base/log.h"

#include <algorithm>
#include <mutex>

namespace fm::fabric::verbs {

void local_memory::lend(std::byte* base, std::uint64_t bytes, std::uint64_t slab_bytes) {
  const std::unique_lock lock(mutex_);
  lent l{base, bytes, slab_bytes, {}};
  l.slabs.resize((bytes + slab_bytes - 1) / slab_bytes);
  all_.push_back(std::move(l));
}

local_memory::lent* local_memory::containing(const std::byte* at) noexcept {
  for (lent& l : all_)
    if (at >= l.base && at < l.base + l.bytes) return &l;
  return nullptr;
}

void local_memory::take_back(std::byte* base, std::uint64_t bytes, bool for_good) noexcept {
  const std::unique_lock lock(mutex_);
  lent* l = containing(base);
  if (l == nullptr) return;
  const auto first = std::uint64_t(base - l->base) / l->slab_bytes;
  const auto end = std::min<std::uint64_t>((std::uint64_t(base - l->base) + bytes + l->slab_bytes - 1) / l->slab_bytes,
                                           l->slabs.size());
  for (std::uint64_t i = first; i < end; ++i) l->slabs[i].reset();
  if (for_good) all_.erase(all_.begin() + (l - all_.data()));
}

void local_memory::use(ibv_pd* domain, const paging& how) noexcept {
  const std::unique_lock lock(mutex_);
  if (domain == domain_) return;
  domain_ = domain;
  access_ = how.flags(local_access);
  for (lent& l : all_) {
    for (memory_region& m : l.slabs) m.reset();
    l.refused = false;
  }
}

std::uint64_t local_memory::find(void* at, std::uint64_t bytes, std::uint32_t& key) noexcept try {
  auto* const from = static_cast<std::byte*>(at);
  const auto covered = [&](const lent& l, std::uint64_t slab) {
    const std::byte* end = std::min(l.base + (slab + 1) * l.slab_bytes, l.base + l.bytes);
    return std::min<std::uint64_t>(bytes, std::uint64_t(end - from));
  };
  {
    const std::shared_lock lock(mutex_);
    const lent* l = containing(from);
    if (l == nullptr || l->refused || domain_ == nullptr) return 0;
    const auto i = std::uint64_t(from - l->base) / l->slab_bytes;
    if (l->slabs[i]) {
      key = l->slabs[i]->lkey;
      return covered(*l, i);
    }
  }
  const std::unique_lock lock(mutex_);
  lent* l = containing(from);
  if (l == nullptr || l->refused || domain_ == nullptr) return 0;
  const auto i = std::uint64_t(from - l->base) / l->slab_bytes;
  if (!l->slabs[i]) {
    std::byte* const base = l->base + i * l->slab_bytes;
    const std::uint64_t n = std::min<std::uint64_t>(l->slab_bytes, std::uint64_t(l->base + l->bytes - base));
    const bool pinned = (access_ & IBV_ACCESS_ON_DEMAND) == 0;
    failure f = pinned ? check_memlock(n + fabric_limits::locked_bytes_left) : failure{};
    if (!f.failed()) f = register_memory(domain_, base, n, access_, l->slabs[i]);
    if (f.failed()) {
      log::warn("verbs: {}; transfers of this memory are copied", f.text);
      l->refused = true;
      return 0;
    }
  }
  key = l->slabs[i]->lkey;
  return covered(*l, i);
} catch (const std::bad_alloc&) {
  return 0;  // no memory for the text of a failure: copied this time
}

}  // namespace fm::fabric::verbs
