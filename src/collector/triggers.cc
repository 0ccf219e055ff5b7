// The rules of triggers.h.
#include "collector/triggers.h"

#include <algorithm>
#include <utility>

namespace fm::detail {

// The same agent may be named twice.
std::uint64_t collection_triggers::quota_of_all() const noexcept {
  object_cache::links& links = cache_.agents();
  std::uint64_t sum = 0;
  for (const auto* link = links.begin(); link != links.end(); ++link) {
    const auto is_same = [&](const auto& other) { return !other->lost() && other->url() == (*link)->url(); };
    if (!(*link)->lost() && std::none_of(links.begin(), link, is_same)) sum += (*link)->quota_bytes();
  }
  return sum;
}

// A heap may grow to twice what was live, so that the work of a cycle is paid for by as much allocation, and garbage
// may fill half of the cache, where it costs nothing; but a cycle begins early enough that the other half of the room
// is left for what is allocated while it runs.
void collection_triggers::arm(const cycle_report& r) noexcept {
  std::uint64_t live = 0;
  for (const cycle_part& a : r.agents) live += a.live_bytes;
  std::uint64_t between = options_.every;
  if (between == 0) {
    const std::uint64_t quota = quota_of_all();
    const auto usable = static_cast<std::uint64_t>(limits::most_used * double(quota));
    const std::uint64_t room = usable > live ? (usable - live) / 2 : 0;
    between = std::max(std::min(std::max({live, limits::least_between, cache_.capacity_bytes() / 2}), room),
                       limits::least_between_full);
    short_of_room_ = !options_.continuous && room <= std::max(limits::least_between_full, quota / 64);
  }
  between_ = between;
  due_at_.store(grown() + (options_.continuous ? std::min(between, limits::least_between_continuous) : between),
                std::memory_order_relaxed);
  young_between_ = young_base();
  large_between_ = limits::young_large_between;
  arm_next();
}

std::uint64_t collection_triggers::young_base() const noexcept {
  return std::min(cache_.capacity_bytes() / limits::young_share, between_.load() / 2);
}

bool collection_triggers::looks_for_large() const noexcept { return young_base() > limits::young_large_between; }

void collection_triggers::begins(generation of) noexcept {
  const std::uint64_t between = of == generation::young ? young_between_ : between_;
  const std::uint64_t allocated = cache_.requests().allocated_bytes();
  since_ = allocated - begun_at_;
  begun_at_ = allocated;
  objects_begun_at_.store(cache_.requests().allocated_objects(), std::memory_order_relaxed);
  hurry_at_.store(begun_at_ + between / limits::hurry_share, std::memory_order_relaxed);
}

void collection_triggers::arm_young(const cycle_report& r) noexcept {
  young_freed_.fetch_add(r.freed_bytes, std::memory_order_relaxed);
  // In vain for long, they leave it to the cycles.
  const bool in_vain = r.freed_bytes * limits::young_worth < since_, looks = looks_for_large();
  const std::uint64_t between = between_, young = young_between_, large = large_between_;
  if (!in_vain)
    young_between_ = young_base();
  else if (!looks || since_ >= young)
    young_between_ = std::min(young * 2, between);
  // Each young collection looks at all that is young and alive, however little was allocated: that must not take a core
  // for itself. (A simulation's runs do not depend on the time that they take.)
  const time_point now = clock::now(), before = std::exchange(young_armed_at_, now);
  const bool costly = !simulated && std::chrono::nanoseconds(r.cpu_ns) * limits::young_worth > now - before;
  if (!in_vain && !costly)
    large_between_ = std::max(large / 2, limits::young_large_between);
  else if (since_ >= large)
    large_between_ = std::min(large * 2, between);
  arm_next();
}

void collection_triggers::arm_next() noexcept {
  if (!options_.automatic) return;
  const auto left = [](std::uint64_t of, std::uint64_t used) { return of > used ? of - used : 1; };
  std::uint64_t next = left(due_at_.load(std::memory_order_relaxed), grown());
  std::uint64_t young = young_between_;
  if (looks_for_large()) young = std::min(young, large_between_.load());
  if (options_.young) next = std::min(next, left(young, cache_.requests().allocated_bytes() - begun_at_));
  cache_.requests().when_allocated(next);
}

/// The average object that was allocated since the last collection is large.
bool collection_triggers::are_large() const noexcept {
  // One may begin meanwhile.
  const std::uint64_t bytes_then = begun_at_.load(), objects_then = objects_begun_at_.load();
  const std::uint64_t bytes = cache_.requests().allocated_bytes(), objects = cache_.requests().allocated_objects();
  return bytes > bytes_then && objects > objects_then &&
         (bytes - bytes_then) / (objects - objects_then) >= limits::young_large;
}

std::uint64_t collection_triggers::grown() const noexcept {
  const std::uint64_t allocated = cache_.requests().allocated_bytes(),
                      freed = young_freed_.load(std::memory_order_relaxed);
  return allocated > freed ? allocated - freed : 0;
}

bool collection_triggers::hurried() const noexcept {
  return cache_.requests().allocated_bytes() > hurry_at_.load(std::memory_order_relaxed);
}

collection_triggers::kind collection_triggers::due(bool young_wanted) noexcept {
  const std::uint64_t due = due_at_.load(std::memory_order_relaxed), now = grown();
  // Allocation that goes on near the end of the room makes no cycle due while those before it were in vain.
  const bool rests = short_of_room_.load(std::memory_order_relaxed) && cache_.requests().rests();
  if (cache_.requests().awaits_collection() || (now >= due && !rests)) return kind::full;
  const std::uint64_t until_due = now < due ? due - now : limits::least_between_full;
  if (!options_.young) {
    cache_.requests().when_allocated(until_due);
    return kind::none;
  }
  // As long as half of the cache is free, young objects do no harm. But large objects cost next to nothing to free, and
  // their memory is better used again while it is warm than taken new.
  const std::uint64_t begun = begun_at_;  // before what was allocated: one may begin meanwhile
  const std::uint64_t since = cache_.requests().allocated_bytes() - begun;
  const bool looks = looks_for_large();
  const bool little_free = cache_.memory().available() < cache_.memory().capacity_segments() / 2;
  const bool young = looks ? (little_free && since >= young_between_) || (since >= large_between_ && are_large())
                           : little_free || are_large();
  // An evacuation may keep it waiting, and a cycle be due meanwhile.
  const std::uint64_t look = looks ? limits::young_large_between : young_base();
  cache_.requests().when_allocated(young_wanted || young ? until_due : std::min(until_due, look));
  return young ? kind::young : kind::none;
}

}  // namespace fm::detail
