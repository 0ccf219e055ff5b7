// The agent's half of paged ranges: spaces, their regions, and one-sided access to them (store/paged_protocol.h). Part of
// the store, which owns sessions, the pool and the transports' calls, and passes on what is about spaces.
//
// Invariants owned here
//   - A region of a space is reached by that space's session alone: region::tenant names the space as long as the gate is open.
//   - Two sessions never write to one space: the earlier one is revoked, and gone, before a later one is answered.
//   - What an open space may grow to has been checked against the memory that was there when it was opened.
//
// Lock order: spaces_mutex_ before a space's mutex before the pool's.
#pragma once

#include "fabric/server/server.h"
#include "protocol/paged_messages.h"
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/base/session.h"
#include "agent/regions/region_pool.h"

namespace fm::store {
struct store_options;
}

namespace fm::store::node {

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

class paged_service {
 public:
  paged_service(const store_options& options, pool& p);
  paged_service(const paged_service&) = delete;
  paged_service& operator=(const paged_service&) = delete;
  ~paged_service();

  /// Whether a message is one of these.
  static bool serves(std::uint16_t type) noexcept { return type >= paged_message_first && type <= paged_message_last; }
  errc message(session& s, std::uint16_t type, std::span<const std::byte> body, fabric::answer& out);
  /// As fabric::service::memory, for a session that has opened a space.
  std::byte* memory(session& s, space& sp, const fabric::remote& where, std::uint64_t bytes) noexcept;
  void disconnected(session& s, space& sp, time_point now);
  /// Frees the spaces whose owners stayed away; returns when it wants to be called again.
  time_point expire(time_point now);
  /// JSON: an array of spaces.
  [[nodiscard]] std::string statistics() const;

 private:
  using body = std::span<const std::byte>;
  struct id_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& k) const noexcept {
      return k.first ^ (k.second * 0x9e3779b97f4a7c15ull);
    }
  };

  errc open(session& s, body b, fabric::answer& out);
  errc close(session& s, space& sp, body b, fabric::answer& out);
  errc region_of(session& s, space& sp, body b, fabric::answer& out);
  errc release(session& s, space& sp, body b, fabric::answer& out);
  errc audit(session& s, space& sp, body b, fabric::answer& out);
  /// Frees all of it; the space's mutex is held.
  void free_regions(space& sp);
  void forget(const std::shared_ptr<space>& sp, const char* why);
  [[nodiscard]] std::uint64_t promised_regions() const;

  const store_options& options_;
  pool& pool_;
  mutable std::mutex spaces_mutex_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<space>, id_hash> spaces_;
};

}  // namespace fm::store::node
