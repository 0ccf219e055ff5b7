// The agent's half of paged ranges (protocol/paged_messages.h): the spaces by id, their regions, their leases. A
// session that has opened a space is a space_session.
//
// Invariants owned here
//   - A region of a space is reached by that space's session alone: region::tenant names the space as long as the gate
//     is open.
//   - Two sessions never write to one space: the earlier one is revoked, and gone, before a later one is answered.
//   - What is promised to a space was there when it was promised, less what other spaces may still take; and a space has
//     no more regions than that, unless less was promised later.
//
// Lock order: spaces_mutex_ before a space's mutex before that of the regions. Thread-safe; agent/service owns the one
// object.
#pragma once

#include "agent/base/protocol.h"
#include "fabric/server/server.h"
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "agent/base/environment.h"
#include "agent/base/session.h"
#include "agent/regions/region_pool.h"

namespace fm::agent {

/// What one agent keeps of one paged range.
struct space {
  std::uint64_t id[2] = {};
  std::uint64_t incarnation = 0;
  std::string name;
  std::uint32_t lease_ms = 0;
  std::atomic<bool> closed{false};

  std::mutex mutex;
  // ---- guarded ----
  session* owner = nullptr;
  time_point lease_until = time_point::max();
  std::uint64_t bytes = 0;                             ///< promised
  std::unordered_map<std::uint32_t, region*> regions;  ///< by index
  bool told_to_leave = false;                          ///< the owner was, and not that it may stay

  /// Regions that it may have in all.
  [[nodiscard]] std::uint64_t regions_max(std::uint64_t region_bytes) const {
    return (bytes + region_bytes - 1) / region_bytes;
  }
};

class spaces {
 public:
  spaces(environment& e, region_pool& regions) : agent_(e), regions_(regions) {}
  spaces(const spaces&) = delete;
  spaces& operator=(const spaces&) = delete;
  ~spaces();

  /// For a session that has opened nothing; session::opening is held.
  errc open(session& s, std::span<const std::byte> b, fabric::answer& out);
  /// Frees the spaces whose owners stayed away; returns when it wants to be called again.
  time_point expire(time_point now);
  /// Tells owners that do not know it yet; returns when it wants to be called again.
  time_point send_drain_notices();
  /// Spaces that are stored here.
  [[nodiscard]] std::size_t count() const;
  /// JSON: an array of spaces.
  [[nodiscard]] std::string statistics() const;

 private:
  friend class space_session;
  struct id_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& k) const noexcept {
      return k.first ^ (k.second * 0x9e3779b97f4a7c15ull);
    }
  };

  /// Frees all of it; the space's mutex is held.
  void free_regions(space& sp);
  /// Takes it out of the map, whose mutex is held, and frees it; `why` is for the log.
  void forget(const std::shared_ptr<space>& sp, const char* why);
  /// Regions that spaces may still take. spaces_mutex_.
  [[nodiscard]] std::uint64_t promised_regions() const;
  /// Bytes that could be promised to a space beyond what it has; its mutex is not held, spaces_mutex_ is.
  [[nodiscard]] std::uint64_t room_for(const space& sp) const;
  [[nodiscard]] std::uint64_t most_bytes() const;

  environment& agent_;
  region_pool& regions_;
  mutable std::mutex spaces_mutex_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<space>, id_hash> spaces_;
};

}  // namespace fm::agent
