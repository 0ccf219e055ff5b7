// The messages of agents that talk: an owner names the peers of its heap, and a peer sends remote references; see
// peers.h.
// Everything about a message is checked before anything is applied.
// A wrong ticket is refused and logged now and then; it does not end the session, which carries other heaps'
// references.
#include "peers.h"

#include "base/log.h"
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "agent/tracing/cycles.h"
#include "base/text.h"

namespace fm::agent {

namespace {

/// Without a branch that depends on where they differ.
bool is_same(const std::array<std::uint64_t, 2>& a, const std::uint64_t (&b)[2]) noexcept {
  return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

/// Splits one peer off the rest of the message; false when it is not what protocol/heap_messages.h says, or names a
/// tablet that is named already or that the heap has itself.
bool read_peer(std::span<const std::byte>& b, const heap& h, trace_peer_set& out) {
  peer_record r;
  if (!read_front(b, r) || r.url_bytes == 0 || r.url_bytes > peer_url_bytes_max) return false;
  const std::uint64_t tail =
      std::uint64_t{r.ranges} * sizeof(tablet_range) + detail::round_up(std::uint64_t{r.url_bytes}, 8);
  if (tail > b.size()) return false;
  trace_peer_box& box = out.boxes.emplace_back();
  std::copy(std::begin(r.heap_id), std::end(r.heap_id), std::begin(box.heap_id));
  std::copy(std::begin(r.ticket), std::end(r.ticket), std::begin(box.ticket));
  std::uint32_t in_all = 0;  // an agent gives a heap no more
  for (std::uint32_t i = 0; i < r.ranges; ++i) {
    tablet_range tablets;
    if (!read_front(b, tablets) || tablets.count == 0 || tablets.count > limits::tablets_max - in_all ||
        tablets.first > heap::tablet_limit - tablets.count)
      return false;
    in_all += tablets.count;
    for (std::uint32_t t = tablets.first; t < tablets.first + tablets.count; ++t) {
      const std::uint64_t word = h.tablet_words()[t].load(std::memory_order_acquire);
      if (*out.route(t) != 0 || (word != 0 && (word & heap::is_backup) == 0)) return false;
      *out.route(t) = static_cast<std::uint8_t>(out.boxes.size());
    }
    out.routes_memory += detail::round_up(tablets.count, detail::page_bytes);
  }
  box.url.assign(reinterpret_cast<const char*>(b.data()), r.url_bytes);
  b = b.subspan(detail::round_up(r.url_bytes, 8));
  return std::all_of(box.url.begin(), box.url.end(), [](char c) { return c > 32 && c < 127; });
}

errc refuse_traced(fabric::answer& out, const heap& h, std::uint64_t cycle) {
  return refuse(out, message_type::trace_peers, errc::stale,
                fmt::format("cycle {} of heap {} is being traced already", cycle, h.name));
}

}  // namespace

std::optional<errc> peers::message(session& s, heap& h, message_type type, body b, fabric::answer& out) {
  if (type != message_type::trace_peers) return {};
  return trace_peers(s, h, b, out);
}

std::string peers::statistics() const {
  return fmt::format(R"({},"references_received":{},"messages_refused":{})", links_.statistics(),
                     references_received_.load(), references_refused_.load());
}

errc peers::trace_peers(session& s, heap& h, body b, fabric::answer& out) {
  constexpr auto type = message_type::trace_peers;
  peers_body m;
  if (!read_front(b, m) || m.zero != 0 || m.count > trace_peers_max) return errc::bad_frame;
  if (!agent_.options.peers) return refuse(out, type, errc::refused, "this agent does not talk to others");
  errc result = errc::ok;
  const auto running = find_cycle(s, h, m.cycle, type, out, result);
  if (running == nullptr) return result;
  if (running->has_traced()) return refuse_traced(out, h, m.cycle);
  trace_peer_set named;
  named.routes = os::reservation(heap::tablet_limit, detail::page_bytes);
  for (std::uint32_t i = 0; i < m.count; ++i)
    if (!read_peer(b, h, named)) return errc::bad_frame;
  if (!b.empty()) return errc::bad_frame;
  if (m.count != 0) links_.start();
  if (!running->set_peers(std::move(named))) return refuse_traced(out, h, m.cycle);
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc peers::open(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::open_peer;
  open_peer_body m;
  if (!read_exactly(b, m) || m.zero != 0) return errc::bad_frame;
  if (m.major != protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("this agent speaks store protocol {}.{}, the other one {}.{}", protocol_major,
                              protocol_minor, m.major, m.minor));
  if (!agent_.options.peers) return refuse(out, type, errc::refused, "this agent does not talk to others");
  auto opened = std::make_unique<peer_session>(*this, s);
  log::debug("store {}: agent {} talks to this one as {}", agent_.options.name,
             detail::readable({m.name, sizeof m.name}), s.peer.name());
  begin_answer(out, type, nullptr, 0);
  s.open(std::move(opened));
  return errc::ok;
}

errc peers::take_remote_references(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::remote_references;
  remote_references_body m;
  if (!read_front(b, m) || m.zero != 0 || m.count == 0 || m.count > remote_references_max ||
      b.size() != std::uint64_t{m.count} * 8)
    return errc::bad_frame;
  std::vector<slot_t> slots(m.count);
  std::memcpy(slots.data(), b.data(), b.size());
  if (!std::all_of(slots.begin(), slots.end(), [](slot_t t) { return t != 0 && t < detail::slot_limit; }))
    return errc::bad_frame;
  const std::shared_ptr<heap> h = heaps_.find(m.heap_id);
  const auto refused = [&](errc code, const std::string& text) {
    references_refused_.fetch_add(1, std::memory_order_relaxed);
    return refuse(out, type, code, text);
  };
  if (h == nullptr) return refused(errc::not_found, "no such heap here");
  const auto running = running_tracer(*h);
  if (running == nullptr || running->cycle != m.cycle)
    return refused(errc::stale, fmt::format("cycle {} does not run", m.cycle));
  if (!running->ticket || !is_same(*running->ticket, m.ticket)) {
    const std::int64_t at = agent_.now().time_since_epoch().count();
    std::int64_t logged = refusal_logged_.load(std::memory_order_relaxed);
    if ((logged == 0 || at - logged > limits::between_refusals_logged.count()) &&
        refusal_logged_.compare_exchange_strong(logged, at, std::memory_order_relaxed))
      log::warn("store {}: {} sends remote references for cycle {} of heap {} without the ticket", agent_.options.name,
                s.peer.name(), m.cycle, h->name);
    // Not the end of the session, which carries other heaps' references: an owner may have named a wrong ticket.
    return refused(errc::access_denied, fmt::format("not the ticket of cycle {}", m.cycle));
  }
  if (!running->receive(slots)) return refused(errc::stale, fmt::format("cycle {} has ended", m.cycle));
  references_received_.fetch_add(slots.size(), std::memory_order_relaxed);
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

}  // namespace fm::agent
