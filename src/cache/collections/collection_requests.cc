// Calling the collector; see collection_requests.h.
//
// Invariant: the exchange that takes the request away decides who calls, so that each request reaches the collector
// once.
#include "cache/collections/collection_requests.h"

#include <utility>

namespace fm::detail {

bool collection_requests::ask_for_room() noexcept {
  if (!tell_) return false;
  if (rests()) return true;  // whoever waits asks again
  if (!awaited_.exchange(true, std::memory_order_acq_rel)) tell_(context_);
  return true;
}

void collection_requests::collected(bool made_room, bool is_short, duration took, duration memory_within) noexcept {
  // One in vain that nobody waited for says nothing: it neither begins a rest nor ends one.
  if (made_room || is_short || awaits_collection()) {
    const duration rest = rest_.after(made_room, took, memory_within);
    rest_until_.store((clock::now() + rest).time_since_epoch().count(), std::memory_order_relaxed);
  }
  if (!made_room) in_vain_.fetch_add(1, std::memory_order_acq_rel);
  ended_.fetch_add(1, std::memory_order_release);
  awaited_.store(false, std::memory_order_release);  // who sees that nobody waits sees what this cycle did
}

void collection_requests::report(mutator& m) noexcept {
  allocated_objects_.fetch_add(std::exchange(m.objects_unreported, 0), std::memory_order_relaxed);
  const std::uint64_t total =
      allocated_bytes_.fetch_add(m.allocated_unreported, std::memory_order_relaxed) + m.allocated_unreported;
  m.allocated_unreported = 0;
  if (total < tell_at_.load(std::memory_order_acquire)) return;
  if (tell_at_.exchange(~std::uint64_t{0}, std::memory_order_acq_rel) != ~std::uint64_t{0}) tell_(context_);
}

}  // namespace fm::detail
