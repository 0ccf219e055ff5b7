// Which agent new objects go to: in turn, each as often as it has room, so that agents of different sizes are full
// together and the heap is full when all of them are. Threads get slots for many objects at a time, and objects are of
// any size: what counts is the bytes. A run of slots is charged with what it probably will hold, and corrected when it
// has ended.
//
// An agent that says that it is overloaded gets less than by its room. So a new agent, which has most room, is not drowned by
// all that is new: it says when that is too much.
//
// Invariants owned here
//   - An agent without room gets nothing as long as another one has some.
//   - An agent that was full gets something again only when it has room for full_until_regions regions: one that comes
//     back and is full again at once would strand what was made for it in the cache.
//
// What was placed on an agent and is not written back yet is not in what the agent reports. It is at most the cache, so
// that much is taken off its room first (`unwritten`). slot_sources calls it, under a lock of its own.
#pragma once

#include "base/limits.h"
#include "base/replica_limits.h"
#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace fm::detail {

class placement {
 public:
  void open(std::size_t agents) { agents_.resize(agents); }
  void set_overloaded(std::uint32_t i, bool is) noexcept {
    if (i < agents_.size()) agents_[i].overloaded = is;
  }

  /// The agent of the next `bytes` of objects, where `left(i)` gives the bytes that agent i still has room for; none when
  /// no agent has any.
  template <class Left>
  std::optional<std::uint32_t> next(const Left& left, std::uint64_t unwritten, std::uint64_t region_bytes,
                                    std::uint64_t bytes = 1) {
    std::optional<std::uint32_t> best;
    double sum = 0;
    for (std::uint32_t i = 0; i < agents_.size(); ++i) {
      agent& a = agents_[i];
      const std::uint64_t room = left(i);
      a.share = 0;
      if (room == 0)
        a = {.full = true,
             .overloaded = a.overloaded};  // what it was behind by is of no account when it has room again
      if (a.full && room < limits::full_until_regions * region_bytes) continue;
      a.full = false;
      // Towards the end all that is left may be spoken for: then still by room, but far behind agents that have more.
      const double weight =
          std::max(rounded(room - std::min(room, unwritten)), double(room) / limits::spoken_for_weight) *
          (a.overloaded ? limits::overloaded_weight : 1);
      a.share = weight;  // of the sum, below
      sum += weight;
    }
    if (sum == 0) return best;
    double most = 0;
    for (std::uint32_t i = 0; i < agents_.size(); ++i) {
      agent& a = agents_[i];
      a.share /= sum;
      const double credit = a.credit + static_cast<double>(bytes) * a.share;
      if (a.share != 0 && (!best || credit > most)) best = i, most = credit;
    }
    charge(*best, static_cast<std::int64_t>(bytes));
    return best;
  }

  /// Agent i got so many bytes more than it was asked for, or fewer.
  void charge(std::uint32_t i, std::int64_t bytes) noexcept {
    for (agent& a : agents_) a.credit += static_cast<double>(bytes) * a.share;
    agents_[i].credit -= static_cast<double>(bytes);
  }

 private:
  // To three bits: agents that have nearly the same room get objects in turn, whoever opened a region last.
  static double rounded(std::uint64_t room) noexcept {
    if (room == 0) return 0;
    const int drop = std::max(0, static_cast<int>(std::bit_width(room)) - 3);
    return double(room >> drop << drop);
  }

  struct agent {
    double credit = 0;  ///< bytes that it is behind its share
    double share = 0;   ///< of the bytes that were asked for last
    bool full = false, overloaded = false;
  };
  std::vector<agent> agents_;
};

}  // namespace fm::detail
