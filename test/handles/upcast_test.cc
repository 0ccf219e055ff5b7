// Handles to what an object begins with: the object stays what it is, through evictions and collections, and a cast leads
// back.
#include <farmem/farmem.h>

#include <catch2/catch.hpp>

#include "support/error_code.h"

using namespace fm::literals;

namespace {

struct shape {
  std::uint64_t id = 0;
  fm::ref<shape> next;
};
struct polygon {
  shape base;
  std::uint32_t corners = 0;
};
struct square {
  polygon base;
  double side = 0;
  fm::ref<fm::string> name;
};
struct not_first {
  int before = 0;
  shape base;
};
struct closed {
  shape base;
  static auto fm_fields(auto& self) { return std::tie(self.base); }
};

static_assert(fm::detail::begins_with<polygon, shape>());
static_assert(fm::detail::begins_with<square, shape>());
static_assert(fm::detail::begins_with<square, polygon>());
static_assert(!fm::detail::begins_with<shape, shape>());
static_assert(!fm::detail::begins_with<shape, polygon>());
static_assert(!fm::detail::begins_with<not_first, shape>());
static_assert(!fm::detail::begins_with<closed, shape>());
static_assert(!std::is_convertible_v<fm::ptr<square>, fm::ptr<shape>>);

fm::heap_options small() { return {.cache = 1_MiB, .local_memory = 64_MiB, .local_region = 1_MiB, .segment = 32_KiB}; }

}  // namespace

TEST_CASE("an upcast handle reads and writes what the object begins with, and a cast leads back") {
  fm::heap h(small());
  const auto s = h.make<square>({.base = {.base = {.id = 5}, .corners = 4}, .side = 2.5, .name = h.str("square")});
  const fm::ptr<shape> p = fm::upcast<shape>(s);
  REQUIRE(p->id == 5);
  p.write()->id = 6;
  p.write()->next = p;
  REQUIRE(h.evict_all() == fm::errc::ok);
  REQUIRE(s->base.base.id == 6);
  REQUIRE(s->side == 2.5);
  REQUIRE(fm::string(s->name) == "square");
  REQUIRE(s->base.base.next == p);
  REQUIRE(fm::type_of(p).bytes == sizeof(square));
  REQUIRE(fm::cast<square>(p) == s);
  REQUIRE(fm::as<square>(p)->side == 2.5);
  REQUIRE(fm::cast<polygon>(p) == nullptr);  // it is a square, whatever that begins with
  REQUIRE(fm::upcast<shape>(fm::upcast<polygon>(s)) == p);
  REQUIRE(fm::upcast<shape>(fm::ptr<square>()) == nullptr);
  const fm::ptr<const square> reads = s;
  const fm::ptr<const shape> also_reads = fm::upcast<shape>(reads);
  REQUIRE(also_reads == p);
  REQUIRE(fm::test::code_of([&] { (void)fm::as<polygon>(p); }) == fm::errc::wrong_type);
}

TEST_CASE("a list of several types by what they begin with lives on, and all of each object does") {
  fm::heap h(small());
  fm::ptr<shape> head;
  constexpr std::uint64_t n = 3'000;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i % 2 == 0)
      head = fm::upcast<shape>(h.make<polygon>({.base = {.id = i, .next = head}, .corners = std::uint32_t(i)}));
    else
      head = fm::upcast<shape>(
          h.make<square>({.base = {.base = {.id = i, .next = head}, .corners = 4}, .name = h.str(std::to_string(i))}));
  }
  for (int round = 0; round < 2; ++round) {
    REQUIRE(h.evict_all() == fm::errc::ok);
    const auto r = h.collect("test");
    REQUIRE(r.ok());
    REQUIRE(r.marked == n + n / 2);
    std::uint64_t i = n;
    for (fm::ptr<shape> at = head; at; at = at->next) {
      REQUIRE(at->id == --i);
      if (const auto s = fm::cast<square>(at))
        REQUIRE(fm::string(s->name) == std::to_string(i));
      else
        REQUIRE(fm::as<polygon>(at)->corners == i);
    }
    REQUIRE(i == 0);
  }
}

TEST_CASE("a channel refuses an object that only begins with the type of its field") {
  fm::heap from(small()), to(small());
  fm::channel_listener listener(to, "local:upcast-test");
  fm::channel sender = fm::channel::connect(from, listener.url());
  const fm::channel receiver = listener.accept();
  const auto s = from.make<square>({.base = {.base = {.id = 5}}});
  REQUIRE(fm::test::code_of([&] { sender.send(fm::upcast<shape>(s)); }) == fm::errc::corrupt);
}
