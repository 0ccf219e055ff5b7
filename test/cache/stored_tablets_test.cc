// Tablets whose numbers a stored heap fixes: they are taken where they are free, and not otherwise.
#include "table/table.h"
#include <catch2/catch.hpp>

#include "support/error_code.h"

using namespace fm::detail;
using fm::errc;
using fm::test::code_of;

namespace {

bool is_free(std::uint32_t tablet) {
  if (code_of([&] { take_stored_tablets(nullptr, tablet, 1); }) != errc::ok) return false;
  give_back_tablets(tablet, 1);
  return true;
}

}  // namespace

TEST_CASE("tablets of a stored heap are taken before, between and beyond those in use") {
  reserve_hit(0);
  const std::uint32_t used = take_tablets(nullptr, 0, 1);
  take_stored_tablets(nullptr, used + 10, 5);
  CHECK(is_free(used + 1));
  CHECK(is_free(used + 9));
  CHECK_FALSE(is_free(used + 10));
  CHECK_FALSE(is_free(used + 14));
  CHECK(is_free(used + 15));
  CHECK_FALSE(is_free(used));
  // Between them, in three pieces.
  take_stored_tablets(nullptr, used + 4, 2);
  CHECK(is_free(used + 3));
  CHECK(is_free(used + 6));
  CHECK(code_of([&] { take_stored_tablets(nullptr, used + 1, 4); }) == errc::slots_exhausted);
  CHECK(code_of([&] { take_stored_tablets(nullptr, used + 6, 5); }) == errc::slots_exhausted);
  CHECK(is_free(used + 6));
  take_stored_tablets(nullptr, used + 1, 3);
  take_stored_tablets(nullptr, used + 6, 4);
  // Another heap's next ones are beyond all of them.
  const std::uint32_t next = take_tablets(nullptr, 0, 2);
  CHECK(next >= used + 15);
  give_back_tablets(next, 2);
  give_back_tablets(used + 1, 14);
  // And all of it at once, with some that were never used.
  take_stored_tablets(nullptr, used + 1, 40);
  give_back_tablets(used + 1, 40);
  give_back_tablets(used, 1);
}

TEST_CASE("tablets beyond the table, and tablet 0, are no stored heap's") {
  reserve_hit(0);
  const auto all = static_cast<std::uint32_t>(hit.slots / tablet_slots);
  CHECK(code_of([&] { take_stored_tablets(nullptr, all, 1); }) == errc::slots_exhausted);
  CHECK(code_of([&] { take_stored_tablets(nullptr, all - 1, 2); }) == errc::slots_exhausted);
  CHECK(code_of([&] { take_stored_tablets(nullptr, 0, 1); }) == errc::slots_exhausted);
}
