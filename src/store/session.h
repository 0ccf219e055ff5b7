// One connected session as the store sees it: which heap or space it is for, and whether it still speaks for it.
#pragma once

#include <farmem/fabric.h>

#include <atomic>
#include <memory>

namespace fm::store::node {

struct heap;
struct space;

struct session {
  session(fabric::peer& p, std::uint64_t n) : peer(p), number(n) {}
  fabric::peer& peer;
  const std::uint64_t number;  ///< unique within the store
  std::shared_ptr<heap> keep;  ///< set once, before `opened`; released when the session ends
  std::atomic<heap*> opened{nullptr};
  std::shared_ptr<node::space> keep_space;  ///< as `keep`, for a session that opened a space instead
  std::atomic<node::space*> space{nullptr};
  std::atomic<bool> revoked{false};         ///< a later session has taken the heap over
  std::atomic<std::uint32_t> in_flight{0};  ///< one-sided operations between memory and memory_done
};

}  // namespace fm::store::node
