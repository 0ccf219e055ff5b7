// The buddy system over a pool's regions; see frames.h.
// Invariant owned here: a free piece is in exactly one list, and two free buddies are one piece.
// Called by blocks, with the pool's structure exclusively.
#include "frames.h"

namespace fm::agent {

pool_frames::~pool_frames() {
  for (const record& k : records_)
    if (k.r != nullptr) regions_.give_back(*k.r, false);
}

errc pool_frames::add_region() {
  if ((held_ + 1) * region_bytes() > detail::round_up(quota_, region_bytes())) return errc::quota_exceeded;
  if (ordinals_free_.empty()) {
    if (records_.size() >= blocks::ordinal_limit) return errc::agent_full;
    ordinals_free_.insert(static_cast<std::uint32_t>(records_.size()));
    records_.emplace_back();
  }
  region* r = regions_.take(nullptr, key_, region_use::readers);
  if (r == nullptr) return errc::agent_full;
  r->tenant.store(holder_, std::memory_order_release);
  ++held_;
  const std::uint32_t ordinal = *ordinals_free_.begin();
  ordinals_free_.erase(ordinals_free_.begin());
  records_[ordinal].r = r;
  free_[order_of(region_bytes())].insert(std::uint64_t{ordinal} << 32);
  return errc::ok;
}

errc pool_frames::take(std::uint64_t bytes, blocks::place& out) {
  FM_ASSERT(detail::is_power_of_two(bytes) && bytes >= blocks::frame_bytes_min && bytes <= region_bytes(),
            "a frame of a size that there is not");
  if (bytes > quota_ || used_ > quota_ - bytes) return errc::quota_exceeded;
  const unsigned wanted = order_of(bytes), whole = order_of(region_bytes());
  // The lowest address of any order that is large enough.
  const auto look = [&] {
    unsigned best = orders;
    for (unsigned o = wanted; o <= whole; ++o)
      if (!free_[o].empty() && (best == orders || *free_[o].begin() < *free_[best].begin())) best = o;
    return best;
  };
  unsigned o = look();
  if (o == orders) {
    if (const errc e = add_region(); e != errc::ok) return e;
    o = look();
  }
  const address at = *free_[o].begin();
  free_[o].erase(free_[o].begin());
  while (o > wanted) {
    --o;
    free_[o].insert(at + (blocks::frame_bytes_min << o));
  }
  used_ += bytes;
  out = {static_cast<std::uint32_t>(at >> 32), static_cast<std::uint32_t>(at)};
  return errc::ok;
}

void pool_frames::give_back(blocks::place place, std::uint64_t bytes) {
  FM_ASSERT(used_ >= bytes && find(place.ordinal) != nullptr, "a frame came back that was not given");
  used_ -= bytes;
  address at = std::uint64_t{place.ordinal} << 32 | place.offset;
  unsigned o = order_of(bytes);
  const unsigned whole = order_of(region_bytes());
  for (; o < whole; ++o) {
    const auto buddy = free_[o].find(at ^ (blocks::frame_bytes_min << o));
    if (buddy == free_[o].end()) break;
    at = std::min(at, *buddy);
    free_[o].erase(buddy);
  }
  if (o == whole && !free_[whole].empty()) {  // one empty region is kept for the next frame; the later one goes
    const address other = *free_[whole].begin();
    free_[whole].erase(free_[whole].begin());
    const auto leaves = static_cast<std::uint32_t>(std::max(at, other) >> 32);
    at = std::min(at, other);
    gone_.push_back(leaves);
    regions_.give_back(*records_[leaves].r, false);
    records_[leaves].r = nullptr;
    --held_;
  }
  free_[o].insert(at);
}

void pool_frames::forget_gone(std::uint64_t n) {
  for (; forgotten_ < n && !gone_.empty(); ++forgotten_) {
    ordinals_free_.insert(gone_.front());
    gone_.pop_front();
  }
}

std::uint64_t pool_frames::books_bytes() const noexcept {
  constexpr std::uint64_t node_bytes = sizeof(address) + 4 * sizeof(void*);  // of a tree: three links and a colour
  std::uint64_t bytes =
      records_.capacity() * sizeof(record) + gone_.size() * sizeof(gone_[0]) + ordinals_free_.size() * node_bytes;
  for (const auto& free : free_) bytes += free.size() * node_bytes;
  return bytes;
}

}  // namespace fm::agent
