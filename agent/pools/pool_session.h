// The session of a pool's client: its messages (protocol/pool_messages.h), and reads of the pool's regions, but no
// writes.
//
// Invariants owned here
//   - A change is made once, however often its message comes: it is numbered in its stream, and its answer is kept.
//   - A message about objects shares the pool's structure, and comes again with it exclusively when that is not enough;
//     it has said nothing and come to no outcome by then.
// pools::open makes one; agent/service calls it as a tenant.
#pragma once

#include "agent/base/answers.h"
#include "agent/base/environment.h"
#include "pool.h"

namespace fm::agent {

class pool_session final : public tenant {
 public:
  pool_session(environment& e, region_pool& regions, session& s, std::shared_ptr<pool> p,
               std::shared_ptr<pool_client> c)
      : agent_(e), regions_(regions), s_(s), pool_(std::move(p)), client_(std::move(c)) {}

  errc message(message_type type, body b, fabric::answer& out) override;
  std::byte* memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept override;
  void disconnected() noexcept override;

 private:
  errc answer_to(message_type type, body b, fabric::answer& out);
  static errc replicas(const pool& p, fabric::answer& out);  ///< statistics.cc
  static constexpr const char* too_late = "it came after its deadline, and was not made";

  // With the pool's structure as `how` says.
  outcome object_message(pool_client& c, pool& p, message_type type, body b, fabric::answer& out, held how);
  /// `type` is one of the two that allocate.
  outcome alloc(pool& p, message_type type, body b, fabric::answer& out, held how, const asked_change& by);
  static errc write(pool& p, body b, fabric::answer& out, const asked_change& by);
  static errc write_if(pool& p, body b, fabric::answer& out, const asked_change& by);
  static outcome object_change(pool& p, message_type type, body b, fabric::answer& out, held how,
                               const asked_change& by);
  errc expire(pool& p, body b, fabric::answer& out, const asked_change& by) const;
  static outcome name_change(pool& p, message_type type, body b, fabric::answer& out, held how, const asked_change& by);
  static errc list(pool& p, body b, fabric::answer& out);
  static errc lookup(pool& p, body b, fabric::answer& out);  ///< name_messages.cc, as name_change
  static errc read(pool& p, message_type type, body b, fabric::answer& out);
  // With the pool's structure exclusively.
  errc structure_message(pool_client& c, pool& p, message_type type, body b, fabric::answer& out);
  errc pass(pool_client& c, pool& p, body b, fabric::answer& out) const;
  static errc location(pool& p, message_type type, body b, fabric::answer& out);
  static errc compact(pool& p, body b, fabric::answer& out);
  static errc tune(const pool_client& c, pool& p, body b, fabric::answer& out);
  static errc statistics(pool& p, fabric::answer& out);  ///< statistics.cc, as expiries
  static errc expiries(const pool& p, fabric::answer& out);

  environment& agent_;
  region_pool& regions_;
  session& s_;
  const std::shared_ptr<pool> pool_;
  const std::shared_ptr<pool_client> client_;  ///< of that pool
};

}  // namespace fm::agent
