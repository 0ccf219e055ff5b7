// Who of the two agents of a pool with replicas may do what: roles, terms, and the promises that keep two primaries from
// serving at one time. Nothing here waits or sends.
//
//   alone ──joined──► paired ──nobody answers, and it goes on alone──► alone, a later term
//                        ├────── the backup goes on ──► over
//                        └─it leaves─► leaving ──the backup goes on──► over
//                                         └──nobody answers, and it goes on alone──► alone, a later term
//   learning ──joined──► backup ──the primary is silent, and this one goes on──► alone, a later term
//   (so does one that is learning if the arbiter says that it has everything: the message that says so was lost)
//                           └───── the primary went on alone ──► over
//
// Why there are never two primaries. A primary that is paired serves as long as its backup has promised not to take over.
// A promise is given for `tenure` from when a message of the primary came; the primary counts from when it sent that
// message, and a little less. So the primary has stopped before the backup begins, whoever hears what when, if the
// clocks of both advance at about the same rate. And what a client may read one-sidedly it reads under a lease, which a
// primary gives only for as long as it will certainly serve.
// The backup does not take over by itself: it asks who goes on (agent/base/arbiter.h), and so does a primary whose backup
// is silent. One of both is told that it does. While a backup asks, it promises nothing and applies nothing; else a
// primary could go on meanwhile, under a promise of a backup that is the next primary.
// A primary that leaves serves no more. When the last lease that it has given is over, it tells its backup to ask, which
// need not wait for silence then. One of the two ends only when it is certain that the other one does not: a primary not
// while it asks itself, and a backup that asks does not let itself be sent away.
//
// Invariants owned here
//   - serves() is true of at most one agent at a time.
//   - A term is never taken twice, and terms grow.
// test/model/pool_pair.pml has all of this in every order. Thread-safe.
#pragma once

#include "agent/base/limits.h"
#include "base/base.h"

#include <atomic>
#include <mutex>

namespace fm::agent {

enum class pair_role : std::uint8_t {
  alone,     ///< the primary, and nobody else has all that it has
  paired,    ///< the primary; a change counts when the backup has it
  leaving,   ///< it was the primary, and the backup is to be it
  learning,  ///< to become the backup: it lacks some
  backup,    ///< it has all that counts
  over,      ///< it is not a member any more
};
[[nodiscard]] const char* to_string(pair_role r) noexcept;

class pair_membership {
 public:
  pair_membership(pair_role role, std::uint64_t term, duration tenure) noexcept;

  [[nodiscard]] pair_role role() const noexcept { return role_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t term() const noexcept { return term_.load(std::memory_order_acquire); }
  [[nodiscard]] duration tenure() const noexcept { return tenure_; }
  [[nodiscard]] bool is_primary() const noexcept {
    const pair_role r = role();
    return r == pair_role::alone || r == pair_role::paired;
  }
  /// It is the primary now, and will be for another `lease`. Wait-free.
  [[nodiscard]] bool serves(time_point now, duration lease) const noexcept {
    const duration::rep until = serves_until_.load(std::memory_order_acquire);
    return until == forever || (now + lease).time_since_epoch().count() <= until;
  }

  // ---- of a primary ----
  /// The backup may take over from now on. It has answered what was sent at `sent`.
  void join(std::uint64_t term, time_point sent) noexcept;
  /// The backup has answered what was sent at `sent`.
  void promised(time_point sent) noexcept;
  /// It serves no more, so that the backup can be the primary. False: it has no backup.
  bool leave() noexcept;
  /// Nobody else takes over any more.
  void go_on_alone(std::uint64_t term) noexcept;
  /// Another one goes on, or the pool has ended. For good.
  void end() noexcept;

  // ---- of a backup ----
  /// False: it is not one of this term's primary any more. Otherwise it promises not to take over for a while.
  bool hear(time_point now) noexcept;
  bool become_backup(std::uint64_t term, time_point now) noexcept;
  /// The primary of that term serves no more, and nobody reads from it: as if it was silent. False: this is not the backup of
  /// that term, nor the primary of a later one.
  bool primary_has_left(std::uint64_t term) noexcept;
  /// It is not a member any more, as the primary says. False: it may be the primary already, or be told to be.
  bool let_go() noexcept;
  [[nodiscard]] bool is_left() const noexcept;
  /// The primary is silent for longer than was promised: from here on nothing is promised.
  bool begin_taking_over(time_point now) noexcept;
  /// When that will be so, if nothing is heard until then.
  [[nodiscard]] time_point silent_until() const noexcept;
  /// It is the primary.
  void take_over(std::uint64_t term) noexcept;

 private:
  static constexpr duration::rep forever = INT64_MAX;
  void set(pair_role r, duration::rep until) noexcept;
  [[nodiscard]] bool follows() const noexcept { return role() == pair_role::learning || role() == pair_role::backup; }

  const duration tenure_;
  mutable std::mutex mutex_;  ///< of changes
  std::atomic<pair_role> role_;
  std::atomic<std::uint64_t> term_;
  std::atomic<duration::rep> serves_until_;
  time_point promised_until_{};  ///< mutex_
  bool takes_over_ = false;      ///< mutex_
  bool left_ = false;            ///< mutex_; by its primary
};

}  // namespace fm::agent
