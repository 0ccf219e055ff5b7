// An agent in the test's process that gives a number of objects out and then none, so that accesses fail in turn.
#pragma once

#include <atomic>

#include "containers/fixture.h"
#include "support/served_store.h"

namespace fm::test {

class sparing_agent final : public served_store {
 public:
  static constexpr std::int64_t unlimited = std::int64_t{1} << 40;

  sparing_agent() : served_store({.memory_bytes = 64_MiB, .region_bytes = 1_MiB}) { serve(); }
  ~sparing_agent() override { stop(); }
  sparing_agent(const sparing_agent&) = delete;
  sparing_agent& operator=(const sparing_agent&) = delete;

  std::atomic<std::int64_t> gives{unlimited};  ///< reads that are still answered

  /// Options of a heap on this agent, which reads nothing but what the test reaches.
  [[nodiscard]] heap_options options() const {
    heap_options o = tiny();
    o.agents = {url()};
    o.collect = false;
    o.elastic = false;
    return o;
  }

  std::byte* memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                    fabric::access how) noexcept override {
    if (how == fabric::access::read && gives.fetch_sub(1) <= 0) return nullptr;
    return served_store::memory(p, where, bytes, how);
  }
  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    if (gives > 0 || type_of(payload) != protocol::message_type::fetch_slot)
      return served_store::message(p, payload, out);
    const protocol::answer_head no{static_cast<std::uint16_t>(protocol::message_type::fetch_slot),
                                   static_cast<std::uint16_t>(errc::access_denied), 0};
    out.payload.resize(sizeof no);
    std::memcpy(out.payload.data(), &no, sizeof no);
    return errc::ok;
  }
};

}  // namespace fm::test
