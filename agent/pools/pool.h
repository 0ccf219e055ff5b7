// One pool on its agent: its blocks, the clients that share it, their leases, and the epochs that they have passed.
// Messages about it are pool_session's, the map of pools is in pools.h, and the wire format in
// protocol/pool_messages.h.
//
// Invariants owned here
//   - A frame is used again only when every client has passed its epoch, or is gone: closed, or fenced because its
//     lease ran out.
//   - A change is made once, however often its message comes, and before its deadline.
//   - Sessions read regions of their own pool, and write none. Their memory cannot be written by who maps it either, so
//     what the agent has written there is the agent's own record (blocks.h).
//   - An ordinal of a region is used again only when every client has been told that the region is gone, or is gone
//     itself: one that comes back has forgotten all regions.
// Constants and atomics are for everybody. A stream of changes belongs to its mutex. Everything else is written with
// `structure` held exclusively and read with it shared.
// Messages about objects share the structure. When they turn out to change it, they come again with it exclusively
// (blocks.h). All other messages take it exclusively, audits for long.
// Order: the map of pools -> structure -> a stream -> the locks of blocks.h -> the log, the regions' mutex.
//
// A pool with replicas is the same on two agents (membership.h): at the primary clients change it, at the backup what the
// primary has written down (log.h, replication.cc).
#pragma once

#include "agent/base/protocol.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "agent/base/session.h"
#include "agent/pools/blocks/blocks.h"
#include "agent/pools/blocks/structure_lock.h"
#include "membership.h"
#include "names.h"

namespace fm::agent {

struct pool_client {
  std::uint64_t id[2] = {};
  session* owner = nullptr;  ///< null while it is not connected
  bool gone = false;         ///< closed or fenced
  std::uint32_t lease_ms = 0;
  std::atomic<time_point> heard{};
  /// Its lanes are served by several threads: not back to an earlier moment that one of them has noted before.
  void hear(time_point at) noexcept {
    time_point before = heard.load(std::memory_order_relaxed);
    while (before < at && !heard.compare_exchange_weak(before, at, std::memory_order_relaxed)) {
    }
  }
  std::uint64_t passed = 0;  ///< epoch
  std::uint64_t told = 0;    ///< of the regions that have left the pool
  std::uint64_t asked = 0;   ///< epoch that it was last asked to pass
  struct stream {
    std::mutex mutex;          ///< one change at a time
    std::uint64_t number = 0;  ///< of the last change that was made
    std::vector<std::byte> answer;
  };
  std::vector<std::unique_ptr<stream>> streams;  ///< those that were used
};

struct pool_counters {
  std::atomic<std::uint64_t> writes{0}, reads{0}, releases{0};
  std::uint64_t steps = 0, step_ns = 0, step_ns_max = 0, fenced = 0;  ///< step_ns: of the last one
};

class pool_keeper;

/// Of a pool with replicas. The log belongs to its locks, the rest to the keeper.
struct pool_replication {
  pool_replication(std::uint64_t self_number, pair_role role, std::uint64_t term, duration tenure);
  ~pool_replication();
  pair_membership members;
  pool_log log;
  blocks::place word{};       ///< where the log's is; structure
  const std::uint64_t self;   ///< this agent's number
  std::uint64_t primary = 0;  ///< of a backup: the agent that it follows; constant
  std::uint64_t applied = 0;  ///< of a backup: its last record; structure
  std::unique_ptr<pool_keeper> keeper;
};

class pool {
 public:
  pool(environment& agent, region_pool& regions, const pool_open_body& b, std::uint64_t quota,
       std::uint32_t instance_number, std::uint32_t slot_number = 0);
  ~pool();

  const std::string name;
  const std::uint64_t tenant[2];
  const std::uint32_t slot;  ///< 0: without replicas; else see pool_open_replicated
  const std::uint32_t instance;
  const pool_settings settings;
  const std::uint64_t quota_bytes;

