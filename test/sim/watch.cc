#include "watch.h"

#include "table/table.h"

#include <cstdio>
#include <cstdlib>

#include "scheduler.h"

namespace fm::sim {

const volatile void* watched = nullptr;

void show_watched(std::uint64_t is, const void* caller) noexcept {
  std::fprintf(stderr, "%12llu ns, thread %s: %016llx at %p\n", static_cast<unsigned long long>(so_far().at),
               thread_text().c_str(), static_cast<unsigned long long>(is), caller);
}

void watch_as_asked() {
  if (const char* slot = std::getenv("FARMEM_SIM_WATCH")) watched = &detail::word_at(std::strtoull(slot, nullptr, 0));
}

}  // namespace fm::sim
