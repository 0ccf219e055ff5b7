// Sections of reads, and passing them: who passes waits for those that were open, no longer, and is woken by the last of them.
#include "pool/sections.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <thread>
#include <vector>

using namespace fm;
using pool_detail::sections;

namespace {
time_point soon() { return clock::now() + std::chrono::minutes(10); }
}  // namespace

TEST_CASE("passing waits for the sections that were open, and the next time for those that came meanwhile") {
  sections s;
  CHECK(s.pass(soon()));
  std::optional<sections::guard> before;
  before.emplace(s);
  CHECK_FALSE(s.pass(clock::now() + std::chrono::milliseconds(1)));
  CHECK_FALSE(s.pass(clock::now() + std::chrono::milliseconds(1)));  // still the same one
  const sections::guard after(s);
  before.reset();
  CHECK_FALSE(s.pass(clock::now() + std::chrono::milliseconds(1)));  // it turned, and waits for the second
}

TEST_CASE("what a section has seen before it was passed is not touched after that") {
  // One thread passes and then takes away what readers use; each reader looks, and looks again before it leaves.
  sections s;
  constexpr int rounds = 300;
  std::atomic<std::uint64_t> current{1};
  std::vector<std::atomic<bool>> gone(rounds + 2);
  std::atomic<bool> over{false}, wrong{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!over.load()) {
        const sections::guard inside(s);
        const std::uint64_t mine = current.load();
        if (gone[mine].load()) wrong = true;
        std::this_thread::yield();
        if (gone[mine].load()) wrong = true;
      }
    });
  bool passed = true;
  for (std::uint64_t i = 1; i <= rounds && passed; ++i) {
    current.store(i + 1);
    passed = s.pass(soon());  // a wake that was lost would cost the whole minute
    gone[i].store(true);
  }
  over = true;
  for (std::thread& t : readers) t.join();
  CHECK(passed);
  CHECK_FALSE(wrong.load());
}
