// The heaps of the micro benchmarks, and marking by hand: the flag is set in a pause, as a cycle sets it (collector/snapshot.cc).
#include "fixture.h"

#include "base/base.h"
#include "collector/roots/satb_log.h"
#include <memory>

namespace fm::micro {

using namespace fm::literals;

namespace {

std::unique_ptr<fm::heap> resident, remote, collected;
std::vector<void (*)()> before_closing;

fm::heap& opened(std::unique_ptr<fm::heap>& h, const fm::heap_options& options) {
  if (!h)
    h = std::make_unique<fm::heap>(options);
  else if (!options.collect)
    collect_garbage(*h);
  return *h;
}

}  // namespace

fm::heap& resident_heap() {
  return opened(resident, {.cache = 256_MiB,
                           .local_memory = 256_MiB,
                           .name = "bench_micro resident",
                           .collect = false,
                           .background_evictor = false});
}

fm::heap& remote_heap() {
  return opened(remote, {.cache = 64_MiB,
                         .local_memory = 256_MiB,
                         .name = "bench_micro remote",
                         .collect = false,
                         .elastic = false,
                         .background_evictor = false});
}

fm::heap& collected_heap() {
  return opened(collected, {.cache = 64_MiB, .local_memory = 512_MiB, .name = "bench_micro collected"});
}

void at_close(void (*f)()) { before_closing.push_back(f); }

void close_heaps() noexcept {
  for (auto* f : before_closing) f();
  resident.reset();
  remote.reset();
  collected.reset();
}

std::vector<fm::ptr<node>> make_nodes(fm::heap& h, std::size_t n) {
  std::vector<fm::ptr<node>> nodes(n);
  for (std::size_t i = 0; i < n; ++i) {
    nodes[i] = h.make<node>({.value = i});
    if (i != 0) nodes[i].write()->next = nodes[i - 1];
  }
  return nodes;
}

void collect_garbage(fm::heap& h) {
  const fm::cycle_report r = h.collect("bench_micro");
  if (!r.ok()) throw error(r.status, "a collection failed: " + r.text());
}

marking::marking() {
  collected.reset();
  detail::satb::prepare();
  FM_CHECK(!detail::is_marking(), "no heap collects by itself now");
  FM_CHECK(detail::epochs::pause(
               std::chrono::seconds(10), [](void*) { detail::satb::begin(); }, nullptr),
           "threads could be stopped for setting the flag");
}

marking::~marking() {
  detail::satb::end();
  discard_logs();
}

void marking::discard_logs() {
  detail::satb::take(
      {}, [](detail::slot_t, void*) {}, nullptr);
}

}  // namespace fm::micro
