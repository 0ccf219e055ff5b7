#include <farmem/farmem.h>

#include <array>
#include <catch2/catch.hpp>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <sys/mman.h>

using namespace fm::literals;

namespace {

struct pinned_record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 30> words{};
};

constexpr std::uint64_t cache_bytes = 1_MiB;

// How long an allocation waits is for the tests that want it to fail; the others are not about how fast the machine is.
fm::heap_options tiny(fm::duration memory_within = std::chrono::seconds(30)) {
  return {.cache = cache_bytes,
          .local_memory = 128_MiB,
          .local_region = 1_MiB,
          .segment = 32_KiB,
          .memory_within = memory_within};
}

// Allocates and reads several times what the cache holds.
void churn(fm::heap& h) {
  std::vector<fm::ptr<pinned_record>> all;
  for (std::uint64_t i = 0; i < 4 * cache_bytes / sizeof(pinned_record); ++i)
    all.push_back(h.make<pinned_record>({.id = i}));
  for (std::uint64_t i = 0; i < all.size(); ++i)
    if (all[i]->id != i) FAIL(i);
}

// Whether the page of an address is mapped, whatever it holds.
bool is_mapped(const void* address) {
  const auto page = reinterpret_cast<std::uintptr_t>(address) & ~std::uintptr_t{4095};
  return ::msync(reinterpret_cast<void*>(page), 1, MS_ASYNC) == 0;
}

}  // namespace

TEST_CASE("a pinned object stays at its address while the cache is churned") {
  fm::heap h(tiny());
  auto a = h.make<pinned_record>({.id = 1}), b = h.make<pinned_record>({.id = 2}),
       other = h.make<pinned_record>({.id = 3});
  const auto reading = a.read();
  const auto writing = b.write();
  const pinned_record* at_a = reading.get();
  pinned_record* at_b = writing.get();
  writing->words[0] = 17;
  for (int round = 0; round < 3; ++round) {
    churn(h);
    writing->words[1] += 1;
  }
  REQUIRE(h.stats().dropped_objects > 0);
  {
    fm::scope s;
    REQUIRE(a.get(s) == at_a);
    REQUIRE(b.get(s) == at_b);
  }
  REQUIRE(reading->id == 1);
  REQUIRE(b->words[0] == 17);
  REQUIRE(b->words[1] == 3);
}

TEST_CASE("a pin that is assigned to ends, and the one that was moved from is empty") {
  fm::heap h;
  auto a = h.make<pinned_record>({.id = 1}), b = h.make<pinned_record>({.id = 3});
  auto first = a.read(), second = b.read();
  const auto* const object = first.get();
  first = std::move(second);
  CHECK(first->id == 3);
  CHECK(second.get() == nullptr);  // NOLINT(bugprone-use-after-move): documented to be empty
  CHECK(second == nullptr);        // NOLINT(bugprone-use-after-move)
  CHECK(first != nullptr);
  const auto pins = [](const void* payload) {
    return fm::detail::frame::prefix(const_cast<char*>(static_cast<const char*>(payload))).pins.load();
  };
  CHECK(pins(object) == 0);
  CHECK(pins(first.get()) == 1);
  auto writing = a.write();
  writing = b.write();
  CHECK(pins(object) == 0);
  writing->id = 5;
  CHECK(b->id == 5);
}

