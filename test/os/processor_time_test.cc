// The processor time that a process asks for: what it ran, and what it waited for.
#include "os/processor_time.h"

#include <catch2/catch.hpp>

#include "base/base.h"
#include "support/await.h"

#include <atomic>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

TEST_CASE("a thread that works is seen in the time that the process ran") {
  const auto before = fm::os::processor_times_of_process();
  const fm::time_point begun = fm::clock::now();
  std::uint64_t ran = 0;
  REQUIRE(fm::test::await([&] {
    ran = fm::os::processor_times_of_process().ran_ns - before.ran_ns;
    return ran > 10'000'000;
  }));
  const auto processors = static_cast<double>(std::thread::hardware_concurrency());
  CHECK(static_cast<double>(ran) <= 1.1 * processors * static_cast<double>((fm::clock::now() - begun) / 1ns));
}

TEST_CASE("threads that want more than there is are seen to wait, where the kernel tells") {
  if (fm::os::processor_times_of_process().waited_ns == 0)
    SUCCEED("no scheduler statistics");
  else {
    const auto n = 4 * static_cast<std::size_t>(std::max(1.0, fm::os::usable_processors()));
    std::atomic<bool> over{false};
    std::vector<std::thread> all;
    for (std::size_t i = 0; i < n; ++i)
      all.emplace_back([&] {
        while (!over.load(std::memory_order_relaxed)) {
        }
      });
    const auto before = fm::os::processor_times_of_process();
    CHECK(fm::test::await(
        [&] { return fm::os::processor_times_of_process().waited_ns > before.waited_ns + 20'000'000; }));
    over = true;
    for (std::thread& t : all) t.join();
  }
}

TEST_CASE("a process may use some processors, and not more than there are") {
  CHECK(fm::os::usable_processors() > 0);
  CHECK(fm::os::usable_processors() <= static_cast<double>(std::thread::hardware_concurrency()));
}
