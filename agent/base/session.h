// One connected session as the store sees it: which heap, pool or space it is for, and whether it still speaks for it; or that it is
// another agent's.
#pragma once

#include "fabric/server/server.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace fm::store::node {

struct heap;
class shared_pool;
struct shared_client;
struct space;

struct session {
  session(fabric::peer& p, std::uint64_t n) : peer(p), number(n) {}
  fabric::peer& peer;
  const std::uint64_t number;  ///< unique within the store
  std::shared_ptr<heap> keep;  ///< set once, before `opened`; released when the session ends
  std::atomic<heap*> opened{nullptr};
  std::shared_ptr<shared_pool> keep_pool;  ///< as `keep`, of a session that has opened a pool instead
  std::shared_ptr<shared_client> client;   ///< of that pool; set with it
  std::atomic<shared_pool*> pool{nullptr};
  std::shared_ptr<node::space> keep_space;  ///< as `keep`, for a session that opened a space instead
  std::atomic<node::space*> space{nullptr};
  std::atomic<bool> is_peer{false};         ///< another agent's, for ghosts
  std::mutex opening;                       ///< a session opens one thing, once, whatever it says on how many lanes
  std::atomic<bool> revoked{false};         ///< a later session has taken the heap over, or the pool's client is fenced
  std::atomic<std::uint32_t> in_flight{0};  ///< one-sided operations between memory and memory_done

  [[nodiscard]] bool is_open() const noexcept {
    return opened.load() != nullptr || pool.load() != nullptr || space.load() != nullptr || is_peer.load();
  }
};

}  // namespace fm::store::node
