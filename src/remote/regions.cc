// Carving, gaps, the acknowledged prefix, and the end of regions. See regions.h for the invariants.
// Invariant owned here: every byte below a region's end is a carve or a gap.
// Called under the mutex of the session with the agent; region_table is wait-free.
#include "regions.h"

#include "base/base.h"
#include <algorithm>

namespace fm::remote::internal {

void region_book::configure(std::uint32_t region_bytes, std::uint32_t batch_bytes) {
  region_bytes_ = region_bytes;
  // A batch is at most a quarter of a region, so that the end of a region never strands more than that.
  batch_bytes_ =
      static_cast<std::uint32_t>(detail::round_up(std::clamp<std::uint32_t>(batch_bytes, 1024, region_bytes / 4), 8));
}

region_book::record* region_book::find(std::uint32_t region) {
  const auto it = records_.find(region);
  return it == records_.end() ? nullptr : &it->second;
}

bool region_book::add_opening(std::uint32_t region, std::uint32_t generation) {
  if (const record* old = find(region)) {
    // A number comes again in a new generation; the old one must be over.
    if (old->state != region_state::retiring || old->generation == generation || old->building != 0 ||
        old->unacknowledged != 0)
      return false;
  }
  for (auto* list : {&open_, &full_})
    if (list->capacity() <= records_.size()) list->reserve(2 * records_.size() + 8);
  record& r = renew(region);
  r.generation = generation;
  return true;
}

region_book::record& region_book::renew(std::uint32_t region) {
  record& r = records_.try_emplace(region, tile_memory_).first->second;
  uncount(r);
  r = record(tile_memory_);
  r.region = region;
  return r;
}

void region_book::uncount(const record& r) {
  building_ -= r.building;
  unacknowledged_ -= r.unacknowledged;
}

void region_book::opened(std::uint32_t region, std::uint32_t generation, std::byte* memory) {
  record* r = find(region);
  if (!r || r->generation != generation || r->state != region_state::opening) return;
  r->memory = memory;
  r->state = region_state::open;
  open_.push_back(region);
  table_.set(region, generation, 0);
}

void region_book::gone(std::uint32_t region, std::uint32_t generation) {
  record* r = find(region);
  if (!r || r->generation != generation) return;
  r->state = region_state::retiring;
  std::erase(open_, region);
  std::erase(full_, region);
  table_.clear(region);
}

void region_book::add_foreign(const region_answer& a, std::byte* memory) {
  record* const known = find(a.region);
  const bool is_old = known && known->generation != a.generation;
  // The agent has a region of ours again only when it was given back, or when a handshake found it gone.
  if (is_old && known->state != region_state::foreign && known->state != region_state::retiring) return;
  record& r = !known || is_old ? renew(a.region) : *known;
  if (!known || is_old) {
    r.generation = a.generation;
    r.state = region_state::foreign;
  }
  if (r.state != region_state::foreign) return;
  r.memory = memory;
  r.sealed_by_agent = a.sealed != 0;
  r.readable = std::max(r.readable, static_cast<std::uint32_t>(a.readable_bytes));
  table_.set(a.region, a.generation, r.readable);
}

void region_book::attached_again(const region_answer& a, std::byte* memory) {
  record* r = find(a.region);
  if (!r || r->generation != a.generation) return;
  if (r->state == region_state::opening)
    opened(a.region, a.generation, memory);
  else if (r->state == region_state::foreign)
    add_foreign(a, memory);
  else
    r->memory = memory;
}

bool region_book::take(std::uint32_t need, carve& out) {
  tile_memory_.reserve(2 * (building_ + 1) + unacknowledged_);
  if (small_gaps_.capacity() <= small_gaps_.size() + building_) small_gaps_.reserve(2 * small_gaps_.capacity() + 16);
  // A region that nobody else builds in gives its unused rest back without a gap, so those come first.
  for (const bool alone : {true, false})
    for (const std::uint32_t n : open_) {
      record& r = records_.at(n);
      if (r.state == region_state::open && (r.building == 0) == alone && take_from(r, need, out)) return true;
    }
  // Nothing has room: whoever is nearest to its end is finished, so that the number of open regions stays bounded.
  if (open_.size() >= detail::limits::open_regions_max) {
    const auto fullest = std::max_element(open_.begin(), open_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return records_.at(a).end < records_.at(b).end;
    });
    make_full(*fullest);
  }
  return false;
}

bool region_book::take_from(record& r, std::uint32_t need, carve& out) {
  const std::uint32_t want = std::max(need, batch_bytes_);
  const auto give = [&](std::uint32_t offset, std::uint32_t bytes) {
    out = {.region = r.region,
           .generation = r.generation,
           .offset = offset,
           .bytes = bytes,
           .memory = r.memory ? r.memory + offset : nullptr};
    ++r.building;
    ++building_;
    return true;
  };
  for (auto it = r.gaps.begin(); it != r.gaps.end(); ++it) {
    if (it->second < need) continue;
    const std::uint32_t offset = it->first;
    std::uint32_t bytes = it->second;
    r.gaps.erase(it);
    if (bytes >= want + gap_bytes_min()) {
      r.gaps.emplace(offset + want, bytes - want);
      bytes = want;
    }
    return give(offset, bytes);
  }
  const std::uint32_t left = region_bytes_ - r.end;
  if (left < std::max(need, gap_bytes_min())) return false;  // a batch of one small object is not worth its message
  const std::uint32_t offset = r.end;
  r.end += std::min(want, left);
  return give(offset, r.end - offset);
}

