// Managed arrays: what their [] and at() do past the end.
#include "containers/fixture.h"

#include <cstring>

#include "support/ended_child.h"

using namespace fm::test;

TEST_CASE("at() of an array throws past its end and names it") {
  fm::heap h(tiny());
  const fm::ptr<int[]> a = h.array<int>(3);
  const fm::write_pin pin = a.write();
  pin->at(2) = 5;
  REQUIRE((*pin)[2] == 5);
  REQUIRE(code_of([&] { (void)pin->at(3); }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { (void)a.read()->at(3); }) == fm::errc::out_of_range);
  try {
    (void)pin->at(77);
  } catch (const fm::error& e) {
    REQUIRE(std::string(e.what()).find("77 of 3") != std::string::npos);
  }
}

TEST_CASE("a handle to an array gives elements by index, as values or as roots, and throws past the end") {
  struct kept {
    std::uint64_t id = 0;
  };
  fm::heap h(tiny());
  const std::uint64_t numbers[] = {1, 2, 3};
  const auto a = h.array(std::span(numbers));
  REQUIRE(a[2] == 3);
  REQUIRE(code_of([&] { (void)a[3]; }) == fm::errc::out_of_range);
  REQUIRE(code_of([&] { (void)fm::ptr<std::uint64_t[]>()[0]; }) == fm::errc::null_handle);
  const auto refs = h.array<fm::ref<kept>>(2);
  refs.write()->at(1) = h.make<kept>({.id = 7});
  const fm::ptr<kept> root = refs[1];
  REQUIRE(refs[0] == nullptr);
  refs.write()->at(1) = nullptr;
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(h.collect().ok());
  REQUIRE(root->id == 7);
}

#if !defined(NDEBUG) && !FM_TSAN
TEST_CASE("an index past the end of an array ends a debug build, with a message") {
  const ended_child end = run_in_child([] {
    alignas(8) char memory[24] = {};  // a child has no heap: an array of two, as it lies in one
    const std::uint64_t length = 2;
    std::memcpy(memory, &length, sizeof length);
    const auto& array = *reinterpret_cast<const fm::array_object<std::uint64_t>*>(memory);
    if (array[1] != 0) return;
    std::size_t i = 2;
    asm volatile("" : "+r"(i));
    (void)!array[i];
  });
  INFO(end.text);
  CHECK(end.by_signal);
  CHECK(end.text.find("an index is past the end of an array") != std::string::npos);
}
#endif
