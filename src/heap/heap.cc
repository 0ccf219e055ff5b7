// fm::heap: the typed handle of a program on heap_core. Every operation that needs no type argument is here, so that
// programs do not see the cache, the collector or the sessions with agents.
#include "cache/memory/resize.h"
#include "heap/heap_core.h"
#include <farmem/heap/heap.h>

namespace fm {

namespace {

detail::heap_core& own(detail::heap_core& core) {
  if (core.is_parents())
    throw error(errc::heap_closed, "a heap of the parent is used in a child after fork, which can open its own");
  return core;
}

}  // namespace

heap::heap(const heap_options& options)
    : core_(std::make_unique<detail::heap_core>(options)), cache_(&core_->cache()) {}

heap::~heap() {
  if (core_->is_parents()) (void)core_.release();  // nothing of it can be ended here
}

heap::heap(std::unique_ptr<detail::heap_core> core) : core_(std::move(core)), cache_(&core_->cache()) {}

std::unique_ptr<heap> heap::take_over(const attach_options& which, const heap_options& options,
                                      const detail::type_descriptor& (*root)()) {
  return std::unique_ptr<heap>(new heap(detail::heap_core::attach(which, options, root)));
}

detail::slot_t heap::stored_root() const noexcept { return core_->stored_root(); }

void heap::leave(const detach_options& how, detail::slot_t root) { own(*core_).detach(how, root); }

result<std::unique_ptr<heap>> heap::open(const heap_options& options) {
  try {
    return std::make_unique<heap>(options);
  } catch (const error& e) {
    return tl::unexpected<error>(e);
  }
}

cycle_report heap::collect(std::string_view why, evacuate what) { return own(*core_).collect(why, what); }

cycle_report heap::collect_young(std::string_view why) { return own(*core_).collect_young(why); }

void heap::add_agent(const std::string& url) { own(*core_).add_agent(url); }
void heap::remove_agent(const std::string& url, duration within) { own(*core_).remove_agent(url, within); }
void heap::keep_agent(const std::string& url) { own(*core_).keep_agent(url); }
void heap::set_replicas(std::uint32_t n) { own(*core_).set_replicas(n); }
void heap::resize_cache(std::uint64_t bytes, duration within) {
  detail::resize_cache(own(*core_).cache(), bytes, clock::now() + within);
}
std::vector<std::string> heap::agents() const { return own(*core_).agents(); }
void heap::collect_soon(std::string_view why) { own(*core_).collect_soon(why); }

void heap::watch(detail::slot_t slot, std::function<void()> notice) { own(*core_).on_dead(slot, std::move(notice)); }

heap_stats heap::stats(detail_level level) { return own(*core_).stats(level); }

verify_report heap::verify() { return own(*core_).verify(); }

errc heap::evict_all(duration within) { return own(*core_).cache().evict_all(clock::now() + within); }

void heap::close() noexcept {
  if (!core_->is_parents()) core_->close();
}

std::uint64_t heap::object_bytes_max() const noexcept { return cache_->object_bytes_max(); }

}  // namespace fm
