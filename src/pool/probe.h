// One attempt to read an object at a place: the requests that it takes, and what they bring. reader fills it in, has it
// posted, and judges it; read_many and read_async post several at a time.
//
// Invariant owned here: a probe does not move while its requests are posted, and they name memory of the probe, of its
// target and of its staging alone.
#pragma once

#include <array>

#include "agent_client.h"

namespace fm::pool_detail {

/// Requests that are carried out in the order in which they were added.
struct request_set {
  std::array<fabric::request, 3> requests;
  std::size_t count = 0;

  fabric::request& add(const fabric::remote& where) {
    fabric::request& r = requests[count++];
    r.kind = fabric::op_kind::read;
    r.on = fabric::lane::fetch;
    r.where = where;
    r.sg_count = 0;
    return r;
  }
  static void into(fabric::request& r, void* data, std::size_t bytes) { r.sg[r.sg_count++] = {data, bytes}; }
};

/// Where an attempt looks, and how.
struct placement {
  /// Beyond so many bytes the second look at the header is posted when the object has arrived; see reader.cc.
  static constexpr std::uint32_t copied_at_once = 4096;

  fabric::remote where;
  blocks::identity id;
  std::uint32_t size_class = 0;
  std::uint32_t wanted = 0;  ///< bytes of the slot that are read
  blocks::consistency mode = blocks::consistency::checksum;
  bool contiguous = false;  ///< the payload goes to the target at once; otherwise all of it to `staged`
  bool bracketed = false;   ///< the header is read before and after

  /// Its requests may be posted together.
  [[nodiscard]] bool goes_at_once() const noexcept { return !bracketed || wanted <= copied_at_once; }
  /// Bytes that it needs at probe::staged.
  [[nodiscard]] std::uint32_t staging_bytes() const noexcept { return contiguous ? 0 : wanted; }
};

struct probe : placement {
  std::uint32_t tenure = 0;  ///< agent_client::tenure() before it was posted
  std::byte* staged = nullptr;
  blocks::object_header header{};
  std::array<blocks::object_header, 2> around{};
  request_set requests;

  /// Posts its requests, each after the one before. Nobody waits here.
  void post(fabric::session& s) noexcept {
    std::array<fabric::request*, 3> all{};
    for (std::size_t i = 0; i < requests.count; ++i) {
      all[i] = &requests.requests[i];
      requests.requests[i].fence = i != 0;
    }
    s.post(std::span<fabric::request* const>(all.data(), requests.count));
  }
};

}  // namespace fm::pool_detail
