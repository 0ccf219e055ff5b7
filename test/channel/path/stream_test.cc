// Messages over a connection for each direction: order, pieces, what goes aside, waiting and waking, and a writer or reader that does
// not keep to the rules. The channels over tcp:// that go this way are in stream_channel_test.cc.
#include "channel/path/stream.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

using namespace fm;
using namespace fm::detail;
using found = byte_path_reader::found;

namespace {

constexpr std::uint64_t most = sizeof(channel_wire::head) + channel_wire::part_bytes_max;

time_point soon() { return clock::now() + std::chrono::minutes(10); }
bool never() { return false; }

struct sockets {
  sockets() {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both) == 0);
    first = os::descriptor(both[0]);
    second = os::descriptor(both[1]);
  }
  os::descriptor first, second;
};

/// One direction, both ends here. What goes through the other is nothing.
struct direction {
  direction() {
    sockets there, back;
    left = std::make_unique<stream_pair>(std::move(there.first), std::move(back.first));
    right = std::make_unique<stream_pair>(std::move(back.second), std::move(there.second));
  }
  std::unique_ptr<stream_pair> left, right;
  byte_path_writer& out() { return left->writer(); }
  byte_path_reader& in() { return right->reader(); }

  /// A message whose payload is `bytes` of a pattern that begins with `seed`; how many of them are in the room that was
  /// given for it. `lend`: of the payload some pieces lie elsewhere, until the next message.
  std::uint64_t put(std::uint32_t bytes, std::uint64_t seed, std::mt19937* lend = nullptr) {
    const std::span<std::byte> room = out().room(sizeof(channel_wire::head) + bytes, 0);
    REQUIRE(room.size() == sizeof(channel_wire::head) + bytes);
    auto h = channel_wire::make(channel_wire::kind::part, seed);
    h.bytes = bytes;
    std::memcpy(room.data(), &h, sizeof h);
    std::uint64_t used = sizeof h;
    lent.clear();
    for (std::uint32_t at = 0; at < bytes;) {
      std::vector<std::byte> piece(lend == nullptr ? bytes - at : std::min(bytes - at, 8 * (1 + some(*lend))));
      for (std::size_t i = 0; i < piece.size(); i += 8) {
        const std::uint64_t w = seed * 1'000'003 + at + i;
        std::memcpy(piece.data() + i, &w, 8);
      }
      at += static_cast<std::uint32_t>(piece.size());
      if (lend != nullptr && (*lend)() % 2 == 0 && out().lend(used, piece)) {
        lent.push_back(std::move(piece));  // where its bytes lie stays the same
        continue;
      }
      std::memcpy(room.data() + used, piece.data(), piece.size());
      used += piece.size();
    }
    return used;
  }
  static std::uint32_t some(std::mt19937& random) { return random() % (random() % 2 == 0 ? 8 : 16'384); }
  std::vector<std::vector<std::byte>> lent;
};

/// Whether these are the words of a message's payload from `at` on.
bool follow(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t at) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t w = 0;
    std::memcpy(&w, bytes.data() + i, 8);
    if (w != seed * 1'000'003 + at + i) return false;
  }
  return bytes.size() % 8 == 0;
}

/// Reads the next message as a receiver may: pieces here, to where they belong, or not to the end. Whether it is the one.
bool take(direction& d, std::uint32_t bytes, std::uint64_t seed, std::mt19937& random) {
  byte_path_reader& in = d.in();
  std::span<const std::byte> message;
  std::uint64_t rest = 0;
  const auto until = [&](auto&& some) {
    for (const time_point deadline = soon(); clock::now() < deadline;) {
      const std::uint32_t seen = in.watch();
      if (some()) return true;
      in.wait(seen, deadline);
    }
    return false;
  };
  if (!until([&] { return in.next(most, message, rest) != found::nothing; })) return false;
  channel_wire::head h;
  if (message.size() < sizeof h) return false;
  std::memcpy(&h, message.data(), sizeof h);
  if (h.number != seed || h.bytes != bytes || message.size() + rest != sizeof h + bytes) return false;
  std::uint64_t at = message.size() - sizeof h;
  if (!follow(message.subspan(sizeof h), seed, 0)) return false;
  std::vector<std::byte> place;
  while (rest != 0 && random() % 16 != 0) {
    std::span<const std::byte> piece;
    std::uint64_t n = 0;
    if (random() % 2 == 0) {
      if (!until([&] { return !(piece = in.more()).empty(); })) return false;
      n = piece.size();
    } else {
      place.assign(std::min<std::uint64_t>(rest, 8 * (1 + random() % 8192)), std::byte{});
      while (n == 0 || n % 8 != 0) {
        std::uint64_t got = 0;
        if (!until([&] { return (got = in.more_into(std::span(place).subspan(n))) != 0; })) return false;
        n += got;
      }
      piece = std::span(place).first(n);
    }
    if (!follow(piece, seed, at)) return false;
    at += n;
    rest -= n;
  }
  in.release();
  return true;
}

std::uint32_t some_size(std::mt19937& random) {
  const std::uint32_t up_to = random() % 4 == 0 ? channel_wire::part_bytes_max : random() % 2 == 0 ? 100'000 : 400;
  return random() % (up_to / 8) * 8;
}

}  // namespace

