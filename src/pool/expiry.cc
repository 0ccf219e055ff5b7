// Members of fm::pool for objects that expire, which agents know since version 3.2 of the protocol. The time is the
// agent's: this process says how long it is from when the agent makes the change.
#include <fmt/format.h>

#include "pool_impl.h"

namespace fm {

using namespace pool_detail;
using protocol::message_type;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds longest{protocol::pool_expiry_ms_max};

/// Rounded up, so that no object expires early.
result<std::uint64_t> ms_of(duration after) {
  if (after <= duration::zero() || after > longest)
    return fail(errc::invalid_argument,
                fmt::format("an object that expires after {} ns: more than 0 and at most {} days are possible",
                            std::chrono::nanoseconds(after).count(), longest / std::chrono::hours(24)));
  return static_cast<std::uint64_t>(std::chrono::ceil<milliseconds>(after).count());
}

result<void> say(agent_client& a, const pool_address& p, std::uint64_t ms) {
  const protocol::pool_expire_body b{{}, object_of(p), ms};
  const reply r = a.change(message_type::pool_expire, b, {}, a.deadline());
  if (r.code != errc::ok) return fail(r.code, a.url() + ": " + text_of(p) + ": " + r.text());
  return {};
}

}  // namespace

result<std::uint64_t> pool::impl::expiry_of(const pool_alloc_options& how) const {
  if (how.expires_after == duration::zero()) return std::uint64_t{0};
  for (const auto& a : agents)
    if (!a->knows_expiry())
      return fail(
          errc::unsupported,
          fmt::format("{}: the agent speaks version 3.{} of pools, in which no object expires", a->url(), a->minor()));
  return ms_of(how.expires_after);
}

result<void> pool::try_expire_after(const pool_address& p, duration after) {
  const result<std::uint64_t> ms = ms_of(after);
  if (!ms) return tl::unexpected<error>(ms.error());
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  if (!a->knows_expiry()) return fail(errc::unsupported, describe(p, errc::unsupported));
  return say(*a, p, *ms);
}

result<void> pool::try_keep(const pool_address& p) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  if (!a->knows_expiry()) return fail(errc::unsupported, describe(p, errc::unsupported));
  return say(*a, p, 0);
}

}  // namespace fm
