// The registry: numbers, names, layouts and limits.
#include "object/registry.h"
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/error_code.h"

namespace {

using fm::errc;
using fm::detail::type_descriptor;
using fm::detail::type_kind;
using fm::detail::type_registry;

type_descriptor described(std::string name, std::uint64_t hash = 1, type_kind kind = type_kind::object) {
  return {.kind = kind,
          .bytes = 16,
          .layout_hash = hash,
          .ref_offsets = {8},
          .name = std::move(name),
          .layout = "16 bytes"};
}

using fm::test::code_of;

TEST_CASE("numbers start at 1 and count up without holes") {
  type_registry r;
  CHECK(r.count() == 0);
  CHECK(r.find(0) == nullptr);
  CHECK(r.find(1) == nullptr);
  const type_descriptor& a = r.add(described("a"));
  const type_descriptor& b = r.add(described("b"));
  CHECK(a.id == 1);
  CHECK(b.id == 2);
  CHECK(r.count() == 2);
  CHECK(r.find(1) == &a);
  CHECK(r.find(2) == &b);
  CHECK(r.find(0) == nullptr);
  CHECK(r.find(3) == nullptr);
  CHECK(r.find(type_registry::max_types) == nullptr);
  CHECK(r.find(0xffffffff) == nullptr);
}

TEST_CASE("a type registered again is the same type") {
  type_registry r;
  const type_descriptor& a = r.add(described("a"));
  CHECK(&r.add(described("a")) == &a);
  CHECK(r.count() == 1);
  const type_descriptor& array = r.add(described("a", 1, type_kind::array));
  CHECK(&array != &a);
  CHECK(array.id == 2);
}

TEST_CASE("types of a stored heap keep their numbers, and the program's own join them") {
  type_registry r;
  const type_descriptor& first = r.add(described("a"));
  const std::vector<type_descriptor> stored{described("a"), described("b"), described("c")};
  r.add_stored(stored);
  CHECK(r.count() == 3);
  CHECK(r.find(1) == &first);
  CHECK(r.add(described("c")).id == 3);
  CHECK(&r.add(described("c")) == r.find(3));
  r.add_stored(stored);
  CHECK(r.count() == 3);
  CHECK(r.add(described("d")).id == 4);
}

TEST_CASE("types of a stored heap whose numbers or layouts are others' are refused, and nothing is registered") {
  type_registry r(4);
  r.add(described("a"));
  r.add(described("b"));
  const auto refused = [&](const std::vector<type_descriptor>& stored) {
    const errc e = code_of([&] { r.add_stored(stored); });
    CHECK(r.count() == 2);
    return e;
  };
  CHECK(refused({described("b"), described("a")}) == errc::layout_mismatch);
  CHECK(refused({described("c")}) == errc::layout_mismatch);
  CHECK(refused({described("a"), described("c"), described("b")}) == errc::layout_mismatch);
  CHECK(refused({described("a", 2)}) == errc::layout_mismatch);
  CHECK(refused({described("a"), described("b"), described("c"), described("c")}) == errc::invalid_argument);
  CHECK(refused({described("a"), described("b"), described("c"), described("d"), described("e")}) == errc::too_large);
  type_descriptor bad = described("c");
  bad.ref_offsets = {4};
  CHECK(refused({described("a"), described("b"), bad}) == errc::invalid_argument);
}

TEST_CASE("another layout under a known name is a typed error that names both layouts") {
  type_registry r;
  r.add(described("shop::basket"));
  type_descriptor other = described("shop::basket", 2);
  other.layout = "some other layout";
  try {
    r.add(other);
    FAIL("accepted");
  } catch (const fm::error& e) {
    CHECK(e.code() == errc::layout_mismatch);
    CHECK_THAT(e.what(),
               Catch::Contains("shop::basket") && Catch::Contains("16 bytes") && Catch::Contains("some other layout"));
  }
  CHECK(r.count() == 1);
}

TEST_CASE("a hash that collides does not hide another layout") {
  type_registry r;
  r.add(described("a"));
  type_descriptor wider = described("a");
  wider.bytes = 24;
  CHECK(code_of([&] { r.add(wider); }) == errc::layout_mismatch);
  type_descriptor elsewhere = described("a");
  elsewhere.ref_offsets = {0};
  CHECK(code_of([&] { r.add(elsewhere); }) == errc::layout_mismatch);
}

TEST_CASE("a description that contradicts itself is refused") {
  type_registry r;
  const auto refused = [&](auto&& change) {
    type_descriptor d = described("bad");
    change(d);
    return code_of([&] { r.add(d); });
  };
  CHECK(refused([](auto& d) { d.name.clear(); }) == errc::invalid_argument);
  CHECK(refused([](auto& d) {
          d.bytes = 0;
          d.ref_offsets.clear();
        }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.bytes = type_registry::max_bytes + 1; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.kind = static_cast<type_kind>(2); }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.ref_offsets = {4}; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.ref_offsets = {16}; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.ref_offsets = {8, 0}; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.ref_offsets = {8, 8}; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.ref_offsets = {0xfffffff8}; }) == errc::invalid_argument);
  CHECK(refused([](auto& d) { d.bytes = 20; }) == errc::invalid_argument);
  CHECK(r.count() == 0);
}

TEST_CASE("when the numbers are used up, a new type is a typed error and old ones stay") {
  type_registry r(3);
  for (const char* name : {"a", "b", "c"}) r.add(described(name));
  CHECK(code_of([&] { r.add(described("d")); }) == errc::too_large);
  CHECK(r.add(described("b")).id == 2);
  CHECK(r.count() == 3);
  CHECK(r.find(4) == nullptr);
}

TEST_CASE("numbers pass the end of a block") {
  type_registry r;
  for (int i = 1; i <= 9000; ++i) r.add(described(std::to_string(i)));
  CHECK(r.count() == 9000);
  for (std::uint32_t id : {1u, 4095u, 4096u, 4097u, 8191u, 8192u, 9000u}) {
    REQUIRE(r.find(id) != nullptr);
    CHECK(r.find(id)->name == std::to_string(id));
    CHECK(r.find(id)->id == id);
  }
  CHECK(r.find(9001) == nullptr);
}

TEST_CASE("readers find every number up to the count while writers register the same types") {
  constexpr int types = 5000, writers = 3;
  type_registry r;
  std::atomic<bool> go{false};
  std::atomic<int> holes{0};
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w)
    threads.emplace_back([&, w] {
      while (!go.load(std::memory_order_acquire)) fm::detail::cpu_relax();
      for (int i = 0; i < types; ++i) r.add(described(std::to_string((i + w * 7) % types)));
    });
  threads.emplace_back([&] {
    std::uint32_t seen = 0;
    while (seen < types) {
      const std::uint32_t n = r.count();
      if (n < seen) ++holes;
      for (std::uint32_t id = seen + 1; id <= n; ++id) {
        const type_descriptor* d = r.find(id);
        if (!d || d->id != id || d->name.empty()) ++holes;
      }
      seen = n;
    }
  });
  go.store(true, std::memory_order_release);
  for (auto& t : threads) t.join();
  CHECK(holes == 0);
  CHECK(r.count() == types);
}

TEST_CASE("the process's registry is found by number") {
  const type_descriptor& d = fm::detail::register_type(described("registry_test::only_here"));
  CHECK(fm::detail::find_type(d.id) == &d);
  CHECK(fm::detail::type_count() >= d.id);
  CHECK(fm::detail::find_type(fm::detail::type_count() + 1) == nullptr);
}

}  // namespace
