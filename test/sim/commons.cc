// Mail and obituaries; see commons.h.
#include "commons.h"

#include <algorithm>
#include <utility>

namespace fm::sim {

bool mailbox::post(parcel& p) {
  const std::lock_guard lock(mutex_);
  const auto with_pin = [](const parcel& other) { return other.pin.has_value(); };
  if (parcels_.size() == parcels_max || (p.pin && std::any_of(parcels_.begin(), parcels_.end(), with_pin)))
    return false;
  parcels_.push_back(std::move(p));
  return true;
}

std::optional<mailbox::parcel> mailbox::take(std::uint64_t random) {
  const std::lock_guard lock(mutex_);
  if (parcels_.empty()) return std::nullopt;
  std::swap(parcels_[random % parcels_.size()], parcels_.back());
  std::optional<parcel> p = std::move(parcels_.back());
  parcels_.pop_back();
  return p;
}

void mailbox::clear() {
  std::vector<parcel> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(parcels_);
  }
}

void obituaries::watch(heap& h, const ptr<node>& p, std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    watched_.insert(id);
  }
  h.on_dead(p, [this, id] {
    const std::lock_guard lock(mutex_);
    told_twice_ += !dead_.insert(id).second;
  });
}

bool obituaries::is_dead(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  return dead_.contains(id);
}

std::string obituaries::compare(const std::set<std::uint64_t>& alive) {
  const std::lock_guard lock(mutex_);
  if (told_twice_ != 0) return "a death was told twice";
  for (const std::uint64_t id : watched_)
    if (alive.contains(id) == dead_.contains(id))
      return "node " + std::to_string(id >> 32) + ":" + std::to_string(id & 0xffffffff) +
             (alive.contains(id) ? " is alive, and its death was told" : " is dead, and nobody was told");
  return {};
}

std::size_t obituaries::told() {
  const std::lock_guard lock(mutex_);
  return dead_.size();
}

}  // namespace fm::sim
