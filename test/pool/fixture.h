// What the pool's tests share: an agent behind each transport, options that name it, values that check themselves.
#pragma once

#include "agent/service/service.h"
#include "base/base.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_format.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"
#include <farmem/pool/pool.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "pool/checked.h"
#include "program/live_agent.h"
#include "support/error_code.h"

namespace pool_test {

using namespace fm;
using namespace fm::literals;

/// An agent that is reached by one transport: in this process for local:, the real program for the others.
class place {
 public:
  /// `flags` are more for the agent, which for local: is none.
  explicit place(const std::string& scheme, std::uint64_t memory = 64_MiB, std::uint64_t region = 1_MiB,
                 const std::vector<std::string>& flags = {})
      : scheme_(scheme) {
    if (scheme == "local") {
      fm::agent::store_options o;
      o.memory_bytes = memory;
      o.region_bytes = region;
      store_ = fm::agent::store::create(o);
    } else {
      std::vector<std::string> all{"--memory", std::to_string(memory), "--region", std::to_string(region)};
      all.insert(all.end(), flags.begin(), flags.end());
      agent_ = std::make_unique<agent_test::live_agent>(all);
    }
  }
  /// Options of a pool there, of the place's own tenant.
  [[nodiscard]] pool_options options() const {
    pool_options o;
    o.agents = {agent_ ? agent_->url(scheme_) : "local:"};
    o.in_process = store_.get();
    o.tenant = tenant_;
    o.name = "test";
    o.compact_above = 0;
    // Expected to be met on a machine that does other things as well.
    o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(30);
    return o;
  }
  [[nodiscard]] std::string url() const { return agent_ ? agent_->url(scheme_) : "local:"; }
  [[nodiscard]] agent_test::live_agent& agent() { return *agent_; }

 private:
  std::string scheme_;
  pool_tenant tenant_ = pool_tenant::random();
  std::unique_ptr<fm::agent::store> store_;
  std::unique_ptr<agent_test::live_agent> agent_;
};

/// What pointers of that pool are recognised by.
inline std::uint8_t tag_of(const pool_options& o) {
  const std::uint64_t tenant[2] = {o.tenant.words[0], o.tenant.words[1]};
  return protocol::blocks::instance_tag(tenant, o.name);
}

/// Bytes of an object that follow from a number.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    v[i] = static_cast<std::byte>((seed * 0x9e3779b97f4a7c15ull + i * 0x100000001b3ull) >> 32);
  return v;
}

using fm::test::code_of;

inline void check_sound(const pool& p) {
  const pool_report r = p.verify();
  INFO(r.text);
  CHECK(r.ok());
}

}  // namespace pool_test
