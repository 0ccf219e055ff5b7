// Messages through memory that two sides share: order, room, waiting and waking, and a writer or reader that does not keep to the rules.
#include "channel/path/ring.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

using namespace fm;
using detail::part_answers;
using detail::ring_pair;
using detail::ring_place;
using detail::ring_reader;
using detail::ring_reserve;
using detail::ring_shared;
using detail::ring_writer;
using found = ring_reader::found;

namespace {

time_point soon() { return clock::now() + std::chrono::minutes(10); }

/// One direction in memory of the test's own.
struct ring {
  explicit ring(std::uint64_t size) : data(size / 8), place{&shared, reinterpret_cast<std::byte*>(data.data()), size} {}
  ring_shared shared;
  std::vector<std::uint64_t> data;
  ring_place place;
  ring_writer writer{place};
  ring_reader reader{place};

  bool put(std::uint64_t bytes, int value, std::uint64_t reserve = 0) {
    const std::span<std::byte> room = writer.room(bytes, reserve);
    if (room.empty()) return false;
    std::memset(room.data(), value, bytes);
    writer.publish(bytes);
    return true;
  }
  /// The next message is so many bytes of `value`.
  bool take(std::uint64_t bytes, int value) {
    std::span<const std::byte> m;
    if (reader.next(1 << 20, m) != found::message || m.size() != bytes) return false;
    bool same = true;
    for (const std::byte b : m) same = same && b == static_cast<std::byte>(value);
    reader.release();
    return same;
  }
  found look() {
    std::span<const std::byte> m;
    return reader.next(1 << 20, m);
  }
};

}  // namespace

TEST_CASE("messages of any size come out of a ring as they went in, round after round") {
  ring r(4096);
  std::mt19937 random(1);
  std::deque<std::pair<std::uint64_t, int>> there;
  std::uint64_t rounds = 0, full = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = 1 + random() % (random() % 8 == 0 ? 2000 : 100);
    if (r.put(bytes, i & 0xff)) {
      there.emplace_back(bytes, i & 0xff);
      rounds += bytes;
    } else {
      ++full;
      REQUIRE(!there.empty());  // an empty ring has room for less than its half
    }
    while (!there.empty() && (random() % 3 != 0 || there.size() > 40)) {
      REQUIRE(r.take(there.front().first, there.front().second));
      there.pop_front();
    }
  }
  for (const auto& [bytes, value] : there) REQUIRE(r.take(bytes, value));
  REQUIRE(r.look() == found::nothing);
  CHECK(rounds > 100 * 4096);
  CHECK(full > 10);
}

TEST_CASE("what is kept in reserve is there when ordinary messages have no room left") {
  constexpr std::uint64_t reserve = 4096;
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    ring r(64 << 10);
    for (std::uint64_t skip = random() % 200; skip != 0; --skip) {  // anywhere in the ring
      REQUIRE(r.put(700, 1));
      REQUIRE(r.take(700, 1));
    }
    const std::uint64_t bytes = 1 + random() % 9000;
    std::size_t n = 0;
    while (r.put(bytes, 2, reserve)) ++n;
    REQUIRE(n != 0);
    REQUIRE_FALSE(r.writer.has_room(bytes, reserve));
    REQUIRE(r.put(2000, 3, 0));
    for (; n != 0; --n) REQUIRE(r.take(bytes, 2));
    REQUIRE(r.take(2000, 3));
  }
}

TEST_CASE("a reader that keeps up leaves a ring in its first quarter, and one that does not gets all of it") {
  ring r(64 << 10);
  const auto* const begin = reinterpret_cast<const std::byte*>(r.data.data());
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(r.put(1000, i & 0xff));
    std::span<const std::byte> m;
    REQUIRE(r.reader.next(1 << 20, m) == found::message);
    CHECK(m.data() < begin + (16 << 10) + 1024);
    REQUIRE(r.take(1000, i & 0xff));
  }
  std::size_t n = 0;
  while (r.put(1000, 7)) ++n;
  CHECK(n == 64);
  for (; n != 0; --n) REQUIRE(r.take(1000, 7));
}

TEST_CASE("a message stays where it is until it is released") {
  ring r(960);
  REQUIRE(r.put(500, 1));
  std::span<const std::byte> m, again;
  REQUIRE(r.reader.next(1000, m) == found::message);
  REQUIRE(r.reader.next(1000, again) == found::message);
  CHECK(again.data() == m.data());
  CHECK_FALSE(r.put(500, 2));
  CHECK(m.front() == std::byte{1});
  r.reader.release();
  CHECK(r.put(400, 2));
}

