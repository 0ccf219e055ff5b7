// The agent's half of paged ranges (protocol/paged_messages.h): the spaces by id, their regions, their leases. A
// session that has opened a space is a space_session.
//
// Invariants owned here
//   - A region of a space is reached by that space's session alone: region::tenant names the space as long as the gate
//     is open.
//   - Two sessions never write to one space: the earlier one is revoked, and gone, before a later one is answered.
//   - The size that an open space may grow to was checked against the memory that was there when it was opened.
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
#include <vector>

#include "agent/base/environment.h"
#include "agent/base/session.h"
#include "agent/regions/region_pool.h"

namespace fm::agent {

/// What one agent keeps of one paged range.
struct space {
  std::uint64_t id[2] = {};
  std::uint64_t incarnation = 0;
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t regions_max = 0;
  std::uint32_t lease_ms = 0;
  std::atomic<bool> closed{false};

  std::mutex mutex;
  // ---- guarded ----
  session* owner = nullptr;
  time_point lease_until = time_point::max();
  std::vector<region*> regions;  ///< by index; null: never asked for, or released
  std::uint32_t regions_open = 0;
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
  [[nodiscard]] std::uint64_t promised_regions() const;

  environment& agent_;
  region_pool& regions_;
  mutable std::mutex spaces_mutex_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<space>, id_hash> spaces_;
};

}  // namespace fm::agent
