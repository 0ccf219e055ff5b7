// Credits of lanes whose receive buffers are one shared queue: nobody has a credit without a buffer, and nobody starves.
#include "fabric/verbs/device/lane_credits.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <random>

using fm::fabric::verbs::lane_credits;

namespace {

constexpr std::uint32_t most = 60, minimum = lane_credits::minimum, shared = lane_credits::shared;

/// Senders, the two directions of every lane's connection, and the receiver's buffers as a device has them.
class network {
 public:
  explicit network(std::uint32_t lanes) : credits(lanes, most), posted(lane_credits::buffers(lanes)), all(lanes) {}

  struct lane {
    std::uint32_t has = minimum;  ///< credits, with the sender
    std::uint64_t sent = 0, handled = 0;
    std::uint32_t waiting = 0;     ///< taken off the connection, their buffers not posted again
    std::deque<bool> to_receiver;  ///< true: a `credit` packet
    struct told {
      bool by_credit_packet;
      std::uint32_t credits;
    };
    std::deque<told> to_sender;
    [[nodiscard]] auto credit_packets_to_sender() const {
      return std::count_if(to_sender.begin(), to_sender.end(), [](const told& t) { return t.by_credit_packet; });
    }
  };

  // Each step says whether it could be made.
  bool send(std::uint32_t i) {
    lane& l = all[i];
    if (l.has == 0) return false;
    --l.has;
    ++l.sent;
    take_buffer();
    l.to_receiver.push_back(false);
    return true;
  }
  bool send_credit_packet(std::uint32_t i) {
    lane& l = all[i];
    if (std::count(l.to_receiver.begin(), l.to_receiver.end(), true) == lane_credits::aside) return false;
    take_buffer();
    l.to_receiver.push_back(true);
    return true;
  }
  bool arrive(std::uint32_t i) {
    lane& l = all[i];
    if (l.to_receiver.empty()) return false;
    if (l.to_receiver.front()) {
      ++posted;
    } else {
      if (!credits.arrived(i)) FAIL("a packet without a credit");
      ++l.waiting;
    }
    l.to_receiver.pop_front();
    return true;
  }
  bool handle(std::uint32_t i, bool answered) {
    lane& l = all[i];
    if (l.waiting == 0) return false;
    --l.waiting;
    ++l.handled;
    ++posted;
    credits.posted_again(i);
    if (answered) l.to_sender.push_back({false, credits.tell(i, false)});
    return true;
  }
  bool return_credits(std::uint32_t i) {
    lane& l = all[i];
    if (!credits.wants_packet(i)) return false;
    l.to_sender.push_back({true, credits.tell(i, true)});
    if (l.credit_packets_to_sender() > 2) FAIL("a third credit packet on its way");
    return true;
  }
  bool learn(std::uint32_t i) {
    lane& l = all[i];
    if (l.to_sender.empty()) return false;
    l.has += l.to_sender.front().credits;
    l.to_sender.pop_front();
    if (l.has > most) FAIL("more credit than one lane may have");
    return true;
  }
  /// Everything that can happen without a packet more.
  void settle(std::uint32_t i) {
    while (arrive(i)) {
    }
    while (handle(i, false)) {
    }
    while (return_credits(i)) {
      while (learn(i)) {
      }
    }
  }
  void check() const {
    if (!credits.sound()) FAIL("the books are wrong");
    std::uint32_t out = 0, on_the_way = 0;
    for (const lane& l : all) {
      out += l.has;
      for (const auto& t : l.to_sender) out += t.credits;
      on_the_way += std::uint32_t(std::count(l.to_receiver.begin(), l.to_receiver.end(), true));
    }
    if (out + std::uint32_t(all.size()) * lane_credits::aside > posted + on_the_way) FAIL("a credit without a buffer");
  }

  lane_credits credits;
  std::uint32_t posted;
  std::vector<lane> all;

 private:
  void take_buffer() {
    if (posted == 0) FAIL("receiver not ready");
    --posted;
  }
};

/// A lane that sends whenever it can, `rounds` times over.
void keep_busy(network& n, std::uint32_t i, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    while (n.send(i)) {
    }
    n.settle(i);
    n.check();
  }
}

}  // namespace

TEST_CASE("a session of four lanes has less than half the buffers that its lanes would have by themselves") {
  STATIC_REQUIRE(lane_credits::buffers(4) == 104);
  STATIC_REQUIRE(lane_credits::buffers(4) * 2 < 4 * 64);
}

