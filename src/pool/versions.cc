// Members of fm::pool that agents know since version 3.1 of the protocol: versions of objects, and which pointers are
// old, and lists of objects. An agent of an earlier version is never sent such a message, because it would break the connection.
#include <algorithm>
#include <cstring>

#include "pool_impl.h"

namespace fm {

using namespace pool_detail;
using protocol::message_type;

errc pool::read_versioned_into(pool_address& p, std::span<std::byte> to, pool_version& version) noexcept {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return impl_->foreign(p);
  if (!a->knows_versions()) return errc::unsupported;
  if (to.size() > a->layout().bytes_max()) return errc::layout_mismatch;
  target t{to.data(), static_cast<std::uint32_t>(to.size()), nullptr};
  t.wants_version = true;
  const errc e = impl_->reader_of(*a).read(p, t, nullptr);
  version.number = t.version;
  return e;
}

result<pool_version> pool::try_write_bytes_if(pool_address& p, pool_version version,
                                              std::span<const std::byte> payload) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  if (!a->knows_versions()) return fail(errc::unsupported, describe(p, errc::unsupported));
  if (payload.size() > a->layout().bytes_max()) return fail(errc::layout_mismatch, describe(p, errc::layout_mismatch));
  const protocol::pool_write_if_body b{{}, object_of(p), static_cast<std::uint32_t>(payload.size()), 0, version.number};
  const reply r = a->change(message_type::pool_write_if, b, payload, a->deadline());
  if (r.code != errc::ok) return fail(r.code, a->url() + ": " + text_of(p) + ": " + r.text());
  protocol::pool_write_if_answer w{};
  if (r.body().size() != sizeof w) return fail(errc::bad_frame, a->url());
  std::memcpy(&w, r.body().data(), sizeof w);
  take_where(*a, w.at, p);
  return pool_version{w.version};
}

result<std::vector<pool_listing>> pool::try_list(pool_cursor& cursor, std::size_t most) {
  if (impl_->agents.empty()) return fail(errc::cancelled, pool_detail::closed);
  if (most == 0 || cursor.agent >= impl_->agents.size())
    return fail(errc::invalid_argument, cursor.agent >= impl_->agents.size()
                                            ? "a cursor of pool::list that is none of this pool"
                                            : "pool::list of at most 0 objects");
  if (cursor.done) return std::vector<pool_listing>();
  agent_client& a = *impl_->agents[cursor.agent];
  if (!a.knows_versions()) return fail(errc::unsupported, a.url() + ": the agent speaks version 3.0 of pools");
  const protocol::pool_list_body b{cursor.block, cursor.index,
                                   static_cast<std::uint32_t>(std::min<std::size_t>(most, UINT32_MAX)), 0};
  const reply r = a.call(message_type::pool_list, std::as_bytes(std::span(&b, 1)), {}, a.deadline());
  if (r.code != errc::ok) return fail(r.code, a.url() + ": list: " + r.text());
  protocol::pool_list_answer n{};
  if (r.body().size() < sizeof n) return fail(errc::bad_frame, a.url() + ": list");
  std::memcpy(&n, r.body().data(), sizeof n);
  const auto records = r.body().subspan(sizeof n);
  if (n.count > b.most || records.size() != std::size_t{n.count} * sizeof(protocol::pool_listed) || n.done > 1)
    return fail(errc::bad_frame, a.url() + ": list");
  std::vector<pool_listing> found(n.count);
  for (std::size_t i = 0; i < found.size(); ++i) {
    protocol::pool_listed o{};
    std::memcpy(&o, records.data() + i * sizeof o, sizeof o);
    found[i] = {pool_address::make(a.instance(), o.vblock, o.generation, o.index, o.slot), o.bytes};
  }
  cursor.block = n.vblock;
  cursor.index = n.index;
  if (n.done == 1) {
    const bool last = cursor.agent + 1 == impl_->agents.size();
    cursor = {last ? cursor.agent : cursor.agent + 1, 0, 0, last};
  }
  return found;
}

result<bool> pool::try_is_old(const pool_address& p) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  if (!a->knows_versions()) return fail(errc::unsupported, describe(p, errc::unsupported));
  due until = a->patience();
  std::uint64_t word = a->refresh(p.block(), until);
  if (word == 0) {  // no such block, or no answer: the agent knows which
    pool_address asked = p;
    std::vector<std::byte> bytes;
    std::string text;
    target t{nullptr, 0, &bytes};
    if (const errc e = impl_->reader_of(*a, until).ask(asked, t, &text); e != errc::ok)
      return fail(e, describe(p, e) + ": " + text);
    word = a->word(p.block(), until);
  }
  return blocks::is_old(word);
}

}  // namespace fm
