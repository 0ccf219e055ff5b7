// fm::paged itself: passes on to its core, and keeps children of fork away from it. It keeps no state of its own.
// Programs call it.
#include <farmem/paged.h>

#include "core.h"

namespace fm {

paged::paged(const paged_options& options) : core_(std::make_unique<detail::paged_core>(options)) {}

paged::~paged() {
  // In a child its threads and connections are the parent's: nothing can be ended, and nothing must be said to the
  // agents.
  if (core_ && core_->in_child()) static_cast<void>(core_.release());
}
paged::paged(paged&&) noexcept = default;
paged& paged::operator=(paged&& o) noexcept {
  std::swap(core_, o.core_);
  return *this;
}

std::byte* paged::data() const noexcept { return core_->base(); }
std::size_t paged::size() const noexcept { return core_->bytes(); }
bool paged::contains(const void* p) const noexcept { return core_->contains(p); }
std::pmr::memory_resource* paged::resource() const noexcept { return core_->resource(); }

void paged::prefetch(std::span<const std::byte> some) const {
  core_->check_process();
  core_->prefetch(some);
}
void paged::populate(std::span<const std::byte> some, bool for_writing) const {
  core_->check_process();
  core_->populate(some, for_writing);
}
void paged::discard(std::span<std::byte> some) const {
  core_->check_process();
  core_->discard(some);
}
void paged::resize_local(std::uint64_t bytes) const {
  core_->check_process();
  core_->resize_local(bytes);
}
std::string paged::verify() const {
  core_->check_process();
  return core_->verify();
}
paged_stats paged::stats(bool histogram) const { return core_->stats(histogram); }
void paged::evict_all() const {
  core_->check_process();
  core_->evict_all();
}
void paged::drop_connections() const noexcept {
  if (!core_->in_child()) core_->drop_connections();
}

}  // namespace fm