bool region_book::wants_region() const {
  std::uint64_t left = 0;
  for (const std::uint32_t n : open_) left += region_bytes_ - records_.at(n).end;
  return left < region_bytes_ / 2;
}

// Bytes below the end that nothing stands in: they move the end back when they touch it, and are a gap otherwise.
void region_book::release(record& r, std::uint32_t offset, std::uint32_t bytes) {
  const auto after = r.gaps.lower_bound(offset);
  if (after != r.gaps.end() && after->first == offset + bytes) {
    bytes += after->second;
    r.gaps.erase(after);
  }
  auto before = r.gaps.lower_bound(offset);
  if (before != r.gaps.begin() && (--before)->first + before->second == offset) {
    offset = before->first;
    bytes += before->second;
    r.gaps.erase(before);
  }
  if (offset + bytes == r.end)
    r.end = offset;
  else
    r.gaps.emplace(offset, bytes);
}

void region_book::close_if_full(record& r) {
  // Once a region cannot take half a batch it is finished, unless a sizeable gap of it is still to be used.
  if (r.state != region_state::open || r.building != 0 || region_bytes_ - r.end >= batch_bytes_ / 2) return;
  for (const auto& [offset, bytes] : r.gaps)
    if (bytes >= batch_bytes_ / 2) return;
  make_full(r.region);
}

void region_book::make_full(std::uint32_t region) {
  std::erase(open_, region);
  records_.at(region).state = region_state::full;
  full_.push_back(region);
}

void region_book::submitted(const carve& c, std::uint32_t used) {
  record* found = find(c.region);
  if (!found || found->generation != c.generation) return;
  record& r = *found;
  --r.building;
  --building_;
  ++r.unacknowledged;
  ++unacknowledged_;
  const std::uint32_t rest = c.bytes - used;
  if (rest != 0) {
    if (c.offset + c.bytes == r.end || rest >= gap_bytes_min()) {
      release(r, c.offset + used, rest);
    } else {
      FM_ASSERT(rest >= rest_bytes_min, "a batch leaves room for the header that closes what it did not use");
      small_gaps_.push_back({r.region, r.generation, c.offset + used, rest});
      ++r.unacknowledged;
      ++unacknowledged_;
    }
  }
  close_if_full(r);
}

void region_book::given_back(const carve& c) {
  record* found = find(c.region);
  if (!found || found->generation != c.generation) return;
  record& r = *found;
  --r.building;
  --building_;
  release(r, c.offset, c.bytes);
  close_if_full(r);
}

void region_book::acknowledged(std::uint32_t region, std::uint32_t generation, std::uint32_t offset,
                               std::uint32_t bytes) {
  record* r = find(region);
  if (!r || r->generation != generation) return;
  --r->unacknowledged;
  --unacknowledged_;
  if (offset != r->readable) {
    r->islands.emplace(offset, bytes);
    return;
  }
  r->readable += bytes;
  for (auto it = r->islands.begin(); it != r->islands.end() && it->first == r->readable; it = r->islands.erase(it))
    r->readable += it->second;
  if (r->state != region_state::retiring) table_.set(region, generation, r->readable);
}

std::optional<extent> region_book::gap_to_close() const {
  if (!small_gaps_.empty()) return small_gaps_.back();
  for (const std::uint32_t n : full_) {
    const record& r = records_.at(n);
    if (r.building == 0 && !r.gaps.empty())
      return extent{r.region, r.generation, r.gaps.begin()->first, r.gaps.begin()->second};
  }
  return std::nullopt;
}

void region_book::begin_closing(const extent& gap) {
  if (!small_gaps_.empty()) return small_gaps_.pop_back();  // counted when it was made
  record& r = records_.at(gap.region);
  r.gaps.erase(gap.offset);
  ++r.unacknowledged;
  ++unacknowledged_;
}

namespace {
bool complete(const region_book::record& r) { return r.building == 0 && r.unacknowledged == 0 && r.gaps.empty(); }
}  // namespace

bool region_book::can_seal() const {
  return std::any_of(full_.begin(), full_.end(), [this](std::uint32_t n) { return complete(records_.at(n)); });
}

region_book::record* region_book::next_to_seal() {
  for (const std::uint32_t n : full_) {
    record& r = records_.at(n);
    if (!complete(r)) continue;
    r.state = region_state::sealing;
    std::erase(full_, n);
    return &r;
  }
  return nullptr;
}

void region_book::sealed(std::uint32_t region, std::uint32_t generation, bool by_agent) {
  record* r = find(region);
  if (!r || r->generation != generation || r->state != region_state::sealing) return;
  r->state = region_state::sealed;
  r->sealed_by_agent = by_agent;
  if (by_agent) table_.set(region, generation, region_bytes_);
}

bool region_book::retire(std::uint32_t region, std::uint32_t generation) {
  record* r = find(region);
  if (!r) return true;  // never learned of, so nobody reads it; the acknowledgement is still owed
  if (r->generation != generation || r->state < region_state::sealing) return false;
  r->state = region_state::retiring;
  table_.clear(region);
  return true;
}

void region_book::forget(std::uint32_t region, std::uint32_t generation) {
  record* r = find(region);
  if (!r || r->generation != generation) return;
  std::erase(open_, region);
  std::erase(full_, region);
  uncount(*r);
  records_.erase(region);
  table_.clear(region);
}

}  // namespace fm::remote::internal
