// Taking and giving places; see places.h for the invariants. home.cc calls it.
#include "places.h"

#include <algorithm>
#include <bit>

namespace fm::detail {

void region_places::open(std::uint64_t regions, std::uint64_t each) {
  const std::lock_guard lock(mutex_);
  each_ = each;
  used_.resize(regions);
  bits_ = os::reservation(round_up((regions * each + 63) / 64 * 8, page_bytes), page_bytes);
}

void region_places::promise(std::uint64_t regions) noexcept {
  const std::lock_guard lock(mutex_);
  promised_ = regions;
}

std::uint64_t region_places::take_in(std::uint64_t region) noexcept {
  for (std::uint64_t p = region * each_, end = p + each_; p < end;) {
    const std::uint64_t word = bits()[p / 64] | ((std::uint64_t{1} << p % 64) - 1);
    const std::uint64_t free = p / 64 * 64 + static_cast<std::uint64_t>(std::countr_one(word));
    if (free % 64 == 0 && free != p) {  // none in this word
      p = free;
      continue;
    }
    if (free >= end) break;
    bits()[free / 64] |= std::uint64_t{1} << free % 64;
    const std::uint32_t before = used_[region]++;
    regions_used_ += before == 0;
    partly_ += before == 0;
    partly_ -= before + 1 == each_;
    if (before == 0) partly_from_ = std::min(partly_from_, region);
    taken_.fetch_add(1, std::memory_order_relaxed);
    return free;
  }
  return none;
}

std::uint64_t region_places::take(std::uint64_t near) noexcept {
  const std::lock_guard lock(mutex_);
  if (near != none)
    if (const std::uint32_t n = used_[near / each_]; n != 0 && n < each_) return take_in(near / each_);
  if (partly_ != 0) {
    for (; partly_from_ < used_.size(); ++partly_from_)
      if (const std::uint32_t n = used_[partly_from_]; n != 0 && n < each_) return take_in(partly_from_);
  }
  if (regions_used_ >= promised_) return none;
  for (; empty_from_ < used_.size(); ++empty_from_)
    if (used_[empty_from_] == 0) return take_in(empty_from_);
  return none;
}

bool region_places::give(std::uint64_t place) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t region = place / each_, bit = std::uint64_t{1} << place % 64;
  FM_ASSERT((bits()[place / 64] & bit) != 0 && used_[region] != 0 && (used_[region] & closed) == 0,
            "a place was given back that nobody has");
  bits()[place / 64] &= ~bit;
  const std::uint32_t before = used_[region]--;
  partly_ += before == each_;
  partly_ -= before == 1;
  regions_used_ -= before == 1;
  taken_.fetch_sub(1, std::memory_order_relaxed);
  if (before == 1)
    empty_from_ = std::min(empty_from_, region);
  else
    partly_from_ = std::min(partly_from_, region);
  return before == 1;
}

bool region_places::close(std::uint64_t region) noexcept {
  const std::lock_guard lock(mutex_);
  if (used_[region] != 0) return false;
  used_[region] = closed;
  ++regions_used_;
  return true;
}

void region_places::reopen(std::uint64_t region) noexcept {
  const std::lock_guard lock(mutex_);
  used_[region] = 0;
  --regions_used_;
  empty_from_ = std::min(empty_from_, region);
}

std::uint64_t region_places::left() const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t all = promised_ * each_, has = taken();
  return all - std::min(all, has);
}

bool region_places::is_taken(std::uint64_t place) const noexcept {
  const std::lock_guard lock(mutex_);
  return place / each_ < used_.size() && (bits()[place / 64] >> place % 64 & 1) != 0;
}

std::uint64_t region_places::regions_used() const noexcept {
  const std::lock_guard lock(mutex_);
  return regions_used_;
}

bool region_places::is_used(std::uint64_t region) const noexcept {
  const std::lock_guard lock(mutex_);
  return used_[region] != 0;
}

}  // namespace fm::detail
