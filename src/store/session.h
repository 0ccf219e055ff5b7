// One connected session as the store sees it: which heap it is for, and whether it still speaks for it.
#pragma once

#include <farmem/fabric.h>

#include <atomic>
#include <memory>

namespace fm::store::node {

struct heap;
class shared_pool;
struct shared_client;

struct session {
  session(fabric::peer& p, std::uint64_t n) : peer(p), number(n) {}
  fabric::peer& peer;
  const std::uint64_t number;  ///< unique within the store
  std::shared_ptr<heap> keep;  ///< set once, before `opened`; released when the session ends
  std::atomic<heap*> opened{nullptr};
  std::shared_ptr<shared_pool> keep_pool;  ///< as `keep`, of a session that has opened a pool instead
  std::shared_ptr<shared_client> client;   ///< of that pool; set with it
  std::atomic<shared_pool*> pool{nullptr};
  std::atomic<bool> revoked{false};         ///< a later session has taken the heap over, or the pool's client is fenced
  std::atomic<std::uint32_t> in_flight{0};  ///< one-sided operations between memory and memory_done
};

}  // namespace fm::store::node