TEST_CASE("what a write pin wrote is kept when the pin is gone") {
  fm::heap h(tiny());
  auto a = h.make<pinned_record>({.id = 1});
  for (std::uint64_t round = 1; round <= 3; ++round) {
    auto w = a.write();
    churn(h);  // whatever was written back before, this is newer
    w->words[5] = round;
    {
      auto moved = std::move(w);
      REQUIRE(moved->words[5] == round);
    }
    REQUIRE(h.evict_all() == fm::errc::ok);
    REQUIRE(a->words[5] == round);
  }
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("a cache full of pins refuses an allocation at its deadline, and recovers when they go") {
  constexpr auto patience = std::chrono::seconds(6);  // longer than the default, so that the option is what counts
  fm::heap h(tiny(patience));
  std::vector<fm::read_pin<pinned_record>> pins;
  fm::time_point begin;  // of the one that is refused
  try {
    for (std::uint64_t i = 0; i < 4 * cache_bytes / sizeof(pinned_record); ++i) {
      begin = fm::clock::now();
      pins.push_back(h.make<pinned_record>({.id = i}).read());
    }
    FAIL("more is pinned than the cache holds");
  } catch (const fm::error& e) {
    INFO(e.what());
    REQUIRE(e.code() == fm::errc::cache_full);
  }
  REQUIRE(fm::clock::now() - begin >= patience);
  REQUIRE(fm::clock::now() - begin < std::chrono::minutes(5));  // a guard
  REQUIRE(pins.size() > cache_bytes / sizeof(pinned_record) / 2);
  for (std::uint64_t i = 0; i < pins.size(); ++i)
    if (pins[i]->id != i) FAIL(i);
  pins.clear();
  churn(h);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("a scope that holds the whole cache is named by the error, and renewing it makes room") {
  fm::heap h(tiny(std::chrono::seconds(1)));
  std::vector<fm::ptr<pinned_record>> all;
  for (std::uint64_t i = 0; i < 4 * cache_bytes / sizeof(pinned_record); ++i)
    all.push_back(h.make<pinned_record>({.id = i}));
  REQUIRE(h.evict_all() == fm::errc::ok);
  fm::scope s("the_place.cc", 123);
  std::uint64_t refused_at = 0;
  try {
    for (; refused_at < all.size(); ++refused_at)
      if (all[refused_at].get(s)->id != refused_at) FAIL(refused_at);
    FAIL("more is held than the cache holds");
  } catch (const fm::error& e) {
    INFO(e.what());
    REQUIRE(e.code() == fm::errc::cache_full);
    REQUIRE(std::string(e.what()).find("the_place.cc:123") != std::string::npos);
  }
  REQUIRE(refused_at > 0);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    if (i % 32 == 0) s.renew();
    if (all[i].get(s)->id != i) FAIL(i);
  }
}

TEST_CASE("threads pin the same objects while others make the cache turn over") {
  fm::heap h({.cache = 2_MiB, .local_memory = 128_MiB, .local_region = 1_MiB, .segment = 32_KiB});
  std::vector<fm::ptr<pinned_record>> shared;
  for (std::uint64_t i = 0; i < 64; ++i) shared.push_back(h.make<pinned_record>({.id = i}));
  std::atomic<bool> stop{false};
  std::atomic<int> moved{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = static_cast<std::uint64_t>(t); !stop.load(); i += 7) {
        const auto& p = shared[i % shared.size()];
        const auto pin = p.read();
        fm::scope s;
        if (p.get(s) != pin.get() || pin->id != i % shared.size()) ++moved;
      }
    });
  for (int round = 0; round < 2; ++round) churn(h);
  stop = true;
  for (auto& t : threads) t.join();
  REQUIRE(moved == 0);
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.verify().ok());
}

TEST_CASE("pins that outlive their heap read what they read, and end in nobody's memory") {
  std::mutex mutex;
  std::vector<std::string> errors;
  fm::set_log_sink([&](fm::log_level level, std::string_view line) {
    const std::lock_guard lock(mutex);
    if (level == fm::log_level::error) errors.emplace_back(line);
  });
  constexpr std::uint64_t large = 8'000;  // 64 kB, of more than one segment
  std::optional<fm::read_pin<pinned_record>> reading, evicted;
  std::optional<fm::write_pin<pinned_record>> writing;
  std::optional<fm::read_pin<std::uint64_t[]>> of_array;
  std::optional<fm::vector<std::uint64_t>::iterator> at;
  {
    fm::heap h(tiny());
    auto old = h.make<pinned_record>({.id = 5});
    auto array = h.array<std::uint64_t>(large);
    array.write()->data()[large - 1] = 7;
    fm::vector<std::uint64_t> v(h);
    v.push_back(9);
    churn(h);
    evicted.emplace(old.read());
    of_array.emplace(array.read());
    reading.emplace(h.make<pinned_record>({.id = 1}).read());
    writing.emplace(h.make<pinned_record>({.id = 2}).write());
    at.emplace(v.begin());
    REQUIRE(**at == 9);
  }
  fm::set_log_sink({});
  REQUIRE(errors.size() == 1);
  REQUIRE(errors[0].find("hold 5 of its objects") != std::string::npos);
  REQUIRE((*reading)->id == 1);
  REQUIRE((*evicted)->id == 5);
  REQUIRE((*of_array)->data()[large - 1] == 7);
  REQUIRE((*writing)->id == 2);
  (*writing)->id = 4;
  fm::heap next(tiny());
  churn(next);
  REQUIRE((*writing)->id == 4);
  REQUIRE((*reading)->id == 1);
  reading.reset();
  evicted.reset();
  writing.reset();
  of_array.reset();
  at.reset();
  REQUIRE(next.verify().ok());
}

TEST_CASE("the memory of a heap whose pins have all ended goes with the heap") {
  const pinned_record* was_pinned = nullptr;
  {
    fm::heap h(tiny());
    auto p = h.make<pinned_record>({.id = 1});
    auto pin = p.read();
    was_pinned = pin.get();
    churn(h);
    h.close();
    REQUIRE(pin->id == 1);
    REQUIRE(is_mapped(was_pinned));
  }
  // The pin ended before the heap, after it was closed.
  REQUIRE_FALSE(is_mapped(was_pinned));
}
