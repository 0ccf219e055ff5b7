// Messages about the names of a pool's objects; members of pool_session. Changes of names are changes as those of
// objects: made once, and in time (protocol/pool_messages.h). They take the structure exclusively.
#include <fmt/format.h>

#include "base/text.h"
#include "pool_session.h"

namespace fm::agent {

namespace {

bool take_name(body rest, std::uint32_t bytes, std::string_view& name) {
  name = {reinterpret_cast<const char*>(rest.data()), rest.size()};
  return rest.size() == bytes && pool_names::is_sound(name);
}

}  // namespace

outcome pool_session::name_change(pool& p, message_type type, body b, fabric::answer& out, held how,
                                  const asked_change& by) {
  std::string_view name;
  pool_bind_body bound{};
  pool_unbind_body unbound{};
  const bool binds = type == message_type::pool_bind;
  if (binds ? !read_front(b, bound) || bound.replace > 1 || (bound.who | bound.what) == 0 ||
                  !take_name(b, bound.name_bytes, name)
            : !read_front(b, unbound) || unbound.zero != 0 || !take_name(b, unbound.name_bytes, name))
    return errc::bad_frame;
  if (how == held::shared) return {};
  if (by.has_passed()) return refuse(out, type, errc::timed_out, too_late);
  pool_log::entry note = p.note(binds ? record_kind::bind : record_kind::unbind,
                                bind_record{by.origin, bound.who, bound.what}, std::as_bytes(std::span(name)));
  const errc e = binds ? p.names.bind(name, {bound.who, bound.what}, bound.replace == 1) : p.names.unbind(name);
  const std::string shown = detail::readable(name);
  if (e == errc::conflict) return refuse(out, type, e, fmt::format("the name {} is bound to another object", shown));
  if (e == errc::agent_full)
    return refuse(out, type, e, fmt::format("pool {} has {} names, its limit", p.name, limits::pool_names_max));
  if (e != errc::ok) return refuse(out, type, e, fmt::format("no object is named {}", shown));
  p.write_down(std::move(note));
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc pool_session::lookup(pool& p, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_lookup;
  std::string_view name;
  if (b.size() > pool_name_bytes_max || !take_name(b, static_cast<std::uint32_t>(b.size()), name))
    return errc::bad_frame;
  const pool_names::pointer* const at = p.names.find(name);
  if (at == nullptr) return refuse(out, type, errc::not_found, "no object is named " + detail::readable(name));
  const pool_lookup_answer a{at->who, at->what};
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

}  // namespace fm::agent
