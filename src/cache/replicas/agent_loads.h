// Which agent is overloaded, and which one is to take tablets of it. Agents say how busy they are (agent/base/load_meter.h); this
// is what is made of it, with hysteresis in three places:
//
//   an agent is overloaded     after several looks in a row above a bound, until it is below a lower one
//   a shift begins             if another agent is less busy by far; it moves what makes the two equally busy, or an eighth if
//                              that is less
//   the next shift             needs as many looks again, which all lie behind the end of the one before; and twice as many each
//                              time that the agent is overloaded still, because then it is something else that makes it busy
//
// An owner moves only what is its own. If it fetches little, it moves nothing: somebody else makes the agent busy. Of several
// owners each moves its share of the difference, since each moves a share of what it has there.
//
// An agent that does not tell counts for nothing: it is neither relieved nor does it get anything.
//
// No clock, no lock: who looks, looks every limits::load_look_every. set_members does, from the collector's thread.
#pragma once

#include "base/replica_limits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fm::detail {

class agent_loads {
 public:
  struct report {
    bool may_move = false;       ///< it answers, and is not being left
    std::optional<double> busy;  ///< remote::agent_session::busy
  };
  struct shift {
    std::uint32_t from = 0, to = 0;
    double share = 0;  ///< of the tablets that `from` serves
  };

  /// One look at all agents; there may be more than at the last one.
  void look(const std::vector<report>& all) {
    agents_.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      state& a = agents_[i];
      a.now = all[i].may_move ? all[i].busy : std::nullopt;
      const bool high = a.now && *a.now >= limits::overloaded_from;
      a.looks = high ? a.looks + 1 : 0;
      if (a.looks >= limits::overloaded_looks) a.overloaded = true;
      if (!a.now || *a.now < limits::relaxed_below) {
        a.overloaded = false;
        a.needed = limits::overloaded_looks;
      }
    }
  }
  [[nodiscard]] bool is_overloaded(std::size_t agent) const noexcept {
    return agent < agents_.size() && agents_[agent].overloaded;
  }
  /// What is to be moved by the last look, if anything, by an owner that fetches much.
  [[nodiscard]] std::optional<shift> wanted() const noexcept {
    const state *from = nullptr, *to = nullptr;
    for (const state& a : agents_) {
      if (!a.now) continue;
      if (a.looks >= a.needed && (from == nullptr || *a.now > *from->now)) from = &a;
      if (to == nullptr || *a.now < *to->now) to = &a;
    }
    if (from == nullptr || !is_apart(*from, *to)) return std::nullopt;
    return shift{number_of(*from), number_of(*to),
                 std::min((*from->now - *to->now) / 2 / *from->now, limits::load_share_most)};
  }
  /// Whether a shift that has begun still makes sense by the last look.
  [[nodiscard]] bool is_wanted_still(const shift& s) const noexcept {
    const state &from = agents_[s.from], &to = agents_[s.to];
    return from.now && to.now && *from.now > *to.now && *from.now >= limits::relaxed_below;
  }
  /// A shift has ended: what it did shows in looks from now on.
  void ended(const shift& s) noexcept {
    for (state& a : agents_) a.looks = 0;
    agents_[s.from].needed = std::min(2 * agents_[s.from].needed, limits::overloaded_looks_most);
  }

 private:
  struct state {
    std::optional<double> now;
    std::uint32_t looks = 0;                          ///< in a row in which it was too busy
    std::uint32_t needed = limits::overloaded_looks;  ///< before tablets of it are moved
    bool overloaded = false;
  };
  static bool is_apart(const state& from, const state& to) noexcept {
    return *from.now - *to.now >= limits::load_apart;
  }
  [[nodiscard]] std::uint32_t number_of(const state& a) const noexcept {
    return static_cast<std::uint32_t>(&a - agents_.data());
  }

  std::vector<state> agents_;
};

}  // namespace fm::detail
