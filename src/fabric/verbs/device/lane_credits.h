// How many packets each of a session's lanes may send, when their receive buffers are one shared queue. Bookkeeping
// only; by the listener's thread alone.
//
// A lane begins with `minimum` credits. It gets each packet's credit back when the buffer is posted again. As long as
// it is short of credit, it also gets one more from the shared ones, until it has `share` times as many from there as
// are left there. So lanes that are busy at the same time come to equal shares, and there is always something left for
// one that becomes busy. If a lane never had less than the minimum unspent in `period` packets, it does not get all of
// the next ones' credits back: those that it did not need go back to the shared ones. A lane that sends nothing keeps
// what it has; nothing is ever demanded back.
//
//   held   credits that the sender has, or that are on their way to it
//   taken  packets that have come whose buffers are not posted again
//   owed   credits that the sender is to be told of
//   claim  = held + taken + owed
//
// Invariants
//   - minimum <= claim <= most, when no packet is being dealt with. So no lane starves, and a message of any length
//     goes on.
//   - The sum of claim - minimum over all lanes is at most `shared`. There are minimum + aside buffers for each lane,
//     and `shared` ones; taken ones are not posted. So
//         posted = buffers - sum of taken >= sum of held + aside for each lane:
//     a sender that has a credit has a buffer, and receiver-not-ready never happens.
//   - If a lane's sender has no credit, the lane is owed its whole claim, unless packets of it wait to be dealt with.
//     Owing half of it is enough for a `credit` packet. So the sender is never left waiting.
//   - At most two `credit` packets are on their way to a sender, which has buffers aside for them. A third one goes
//     only when the sender has spent more than it was told of before the first.
//   - The sender's own `credit` packets are two at most, since it sends one for each half of a fixed number of credits.
//     `aside` buffers are for them.
#pragma once

#include "base/base.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace fm::fabric::verbs {

class lane_credits {
 public:
  static constexpr std::uint32_t minimum = 8;
  static constexpr std::uint32_t aside = 2;
  static constexpr std::uint32_t shared = 64;
  static constexpr std::uint32_t share = 3;  ///< a lane may have so many times what is left of them

  static constexpr std::uint32_t period = 64;

  /// `most`: that one lane may have, as the sender checks it.
  lane_credits(std::uint32_t lanes, std::uint32_t most) : most_(most), lanes_(lanes) {
    FM_CHECK(most >= minimum, "a lane may have its minimum");
  }
  [[nodiscard]] static constexpr std::uint32_t buffers(std::uint32_t lanes) noexcept {
    return lanes * (minimum + aside) + shared;
  }

  /// A packet that costs a credit has come, and took a buffer. False: its sender had none.
  [[nodiscard]] bool arrived(std::uint32_t lane) noexcept {
    account& a = lanes_[lane];
    if (a.held == 0) return false;
    --a.held;
    ++a.taken;
    ++a.spent;
    a.short_of_credit = a.held < claim(a) / 2;
    a.least = std::min(a.least, a.held);
    if (a.spent % period == 0) {
      a.unneeded = a.least > minimum ? (a.least - minimum + 1) / 2 : 0;
      a.least = most_;
    }
    FM_AUDIT(sound(), "every credit has its buffer");
    return true;
  }

  /// The buffer of a packet that came earlier has been posted again.
  void posted_again(std::uint32_t lane) noexcept {
    account& a = lanes_[lane];
    FM_ASSERT(a.taken != 0, "a buffer is posted again once");
    --a.taken;
    const std::uint32_t now = claim(a);
    if (now >= minimum) --extra_;  // what the packet was sent with was one of the shared ones
    if (now < minimum) {
      give(a);
    } else if (a.unneeded != 0) {
      --a.unneeded;
    } else if (may_grow(a)) {
      give(a);
    }
    if (a.short_of_credit && may_grow(a)) give(a);
    FM_AUDIT(sound(), "every credit has its buffer");
  }

  /// Whether a `credit` packet is to tell the sender what it is owed.
  [[nodiscard]] bool wants_packet(std::uint32_t lane) const noexcept {
    const account& a = lanes_[lane];
    return a.owed != 0 && a.owed >= claim(a) / 2 &&
           (a.packets[0] == none || a.spent > a.packets[0] || a.packets[1] == none || a.spent > a.packets[1]);
  }

  /// What is owed goes out now, with a packet of any kind.
  [[nodiscard]] std::uint32_t tell(std::uint32_t lane, bool by_credit_packet) noexcept {
    account& a = lanes_[lane];
    if (by_credit_packet) {
      std::uint64_t& mark = a.packets[0] == none || a.spent > a.packets[0] ? a.packets[0] : a.packets[1];
      mark = a.told;
    }
    const std::uint32_t n = std::exchange(a.owed, 0);
    a.held += n;
    a.told += n;
    FM_AUDIT(sound(), "every credit has its buffer");
    return n;
  }

  [[nodiscard]] std::uint32_t claim(std::uint32_t lane) const noexcept { return claim(lanes_[lane]); }
  [[nodiscard]] std::uint32_t held(std::uint32_t lane) const noexcept { return lanes_[lane].held; }
  /// Buffers that are not posted, because of packets that are being dealt with.
  [[nodiscard]] std::uint32_t taken() const noexcept {
    std::uint32_t n = 0;
    for (const account& a : lanes_) n += a.taken;
    return n;
  }
  /// The invariants, walked.
  [[nodiscard]] bool sound() const noexcept {
    std::uint32_t held = 0, extra = 0;
    for (const account& a : lanes_) {
      const std::uint32_t c = claim(a);
      if (c < minimum || c > most_) return false;
      held += a.held;
      extra += c - minimum;
    }
    const auto lanes = std::uint32_t(lanes_.size());
    return extra == extra_ && extra <= shared && held + lanes * aside <= buffers(lanes) - taken();
  }

 private:
  static constexpr std::uint64_t none = ~0ull;
  struct account {
    std::uint32_t held = minimum, taken = 0, owed = 0;
    std::uint32_t least = ~0u;                         ///< `held` in this period
    std::uint32_t unneeded = 0;                        ///< of the credits that it will not get back, how many are left
    bool short_of_credit = false;                      ///< at its latest packet
    std::uint64_t told = minimum, spent = 0;           ///< credits, ever
    std::array<std::uint64_t, 2> packets{none, none};  ///< `told` before each `credit` packet that may be on its way
  };

  [[nodiscard]] static std::uint32_t claim(const account& a) noexcept { return a.held + a.taken + a.owed; }
  [[nodiscard]] bool may_grow(const account& a) const noexcept {
    const std::uint32_t c = claim(a);
    return c < most_ && (c < minimum || c - minimum < share * (shared - extra_));
  }
  void give(account& a) noexcept {
    ++a.owed;
    if (claim(a) > minimum) ++extra_;
  }

  const std::uint32_t most_;
  std::vector<account> lanes_;
  std::uint32_t extra_ = 0;  ///< of the shared credits, how many lanes have
};

}  // namespace fm::fabric::verbs
