// Members of fm::pool for the names of objects. They are kept by the agent that is named first.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "pool_impl.h"

namespace fm {

using namespace pool_detail;
using protocol::message_type;

namespace {

std::span<const std::byte> text_bytes(std::string_view name) { return std::as_bytes(std::span(name)); }

}  // namespace

result<pool_detail::agent_client*> pool::impl::keeper_of_name(std::string_view name) const {
  if (name.empty() || name.size() > protocol::pool_name_bytes_max || name.find('\0') != std::string_view::npos)
    return fail(errc::invalid_argument, fmt::format("the name \"{}\": 1 to {} bytes are possible, and no zero byte",
                                                    detail::readable(name), protocol::pool_name_bytes_max));
  if (agents.empty()) return fail(errc::cancelled, pool_detail::closed);
  agent_client* const a = agents.front().get();
  if (!a->knows_versions())
    return fail(errc::unsupported, a->url() + ": the agent speaks version 3.0 of pools, which has no names");
  return a;
}

result<void> pool::try_bind(std::string_view name, const pool_address& p, pool_bind how) {
  const auto keeper = impl_->keeper_of_name(name);
  if (!keeper) return tl::unexpected<error>(keeper.error());
  if (impl_->agent_of(p) == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  const protocol::pool_bind_body b{
      {}, p.who, p.what, how == pool_bind::replace ? 1u : 0u, static_cast<std::uint32_t>(name.size())};
  const reply r = (*keeper)->change(message_type::pool_bind, b, text_bytes(name), (*keeper)->deadline());
  if (r.code != errc::ok) return fail(r.code, (*keeper)->url() + ": " + r.text());
  return {};
}

result<void> pool::try_unbind(std::string_view name) {
  const auto keeper = impl_->keeper_of_name(name);
  if (!keeper) return tl::unexpected<error>(keeper.error());
  const protocol::pool_unbind_body b{{}, static_cast<std::uint32_t>(name.size()), 0};
  const reply r = (*keeper)->change(message_type::pool_unbind, b, text_bytes(name), (*keeper)->deadline());
  if (r.code != errc::ok) return fail(r.code, (*keeper)->url() + ": " + r.text());
  return {};
}

result<pool_address> pool::try_lookup_address(std::string_view name) {
  const auto keeper = impl_->keeper_of_name(name);
  if (!keeper) return tl::unexpected<error>(keeper.error());
  const reply r = (*keeper)->call(message_type::pool_lookup, {}, text_bytes(name), (*keeper)->deadline());
  if (r.code != errc::ok) return fail(r.code, (*keeper)->url() + ": " + r.text());
  protocol::pool_lookup_answer a{};
  if (r.body().size() != sizeof a) return fail(errc::bad_frame, (*keeper)->url());
  std::memcpy(&a, r.body().data(), sizeof a);
  return pool_address{a.who, a.what};
}

}  // namespace fm
