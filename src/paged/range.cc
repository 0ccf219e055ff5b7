// fm::paged itself: passes on to its core, and keeps children of fork away from it. It keeps no state of its own.
// Programs call it.
#include <farmem/paged/paged.h>

#include "core.h"

namespace fm {

paged::paged(const paged_options& options) : core_(std::make_unique<detail::paged_core>(options)) {}

paged::~paged() { close(); }
void paged::close() noexcept {
  // In a child its threads and connections are the parent's: nothing can be ended, and nothing must be said to the
  // agents.
  if (core_ && core_->in_child()) static_cast<void>(core_.release());
  core_.reset();
}
paged::paged(paged&&) noexcept = default;
paged& paged::operator=(paged&& o) noexcept {
  if (this == &o) return *this;
  close();
  core_ = std::move(o.core_);
  return *this;
}

detail::paged_core& paged::core() const {
  if (!core_) throw error(errc::cancelled, "the range was closed, or moved from");
  core_->check_process();
  return *core_;
}

std::byte* paged::data() const noexcept { return core_ ? core_->base() : nullptr; }
std::size_t paged::size() const noexcept { return core_ ? core_->bytes() : 0; }
bool paged::contains(const void* p) const noexcept { return core_ && core_->contains(p); }
std::pmr::memory_resource* paged::resource() const noexcept { return core_ ? core_->resource() : nullptr; }

void paged::prefetch(std::span<const std::byte> some) const { core().prefetch(some); }
void paged::populate(std::span<const std::byte> some, bool for_writing) const { core().populate(some, for_writing); }
void paged::discard(std::span<std::byte> some) const { core().discard(some); }
void paged::resize_local(std::uint64_t bytes) const { core().resize_local(bytes); }
void paged::add_agent(const std::string& url) const { core().add_agent(url); }
void paged::remove_agent(const std::string& url, duration within) const { core().remove_agent(url, within); }
void paged::keep_agent(const std::string& url) const { core().keep_agent(url); }
void paged::set_replicas(std::uint32_t n) const { core().set_replicas(n); }
std::string paged::verify() const { return core().verify(); }
paged_stats paged::stats(bool histogram) const {
  if (!core_) throw error(errc::cancelled, "the range was closed, or moved from");
  return core_->stats(histogram);  // also in a child
}
void paged::evict_all() const { core().evict_all(); }
void paged::drop_connections() const noexcept {
  if (core_ && !core_->in_child()) core_->drop_connections();
}

}  // namespace fm
