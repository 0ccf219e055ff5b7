// What the container tests share: heaps much smaller than what is put into them, and the check after each.
#pragma once

#include <catch2/catch.hpp>
#include <farmem/farmem.h>

#include "support/effort.h"
#include "support/error_code.h"

namespace fm::test {

using namespace fm::literals;

inline heap_options tiny(std::uint64_t cache = 2_MiB) {
  return {.cache = cache, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 64_KiB};
}

/// Sends everything home and looks at every word, frame and entry.
inline void require_sound(heap& h) {
  REQUIRE(h.evict_all() == errc::ok);
  const auto v = h.verify();
  for (const auto& m : v.messages) UNSCOPED_INFO(m);
  REQUIRE(v.ok());
}

}  // namespace fm::test