TEST_CASE("a writer that does not keep to the rules is found out before anything is used") {
  const auto broken = [](auto&& spoil) {
    ring r(4096);
    for (int i = 0; i < 5; ++i) {
      REQUIRE(r.put(700, i));
      REQUIRE(r.take(700, i));
    }
    REQUIRE(r.put(100, 9));
    spoil(r);
    return r.look() == found::broken;
  };
  // Five records of 768 were written before; the fifth at the beginning, because the ring was empty and that far on.
  const std::uint64_t at = 5 * 768;
  const auto size = [](ring& r) -> std::uint64_t& { return r.data[768 / 8]; };
  CHECK_FALSE(broken([](ring&) {}));
  CHECK(broken([&](ring& r) { size(r) = 0; }));
  CHECK(broken([&](ring& r) { size(r) = 200; }));  // more than was written
  CHECK(broken([&](ring& r) { size(r) = 1 << 21; }));
  CHECK(broken([&](ring& r) { size(r) = ~std::uint64_t{0} - 7; }));
  CHECK(broken([&](ring& r) { size(r) = ~std::uint64_t{0}; }));  // passed over, and nothing after it
  CHECK(broken([&](ring& r) { r.shared.again = at; }));          // goes on at the beginning, with more than was written
  CHECK(broken([&](ring& r) { r.shared.written = at + 64 + 1; }));
  CHECK(broken([&](ring& r) { r.shared.written = at + 8192; }));
  CHECK(broken([&](ring& r) { r.shared.written = 64; }));  // before what was taken
  CHECK(broken([&](ring& r) {
    r.shared.written = at + 3520;  // a record over the end of the ring
    size(r) = 3400;
  }));
}

TEST_CASE("a reader that does not keep to the rules gets nothing, and is found out") {
  ring r(4096);
  REQUIRE(r.put(700, 1));
  CHECK_FALSE(r.writer.broken());
  const std::uint64_t good = r.shared.taken;
  for (const std::uint64_t bad : {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{832}}) {
    r.shared.taken = good + bad;
    CHECK(r.writer.broken());
    if (bad % 64 == 0) CHECK_FALSE(r.writer.has_room(1, 0));
  }
  r.shared.taken = good;
  CHECK(r.put(700, 2));
}

TEST_CASE("who waits on a ring is woken, by messages, by answers and by its own side") {
  ring_pair mine(64 << 10);
  ring_pair theirs(ring_pair::mapped(::dup(mine.fd()), 64 << 10), 64 << 10);
  constexpr int count = 20'000;
  bool right = true;
  std::thread reader([&] {
    for (int i = 0; i < count && right;) {
      std::span<const std::byte> m;
      const std::uint32_t seen = theirs.in.watch();
      const found f = theirs.in.next(4096, m);
      if (f == found::nothing) {
        theirs.in.wait(seen, soon());
        continue;
      }
      int value = -1;
      right = f == found::message && m.size() == sizeof value + static_cast<std::size_t>(i) % 3000;
      std::memcpy(&value, m.data(), sizeof value);
      right = right && value == i;
      theirs.in.release();
      ++i;
      theirs.in.answer({static_cast<std::uint64_t>(i) * 10, static_cast<std::uint64_t>(i), 0, 0});
    }
  });
  std::mt19937 random(3);
  int sent = 0;
  const time_point until = soon();
  while (sent < count && clock::now() < until) {
    const std::size_t bytes = sizeof sent + static_cast<std::size_t>(sent) % 3000;
    const std::uint32_t seen = mine.out.watch();
    const part_answers before = mine.out.answers();
    const std::span<std::byte> room = mine.out.room(bytes, ring_reserve);
    if (room.empty()) {
      mine.out.wait(seen, before, soon());
      continue;
    }
    std::memcpy(room.data(), &sent, sizeof sent);
    mine.out.publish(bytes);
    ++sent;
    if (random() % 64 == 0) {  // both sides wait now and then
      const auto all = static_cast<std::uint64_t>(sent);
      for (;;) {
        const std::uint32_t at = mine.out.watch();
        const part_answers a = mine.out.answers();
        if (a.parts == all || clock::now() >= until) break;
        mine.out.wait(at, a, soon());
      }
    }
  }
  reader.join();
  REQUIRE(right);
  REQUIRE(sent == count);
  CHECK(mine.out.answers().parts == static_cast<std::uint64_t>(count));
  CHECK(mine.out.answers().bytes == static_cast<std::uint64_t>(count) * 10);

  const time_point begin = clock::now();
  std::thread kicked([&] { mine.in.wait(mine.in.watch(), soon()); });
  std::atomic<bool> over{false};
  std::thread kicker([&] {
    while (!over.load()) mine.kick();
  });
  kicked.join();
  over = true;
  kicker.join();
  CHECK(clock::now() - begin < std::chrono::minutes(5));
  theirs.in.wait(theirs.in.watch(), clock::now() + std::chrono::milliseconds(1));  // ends at its deadline
}

TEST_CASE("memory that is not a ring's is refused") {
  const ring_pair mine(64 << 10);
  const auto refused = [](int fd, std::uint64_t bytes) {
    try {
      const fm::os::memory_file m = ring_pair::mapped(fd, bytes);
      return false;
    } catch (const error& e) {
      return e.code() == errc::invalid_argument;
    }
  };
  CHECK(refused(::dup(mine.fd()), 128 << 10));
  CHECK(refused(::dup(mine.fd()), 32 << 10));
  CHECK(refused(::dup(0), 64 << 10));
}
