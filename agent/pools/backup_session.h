// The session of a pool's primary at its backup (protocol/pool_replica_messages.h).
//
// Invariants owned here
//   - A record is applied only by an agent that is learning or a backup, and after all records before it.
//   - Whatever is answered to the primary is a promise, and none is given by who is about to take over.
// pools::open_backup makes one; agent/service calls it as a tenant.
#pragma once

#include "agent/base/answers.h"
#include "agent/base/environment.h"
#include "agent/base/session.h"
#include "pool.h"

namespace fm::agent {

class backup_session final : public tenant {
 public:
  backup_session(environment& e, std::shared_ptr<pool> p) : agent_(e), pool_(std::move(p)) {}

  errc message(message_type type, body b, fabric::answer& out) override;
  std::byte* memory(const fabric::remote&, std::uint64_t, fabric::access) noexcept override { return nullptr; }
  void disconnected() noexcept override {}

 private:
  errc records(body b, fabric::answer& out);
  errc joined(body b, fabric::answer& out);
  errc take_over(body b, fabric::answer& out);
  errc answer(backup_message type, fabric::answer& out);
  /// It follows that primary no more: not_found if it never will again.
  errc stale(backup_message type, fabric::answer& out) const;

  environment& agent_;
  const std::shared_ptr<pool> pool_;
};

constexpr message_type as_type(backup_message m) { return static_cast<message_type>(m); }

}  // namespace fm::agent