TEST_CASE("messages of any size come out of a stream as they went in, lent, in pieces, straight, or passed over") {
  direction d;
  std::atomic<bool> sent{true};
  std::thread writer([&] {
    std::mt19937 random(1);
    std::mt19937 pieces(6);
    for (std::uint64_t i = 0; i < 400; ++i) {
      const std::uint32_t bytes = some_size(random);
      sent = d.out().send(d.put(bytes, i, i % 2 == 0 ? &pieces : nullptr), soon(), never) && sent;
    }
  });
  std::mt19937 sizes(1), random(2);
  std::uint64_t good = 0;
  for (std::uint64_t i = 0; i < 400; ++i) good += take(d, some_size(sizes), i, random) ? 1 : 0;
  writer.join();
  REQUIRE(good == 400);
  REQUIRE(sent);
}

TEST_CASE("what does not go in time goes aside, and comes in its place, again and again") {
  std::mt19937 random(3);
  for (int round = 0; round < 5; ++round) {
    direction d;
    std::uint64_t number = 0, read = 0;
    for (int again = 0; again < 4; ++again) {
      std::deque<std::uint32_t> sizes;
      bool whole = true;
      while (whole && sizes.size() < 1000) {  // until the kernel takes no more
        sizes.push_back(some_size(random));
        whole = d.out().send(d.put(sizes.back(), number++, &random), clock::now(), never);
      }
      REQUIRE(!whole);
      d.lent.clear();  // a rest is whole without what was lent
      REQUIRE(!d.out().has_room(8, 0));
      REQUIRE(d.out().room(8, 0).empty());
      const bool alone = random() % 2 == 0;
      const std::uint64_t follows = alone ? 0 : sizeof(channel_wire::head) + 24;
      std::uint64_t place = 0;
      const std::span<const std::byte> rest = d.out().rest(follows, place);
      REQUIRE(!rest.empty());
      std::vector<std::byte> aside(rest.begin(), rest.end());
      if (!alone) {  // behind it a message more, which goes with it
        sizes.push_back(24);
        const std::span<std::byte> after = d.out().room(d.put(24, number++), 0);
        aside.insert(aside.end(), after.begin(), after.end());
      }
      REQUIRE(d.in().take_aside(place, std::vector(aside)));
      REQUIRE(!d.in().take_aside(place, std::vector(aside)));  // one at a time
      for (const std::uint32_t bytes : sizes) REQUIRE(take(d, bytes, read++, random));
      std::span<const std::byte> none;
      std::uint64_t left = 0;
      REQUIRE(d.in().next(most, none, left) == found::nothing);  // and what was passed over is passed
      REQUIRE(!d.in().take_aside(place, std::vector(aside)));    // that has come
    }
  }
}

TEST_CASE("a sender that waits for room is called off") {
  direction d;
  std::atomic<bool> called_off{false};
  std::uint64_t number = 0;
  while (d.out().send(d.put(100'000, number), clock::now(), never)) ++number;
  std::uint64_t place = 0;
  (void)d.out().rest(0, place);
  std::thread caller([&] {
    called_off = true;
    d.out().kick();
  });
  const bool whole = d.out().send(d.put(100'000, number), soon(), [&] { return called_off.load(); });
  const bool was_called_off = called_off;
  caller.join();
  REQUIRE(!whole);
  REQUIRE(was_called_off);
}

TEST_CASE("answers come as they are told, the last one counts, and an end is seen at both sides") {
  direction d;
  REQUIRE(d.out().answers() == part_answers{});
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    REQUIRE(d.in().answer({i, i, i, 0}));
    if (i % 7 == 0) {
      const std::uint32_t seen = d.out().watch();
      d.out().wait(seen, {}, soon());
      REQUIRE(d.out().answers() == part_answers{i, i, i, 0});
    }
  }
  std::mt19937 random(4);
  REQUIRE(d.out().send(d.put(64, 5), soon(), never));
  d.out().finish();
  REQUIRE(take(d, 64, 5, random));
  std::span<const std::byte> message;
  std::uint64_t rest = 0;
  REQUIRE(d.in().next(most, message, rest) == found::nothing);
  REQUIRE(d.in().ended_at() <= clock::now());
  d.right.reset();
  (void)d.out().answers();
  REQUIRE(d.out().answers() == part_answers{1000, 1000, 1000, 0});
  REQUIRE(d.out().ended_at() <= clock::now());
  REQUIRE(!d.out().send(d.put(64, 6), soon(), never));
}

TEST_CASE("a reader of a stream asks for no more than was agreed, and of any bytes at all makes messages or nothing") {
  {
    direction d;
    REQUIRE(d.out().send(d.put(4096, 1), soon(), never));
    std::span<const std::byte> message;
    std::uint64_t rest = 0;
    found f = found::nothing;
    while ((f = d.in().next(4000, message, rest)) == found::nothing) d.in().wait(d.in().watch(), soon());
    REQUIRE(f == found::broken);
  }
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    direction d;
    const std::size_t bytes = random() % 200'000;
    const std::span<std::byte> room = d.out().room(bytes, 0);
    for (std::byte& b : room) b = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    (void)d.out().send(bytes, clock::now(), never);
    std::uint64_t came = 0;
    for (int step = 0; step < 100; ++step) {
      std::span<const std::byte> message;
      std::uint64_t rest = 0;
      const found f = d.in().next(most, message, rest);
      if (f != found::message) break;
      REQUIRE(message.size() + rest <= most);
      came += message.size();
      for (int i = 0; i < 3; ++i) came += d.in().more().size();
      d.in().release();
    }
    REQUIRE(came <= bytes);
  }
}