TEST_CASE("a packet that nobody gave a credit for is noticed") {
  lane_credits c(3, most);
  for (std::uint32_t i = 0; i < minimum; ++i) REQUIRE(c.arrived(1));
  CHECK_FALSE(c.arrived(1));
  CHECK(c.arrived(2));
}

TEST_CASE("a lane that uses its credits gets shared ones, and leaves some") {
  network n(4);
  keep_busy(n, 2, 100);
  CHECK(n.credits.claim(2) >= minimum + shared * 3 / 4 - 1);
  CHECK(n.credits.claim(2) <= minimum + shared * 3 / 4 + 1);
  CHECK(n.credits.claim(0) == minimum);
}

TEST_CASE("lanes that are busy at the same time come to equal shares, whoever began") {
  network n(4);
  keep_busy(n, 0, 100);
  for (int round = 0; round < 200; ++round)
    for (std::uint32_t i = 0; i < 3; ++i) keep_busy(n, i, 1);
  for (std::uint32_t i = 0; i < 3; ++i) {
    INFO(i << " has " << n.credits.claim(i));
    CHECK(n.credits.claim(i) >= minimum + shared * 3 / 10 - 3);  // x = 3 (shared - 3 x)
    CHECK(n.credits.claim(i) <= minimum + shared * 3 / 10 + 3);
  }
}

TEST_CASE("a lane that needs its shared credits no longer gives them back with what it sends") {
  network n(4);
  keep_busy(n, 1, 100);
  REQUIRE(n.credits.claim(1) > minimum);
  for (std::uint32_t packet = 0; packet < 16 * lane_credits::period; ++packet) {  // one at a time, each answered
    REQUIRE(n.send(1));
    REQUIRE(n.arrive(1));
    REQUIRE(n.handle(1, true));
    REQUIRE(n.learn(1));
    n.check();
  }
  CHECK(n.credits.claim(1) <= minimum + 2);
}

TEST_CASE("a lane that others leave its minimum gets any number of packets through") {
  network n(66);
  for (std::uint32_t i = 1; i < 66; ++i) keep_busy(n, i, 20);
  keep_busy(n, 0, 200);
  CHECK(n.all[0].handled >= 200 * minimum);
}

TEST_CASE("whatever the order of things, a credit has its buffer and every lane goes on") {
  const char* const given = std::getenv("FARMEM_SEED");
  const auto seed = std::uint32_t(given != nullptr ? std::strtoul(given, nullptr, 10) : 7);
  for (std::uint32_t run = 0; run < 24; ++run) {
    std::minstd_rand random(seed + run);
    const auto below = [&](std::uint32_t n) { return std::uint32_t(random() % n); };
    constexpr std::uint32_t sizes[] = {3, 4, 9, 66};
    const std::uint32_t lanes = sizes[run % 4];
    INFO("FARMEM_SEED=" << seed << ", run " << run);
    network n(lanes);
    const std::uint32_t busy = 1 + below(lanes);  // the others send little
    for (int step = 0; step < 3000; ++step) {
      const std::uint32_t i = below(4) != 0 ? below(busy) : below(lanes);
      switch (below(8)) {
        case 0:
        case 1:
          for (std::uint32_t burst = below(i < busy ? 40 : 2) + 1; burst != 0 && n.send(i); --burst) {
          }
          break;
        case 2: n.send_credit_packet(i); break;
        case 3:
          for (std::uint32_t some = below(32) + 1; some != 0 && n.arrive(i); --some) {
          }
          break;
        case 4:
          for (std::uint32_t some = below(32) + 1; some != 0 && n.handle(i, below(3) == 0); --some) {
          }
          break;
        case 5:
        case 6: n.return_credits(i); break;
        default: n.learn(i);
      }
      n.check();
    }
    for (std::uint32_t i = 0; i < lanes; ++i) {  // one lane after the other, while the rest stays as it is
      const std::uint64_t before = n.all[i].handled;
      for (int rounds = 0; rounds < 10; ++rounds) {
        n.settle(i);
        while (n.learn(i)) {
        }
        while (n.send(i)) {
        }
      }
      n.settle(i);
      n.check();
      if (n.all[i].handled < before + 10 * (minimum / 2)) FAIL("lane " << i << " starves");
    }
  }
}