  structure_lock structure;
  bool closed = false;  ///< without memory; nothing is answered any more
  std::unique_ptr<pool_frames> frames;
  std::unique_ptr<pool_blocks> blocks;
  std::unique_ptr<pool_replication> replicas;  ///< null: none; set before anybody else knows the pool
  pool_blocks::thresholds compact_above{};     ///< by size class
  bool compacts = false;                       ///< one of them is not 0
  std::uint64_t maker[2] = {};                 ///< the client that made it, which may tune it once
  bool tuned = false;
  /// It is the one that may.
  [[nodiscard]] bool may_tune(const pool_client& c) const {
    return !tuned && c.id[0] == maker[0] && c.id[1] == maker[1];
  }
  /// Sets the thresholds. Structure exclusively, or before anybody else knows the pool.
  void compact_classes_above(const pool_blocks::thresholds& above);
  std::vector<std::shared_ptr<pool_client>> clients;
  pool_names names;
  time_point empty_since{};  ///< when the last client left
  pool_counters count;
  bool short_of_memory = false;                ///< an allocation failed, and a round was begun for it
  std::atomic<bool> round_in_vain{false};      ///< that round is over, and nothing was freed since
  pool_compact_answer round_began{};           ///< totals when the last round that was asked for began
  std::uint64_t served_before = 0;             ///< messages about objects when the last step of such a round was over
  std::uint32_t stepped_back = 0;              ///< turns that background compaction left to others
  time_point next_step{};                      ///< of background compaction
  bool was_silent = false;                     ///< a primary that did not serve when maintenance came by
  bool ask_again = false;                      ///< clients are to be asked to pass an epoch ...
  time_point ask_at{};                         ///< ... and not before: they have just been, or could not be
  std::atomic<expiry> looks_again{no_expiry};  ///< maintenance comes back for objects that expire then, without a word

  [[nodiscard]] std::shared_ptr<pool_client> find(const std::uint64_t (&id)[2]) const;
  /// Asks clients that have not passed the current epoch and have not been asked since they passed the last one; now, or
  /// has maintenance come back for it.
  void ask_to_pass();
  /// Has clients hear soon what state() is now. Structure exclusively.
  void tell_state();
  /// Of a pool with replicas, for clients (protocol::pool_state); otherwise 0.
  [[nodiscard]] std::uint32_t state() const;
  /// Frees frames that nobody can be reading any more, a bounded number of them. True when there were any.
  bool reclaim();
  /// Regions that are gone and that all clients have been told of may have successors.
  void forget_regions();
  /// A class has become sparse, and nothing is being compacted. With the structure shared.
  [[nodiscard]] bool wants_round() const { return compacts && !blocks->in_round() && blocks->is_sparse(compact_above); }
  /// Frees objects whose time has passed, a bounded number of them. True when there may be more to do at once.
  bool expire();
  /// When maintenance is to come back for the next one.
  [[nodiscard]] time_point await_expiry(time_point now);
  /// An object expires before maintenance comes back: wake it. True once. With the structure shared.
  [[nodiscard]] bool expires_sooner();
  /// One bounded step of compaction; true when there is more to do in this round.
  bool compact();
  /// The same in the background, of which steps take limits::compaction_share of a core: `next_step` is set.
  bool compact_in_background(time_point now);
  /// After a step that a client has asked for: how long, in ns, it should leave to others; 0 if there are none.
  std::uint64_t rest_after_step();
  /// What a client that follows its lease may be told: this agent is the pool's primary for long enough. With replicas
  /// only; without, always.
  [[nodiscard]] bool serves(time_point now) const noexcept {
    return replicas == nullptr || replicas->members.serves(now, reading_lease());
  }
  /// For how long a client may read after it has heard of a primary with replicas.
  [[nodiscard]] duration reading_lease() const noexcept { return replicas->members.tenure() / 4; }
  /// This agent is the primary, or there are no replicas.
  [[nodiscard]] bool is_primary() const noexcept { return replicas == nullptr || replicas->members.is_primary(); }
  /// Memory for the word of the log; once. Errors: as pool_frames::take.
  errc reserve_word();
  /// From now on changes are numbered, after that number, and can be written down.
  void begin_log(std::uint64_t after);
  /// What is not in blocks, into an image: names and clients before those, and what clients were answered after them.
  /// Throws bad_alloc.
  void begin_image() const;
  void end_image() const;
  /// The record of a change that is not of an object, where there is to be one. Throws bad_alloc.
  template <class Fixed>
  [[nodiscard]] pool_log::entry note(record_kind kind, const Fixed& fixed, std::span<const std::byte> tail = {}) const {
    return replicas != nullptr && replicas->log.is_recording() ? pool_log::make(kind, fixed, tail) : pool_log::entry();
  }
  void write_down(pool_log::entry e) noexcept {
    if (replicas != nullptr) (void)replicas->log.append(std::move(e));
  }
  /// What the primary has written down. With the structure exclusively, as the next one. Errors as pool_blocks::apply.
  errc apply(record_kind kind, std::uint64_t number, std::span<const std::byte> body, std::uint32_t clients_max);
  /// The backup becomes the primary of a later term.
  void take_over(std::uint64_t term, time_point now);
  /// The client is gone: what it held back is not held back any more.
  void remove(pool_client& c, time_point now);
  /// Gives all memory back. `ended`: because nobody wants it any more.
  void close(bool ended = false);

 private:
  environment& agent_;
};

}  // namespace fm::agent
