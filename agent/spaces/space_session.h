// The session of a space's owner: it asks for regions and gives them back, and reads and writes all of them.
//
// Invariant owned here: nothing is changed or handed out for a session that does not own the space any more.
// spaces::open makes one; agent/service calls it as a tenant.
#pragma once

#include "agent/base/answers.h"
#include "spaces.h"

namespace fm::agent {

class space_session final : public tenant {
 public:
  space_session(spaces& of, session& s, std::shared_ptr<space> sp)
      : of_(of), regions_(of.regions_), s_(s), keep_(std::move(sp)), sp_(*keep_) {}

  errc message(message_type type, body b, fabric::answer& out) override;
  std::byte* memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept override;
  void disconnected() noexcept override;

 private:
  errc close(body b, fabric::answer& out);
  errc region_of(body b, fabric::answer& out);
  errc release(body b, fabric::answer& out);
  errc audit(body b, fabric::answer& out);
  errc resize(body b, fabric::answer& out);

  spaces& of_;
  region_pool& regions_;
  session& s_;
  const std::shared_ptr<space> keep_;
  space& sp_;
};

/// Numbers of paged messages are numbers of messages, too.
constexpr message_type as_type(paged_message m) { return static_cast<message_type>(m); }
inline errc refuse_space(fabric::answer& out, paged_message type, errc code, const std::string& text) {
  return refuse(out, as_type(type), code, text);
}

}  // namespace fm::agent
