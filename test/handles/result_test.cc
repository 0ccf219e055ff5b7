// The twins of functions that throw: what they return when all is well, and when it is not.
#include <farmem/farmem.h>

#include <catch2/catch.hpp>

using namespace fm::literals;

namespace {
struct returned {
  int value = 0;
};
}  // namespace

TEST_CASE("each function that throws has a twin that returns a result") {
  fm::heap h({.cache = 2_MiB, .local_memory = 64_MiB, .local_region = 1_MiB});
  REQUIRE(h.try_make<returned>({.value = 3}).value()->value == 3);
  REQUIRE(h.try_make<returned>().value()->value == 0);
  REQUIRE(h.try_make<returned>(4).value()->value == 4);
  REQUIRE(h.try_array<int>(5).value()[4] == 0);
  const int numbers[] = {1, 2, 3};
  REQUIRE(h.try_array(std::span(numbers)).value()[2] == 3);
  REQUIRE(h.try_array<int>(16 << 20).error().code() == fm::errc::too_large);
  REQUIRE(h.try_str("text").value() == "text");
  REQUIRE(fm::heap::open({.agents = {"nowhere://"}}).error().code() == fm::errc::unknown_scheme);

  REQUIRE(fm::pool::open({.agents = {"nowhere://"}, .name = "p", .tenant = fm::pool_tenant::random()}).error().code() ==
          fm::errc::unknown_scheme);
  const auto p = fm::pool::open({.name = "p", .tenant = fm::pool_tenant::random()});
  REQUIRE(p.has_value());

  REQUIRE(fm::paged::open({.capacity = 8_MiB, .local = 2_MiB, .agents = {"nowhere://"}}).error().code() ==
          fm::errc::unknown_scheme);
  auto range = fm::paged::open({.capacity = 8_MiB, .local = 2_MiB});
  REQUIRE(range.has_value());
  range->data()[5] = std::byte{7};
  REQUIRE(range->data()[5] == std::byte{7});

  REQUIRE(fm::channel_listener::open(h, "nowhere://").error().code() == fm::errc::unknown_scheme);
  auto listener = fm::channel_listener::open(h, "local:results");
  REQUIRE(listener.has_value());
  REQUIRE(listener->try_accept(std::chrono::milliseconds(1)).error().code() == fm::errc::timed_out);
  REQUIRE(fm::channel::try_connect(h, "local:nobody").error().code() == fm::errc::unreachable);
  auto tx = fm::channel::try_connect(h, "local:results");
  REQUIRE(tx.has_value());
  auto rx = listener->try_accept();
  REQUIRE(rx.has_value());
  REQUIRE(rx->try_recv<returned>({.within = std::chrono::milliseconds(1)}).error().code() == fm::errc::timed_out);
  REQUIRE(tx->try_send(h.make<returned>({.value = 9}), {.until = fm::delivery::sent}).has_value());
  REQUIRE(rx->try_recv<returned>().value()->value == 9);
  REQUIRE(tx->try_flush().has_value());
  REQUIRE(tx->try_send(fm::ptr<returned>()).error().code() == fm::errc::null_handle);
  rx->close();
  REQUIRE_FALSE(rx->try_recv<returned>().has_value());
}

TEST_CASE("an attempt returns what a function does, keeps its error, and lets other exceptions pass") {
  REQUIRE(fm::attempt([] { return 5; }).value() == 5);
  REQUIRE(fm::attempt([] {}).has_value());
  const auto failed = fm::attempt([]() -> int { throw fm::error(fm::errc::not_found, "it"); });
  REQUIRE(failed.error().code() == fm::errc::not_found);
  REQUIRE_THROWS_AS(fm::attempt([] { throw 7; }), int);
}

TEST_CASE("a pool and a range that were closed say so at each call, and may be closed again") {
  fm::pool p({.name = "p", .tenant = fm::pool_tenant::random()});
  auto at = p.alloc(std::uint64_t{5});
  auto address = at.address();
  fm::pool_cursor cursor;
  p.close();
  p.close();
  CHECK(p.try_alloc_bytes(std::as_bytes(std::span("text"))).error().code() == fm::errc::cancelled);
  CHECK(p.try_read(at).error().code() == fm::errc::cancelled);
  CHECK(p.try_free(address).error().code() == fm::errc::cancelled);
  CHECK(p.try_read_versioned(at).error().code() == fm::errc::cancelled);
  CHECK(p.try_list(cursor).error().code() == fm::errc::cancelled);
  CHECK(p.try_bind("name", address).error().code() == fm::errc::cancelled);
  CHECK(p.try_lookup<std::uint64_t>("name").error().code() == fm::errc::cancelled);
  CHECK(fm::attempt([&] { return p.stats(); }).error().code() == fm::errc::cancelled);
  CHECK(fm::attempt([&] { return p.verify(); }).error().code() == fm::errc::cancelled);
  CHECK(std::string(p.try_free(address).error().what()).find("the pool was closed") != std::string::npos);

  fm::paged range({.capacity = 8_MiB, .local = 2_MiB});
  fm::paged other({.capacity = 8_MiB, .local = 2_MiB});
  const std::byte* const freed = range.data();
  range = std::move(other);
  CHECK(other.data() == nullptr);  // NOLINT(bugprone-use-after-move): documented to be empty
  CHECK(range.data() != freed);
  range.close();
  range.close();
  CHECK(range.data() == nullptr);
  CHECK(range.size() == 0);
  CHECK(fm::attempt([&] { range.evict_all(); }).error().code() == fm::errc::cancelled);
  CHECK(fm::attempt([&] { return range.stats(); }).error().code() == fm::errc::cancelled);
}
