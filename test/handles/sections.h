// What tests look at while threads wait: whether their sections are left, and what they are about to reach.
#pragma once

#include <farmem/farmem.h>

#include "support/await.h"

namespace handles_test {

/// Whether some thread waits for that slot, which is then a root.
inline bool is_about_to_reach(fm::detail::slot_t slot) {
  struct looked {
    fm::detail::slot_t slot;
    bool found = false;
  } look{slot};
  fm::detail::epochs::for_each_thread(
      [](fm::detail::thread_state& t, void* l) {
        auto& out = *static_cast<looked*>(l);
        out.found = out.found || t.waits_for.load() == out.slot;
      },
      &look);
  return look.found;
}

/// Whether all sections that are open now have been left, sooner or later.
inline bool sections_end() {
  const std::uint64_t stamp = fm::detail::epochs::stamp();
  return fm::test::await([&] { return fm::detail::epochs::try_pass(stamp); });
}

/// In braces, so that the first is evaluated first; what it reads in place stays open for the second.
struct both {
  std::uint64_t first, second;
};
inline std::uint64_t sum(both b) { return b.first + b.second; }

}  // namespace handles_test
