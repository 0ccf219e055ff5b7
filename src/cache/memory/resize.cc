// Checking the new size, and evicting until the cache has it; see resize.h.
//
// Invariant: this thread takes memory from nobody. It wants a capacity, helps to evict, and waits; the evictor's steps
// take away what is available (arena::shrink).
#include "cache/memory/resize.h"
#include "cache/eviction/evictor.h"
#include "cache/memory/holders.h"
#include "cache/object_cache.h"
#include <farmem/detail/barriers/section_break.h>
#include <fmt/format.h>

#include <algorithm>

namespace fm::detail {

namespace {

void check(object_cache& cache, std::uint32_t segments, std::uint64_t bytes) {
  const arena& memory = cache.memory();
  const auto refuse = [&](const std::string& why) {
    throw error(errc::invalid_argument, fmt::format("a cache of {} bytes: {}", bytes, why));
  };
  if (segments < limits::segments_min)
    refuse(fmt::format("at least {} segments of {} bytes are needed", limits::segments_min, memory.segment_bytes()));
  if (segments > memory.capacity_most())
    refuse(fmt::format("heap_options::cache_max allows {}", memory.capacity_most() * memory.segment_bytes()));
  if (const std::uint32_t span = cache.frames().span_most(); span > 1 && segments < limits::objects_of_cache * span)
    refuse(fmt::format("the heap has had an object of {} segments of {} bytes, and {} such objects must fit", span,
                       memory.segment_bytes(), limits::objects_of_cache));
}

[[noreturn]] void throw_late(object_cache& cache, std::uint64_t bytes) {
  if (cache.closed()) throw error(errc::heap_closed, "the heap was closed while its cache was made smaller");
  const std::string is = fmt::format("the cache has {} bytes, and not {}", cache.capacity_bytes(), bytes);
  if (const errc why = cache.eviction().last_error(); why != errc::ok) cache.pressure().throw_refused(why, is);
  throw error(errc::cache_full, fmt::format("{}: nothing more could leave in time; {}", is, describe_holders(cache)));
}

}  // namespace

void resize_cache(object_cache& cache, std::uint64_t bytes, time_point deadline) {
  const section_break outside;
  section_break::require_left("changing the size of the cache");
  arena& memory = cache.memory();
  const auto segments =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / memory.segment_bytes(), ~std::uint32_t{0}));
  check(cache, segments, bytes);
  memory.set_capacity(segments);
  cache.frames().note_capacity();
  cache.give_back_pieces();
  os::nap nap(limits::memory_nap_first, limits::memory_nap_most);
  cache.leases().take_back_all();
  while (memory.is_shrinking() && memory.wanted_capacity() == segments) {
    try {
      check(cache, segments, bytes);  // who had asked for the limit before it was less makes such an object meanwhile
    } catch (...) {
      memory.stop_shrinking(segments);
      throw;
    }
    if (cache.closed() || clock::now() >= deadline) {
      memory.stop_shrinking(segments);
      throw_late(cache, bytes);
    }
    const std::uint32_t seen = memory.release_count();
    if (cache.eviction().help()) {
      nap.reset();
      continue;
    }
    cache.eviction().wake();
    memory.wait_released(seen, std::min(deadline, clock::now() + nap.next()));
    cache.leases().take_back_all();  // what threads hold in reserve keeps segments from leaving
  }
}

}  // namespace fm::detail
