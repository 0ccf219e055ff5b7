// fm::heap: the typed handle of a program on heap_core. Every operation that needs no type argument is here, so that
// programs do not see the cache, the collector or the sessions with agents.
#include "heap/heap_core.h"
#include <farmem/heap.h>

namespace fm {

heap::heap(const heap_options& options)
    : core_(std::make_unique<detail::heap_core>(options)), cache_(&core_->cache()) {}

heap::~heap() = default;

result<std::unique_ptr<heap>> heap::open(const heap_options& options) {
  try {
    return std::make_unique<heap>(options);
  } catch (const error& e) {
    return tl::unexpected<error>(e);
  }
}

cycle_report heap::collect(std::string_view why, evacuate what) { return core_->collect(why, what); }

cycle_report heap::collect_young(std::string_view why) { return core_->collect_young(why); }

void heap::collect_soon(std::string_view why) { core_->collect_soon(why); }

void heap::watch(detail::slot_t slot, std::function<void()> notice) { core_->on_dead(slot, std::move(notice)); }

heap_stats heap::stats(detail_level level) { return core_->stats(level); }

verify_report heap::verify() { return core_->verify(); }

errc heap::evict_all(duration within) { return cache_->evict_all(clock::now() + within); }

void heap::close() noexcept { core_->close(); }

std::uint64_t heap::object_bytes_max() const noexcept { return cache_->object_bytes_max(); }

}  // namespace fm
