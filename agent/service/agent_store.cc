// Sessions, dispatch and one-sided access; see agent_store.h.
#include "agent_store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/pools/pool.h"

namespace fm::store {

std::unique_ptr<store> store::create(const store_options& o) {
  const auto bad = [](const std::string& text) { throw error(errc::invalid_argument, text); };
  if (!detail::is_power_of_two(o.region_bytes) || o.region_bytes < (64u << 10) ||
      o.region_bytes > detail::home_address::offset_limit)
    bad(fmt::format("region of {} bytes: a power of two from 64 KiB to 32 MiB is needed", o.region_bytes));
  if (o.memory_bytes < 2 * o.region_bytes)
    bad(fmt::format("memory of {} bytes holds fewer than two regions of {} bytes", o.memory_bytes, o.region_bytes));
  if (o.quota_default_bytes != 0 && o.quota_default_bytes < o.region_bytes)
    bad(fmt::format("quota of {} bytes is less than one region of {} bytes", o.quota_default_bytes, o.region_bytes));
  if (o.heaps_max == 0) bad("heaps_max is 0");
  if (o.lease_default_ms == 0 || o.lease_default_ms > o.lease_max_ms)
    bad(fmt::format("lease of {} ms: 1 to {} ms is needed", o.lease_default_ms, o.lease_max_ms));
  if (!(o.clean_below_live_ratio >= 0 && o.clean_below_live_ratio < 1))
    bad(fmt::format("clean_below_live_ratio {} is not in [0, 1)", o.clean_below_live_ratio));
  if (!(o.clean_reserve >= 0 && o.clean_reserve <= 0.5))
    bad(fmt::format("clean_reserve {} is not in [0, 0.5]", o.clean_reserve));
  if (o.trace_threads == 0 || o.trace_threads > 64)
    bad(fmt::format("{} tracing threads: 1 to 64 are possible", o.trace_threads));
  if (o.trace_nice < 0 || o.trace_nice > 19) bad(fmt::format("a nice value of {}: 0 to 19 are possible", o.trace_nice));
  const auto in_range = [](std::uint64_t n) { return n >= 64 && n <= std::uint64_t{1} << 32; };
  if (!in_range(o.trace_queue_slots))
    bad(fmt::format("trace_queue_slots {} is not in [64, 2^32]", o.trace_queue_slots));
  if (o.peer_within <= duration::zero()) bad("peer_within is not more than nothing");
  if (!in_range(o.trace_ghosts_max)) bad(fmt::format("trace_ghosts_max {} is not in [64, 2^32]", o.trace_ghosts_max));
  return std::make_unique<node::agent_store>(o);
}

namespace node {

namespace {

session& session_of(fabric::peer& p) { return *static_cast<session*>(p.user); }

}  // namespace

void begin_answer(fabric::answer& out, message_type type, const void* fixed, std::size_t bytes) {
  const answer_head head{static_cast<std::uint16_t>(type), 0, 0};
  out.payload.clear();
  out.payload.reserve(sizeof head + bytes);
  const auto* p = reinterpret_cast<const std::byte*>(&head);
  out.payload.insert(out.payload.end(), p, p + sizeof head);
  append_answer(out, fixed, bytes);
}

void append_answer(fabric::answer& out, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* p = static_cast<const std::byte*>(data);
  out.payload.insert(out.payload.end(), p, p + bytes);
  const auto body_bytes = static_cast<std::uint32_t>(out.payload.size() - sizeof(answer_head));
  std::memcpy(out.payload.data() + offsetof(answer_head, body_bytes), &body_bytes, sizeof body_bytes);
}

errc refuse(fabric::answer& out, message_type type, errc code, const std::string& text) {
  begin_answer(out, type, text.data(), text.size());
  const auto c = static_cast<std::uint16_t>(code);
  std::memcpy(out.payload.data() + offsetof(answer_head, code), &c, sizeof c);
  return errc::ok;
}

errc not_the_owner(const heap& h, fabric::answer& out, message_type type) {
  if (!h.closed.load()) return errc::stale;
  return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h.name));
}

agent_store::agent_store(const store_options& o)
    : options_(o),
      pool_(o.memory_bytes, o.region_bytes, o.clean_reserve, o.huge_pages),
      paged_(options_, pool_),
      ghosts_(options_, [this] { return all_heaps(); }) {
  if (!o.hooks.background) return;
  try {
    thread_ = std::thread([this] { run(); });
    for (std::uint32_t i = 0; i < o.trace_threads; ++i) tracing_.emplace_back([this, i] { run_tracing(i); });
  } catch (const std::exception& e) {
    join();
    throw error(errc::out_of_memory, fmt::format("threads of store {}: {}", o.name, e.what()));
  }
}

void agent_store::join() {
  stop_.store(true);
  wake();
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  for (std::thread& t : tracing_) t.join();
  ghosts_.stop();
}

agent_store::~agent_store() {
  FM_CHECK(sessions_open_.load() == 0, "a store was destroyed while a peer was connected");
  join();
  for (auto& [id, h] : heaps_) {
    std::lock_guard lock(h->mutex);
    h->close();
  }
  for (auto& [key, p] : pools_) {
    std::lock_guard lock(p->structure);
    p->close();
  }
}

errc agent_store::connected(fabric::peer& p) noexcept {
  try {
    p.user = new session(p, sessions_opened_.fetch_add(1) + 1);
  } catch (const std::bad_alloc&) {
    return errc::out_of_memory;
  }
  sessions_open_.fetch_add(1);
  return errc::ok;
}

void agent_store::disconnected(fabric::peer& p) noexcept {
  session* s = &session_of(p);
  FM_CHECK(s->in_flight.load() == 0, "a transport forgot to call memory_done");
  if (space* sp = s->space.load(std::memory_order_acquire); sp != nullptr) paged_.disconnected(*s, *sp, now());
  if (heap* h = s->opened.load(std::memory_order_acquire); h != nullptr) {
    std::lock_guard lock(h->mutex);
    if (h->owner == s) {
      h->owner = nullptr;
      h->lease_until = now() + std::chrono::milliseconds(h->lease_ms);
      if (!h->closed.load())
        spdlog::log(heap_level(), "store {}: heap {} lost its owner {}; it has {} ms to come back", options_.name,
                    h->name, p.name(), h->lease_ms);
    }
  }
  forget_pool_session(*s);
  p.user = nullptr;
  delete s;
  sessions_open_.fetch_sub(1);
  wake();
}

void agent_store::forget_pool_session(session& s) {
  shared_pool* const p = s.pool.load(std::memory_order_acquire);
  if (p == nullptr) return;
  std::lock_guard lock(p->structure);
  if (s.client->owner == &s) s.client->owner = nullptr;  // its lease runs on from when it was last heard of
}

errc agent_store::message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept {
  message_head head;
  if (payload.size() < sizeof head) return errc::bad_frame;
  std::memcpy(&head, payload.data(), sizeof head);
  if (head.zero != 0 || head.body_bytes != payload.size() - sizeof head) return errc::bad_frame;
  const auto type = static_cast<message_type>(head.type);
  errc result = errc::ok;
  try {
    result = dispatch(session_of(p), type, payload.subspan(sizeof head), out);
  } catch (const error& e) {
    result = refuse(out, type, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    result = refuse(out, type, errc::agent_full, "the agent is out of memory");
  } catch (const std::exception& e) {
    spdlog::error("store {}: message {} of {}: {}", options_.name, head.type, p.name(), e.what());
    return errc::bad_frame;
  }
  if (result != errc::ok)
    spdlog::warn("store {}: message {} of {} breaks the protocol: {}", options_.name, head.type, p.name(),
                 to_string(result));
  return result;
}

errc agent_store::dispatch(session& s, message_type type, body b, fabric::answer& out) {
  if (type == message_type::open_heap) {
    const std::lock_guard one(s.opening);
    return open_heap(s, b, out);
  }
  if (type == message_type::pool_open) {
    const std::lock_guard one(s.opening);
    return open_pool(s, b, out);
  }
  if (type == message_type::open_peer) {
    const std::lock_guard one(s.opening);
    return open_peer(s, b, out);
  }
  if (s.is_peer.load(std::memory_order_acquire))
    return type == message_type::ghosts ? take_ghosts(s, b, out) : errc::bad_frame;
  if (shared_pool* const shared = s.pool.load(std::memory_order_acquire); shared != nullptr)
    return pool_message(s, *shared, type, b, out);
  if (const auto t = static_cast<std::uint16_t>(type); paged_service::serves(t)) return paged_.message(s, t, b, out);
  heap* const h = s.opened.load(std::memory_order_acquire);
  if (h == nullptr) return errc::bad_frame;  // nothing can be said before the heap is open
  if (s.revoked.load()) return errc::stale;
  if (h->closed.load()) return refuse(out, type, errc::not_found, fmt::format("heap {} is closed", h->name));
  switch (type) {
    case message_type::close_heap: return close_heap(s, *h, b, out);
    case message_type::register_types: return register_types(s, *h, b, out);
    case message_type::grant_tablets: return grant_tablets(s, *h, b, out);
    case message_type::open_region: return open_region(s, *h, b, out);
    case message_type::region_info: return region_info(s, *h, b, out);
    case message_type::seal_region: return seal_region(s, *h, b, out);
    case message_type::index: return index(s, *h, b, out);
    case message_type::fetch_slot: return fetch_slot(s, *h, b, out);
    case message_type::retired_region: return retired_region(s, *h, b, out);
    case message_type::read_entries: return read_entries(s, *h, b, out);
    case message_type::audit: return audit(s, *h, b, out);
    case message_type::statistics: return heap_statistics(s, *h, b, out);
    case message_type::census: return census(s, *h, b, out);
    case message_type::begin_cycle: return begin_cycle(s, *h, b, out);
    case message_type::add_newer: return add_newer(s, *h, b, out);
    case message_type::trace: return trace(s, *h, b, out);
    case message_type::trace_peers: return trace_peers(s, *h, b, out);
    case message_type::read_marks: return read_marks(s, *h, b, out);
    case message_type::release_slots: return release_slots(s, *h, b, out);
    case message_type::end_cycle: return end_cycle(s, *h, b, out);
    case message_type::evacuate: return evacuate(s, *h, b, out);
    case message_type::renew:
      if (!b.empty()) return errc::bad_frame;
      begin_answer(out, type, nullptr, 0);
      return errc::ok;
    default: return errc::bad_frame;
  }
}

std::byte* agent_store::memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                               fabric::access how) noexcept {
  session& s = session_of(p);
  if (const shared_pool* const shared = s.pool.load(std::memory_order_acquire); shared != nullptr) {
    if (how != fabric::access::read || s.revoked.load()) return nullptr;
    region* const r = pool_.enter(where.region, where.generation);
    if (r == nullptr) return nullptr;
    if (r->tenant.load(std::memory_order_acquire) == shared && bytes <= pool_.region_bytes() &&
        where.offset <= pool_.region_bytes() - bytes) {
      s.in_flight.fetch_add(1);
      return r->memory.base() + where.offset;
    }
    pool_.leave(*r);
    return nullptr;
  }
  if (space* const sp = s.space.load(std::memory_order_acquire)) return paged_.memory(s, *sp, where, bytes);
  heap* const h = s.opened.load(std::memory_order_acquire);
  if (h == nullptr) return nullptr;
  // Announced before the test of `revoked`, which open_heap sets before it looks at the count: one of them sees the other.
  s.in_flight.fetch_add(1);
  region* r = nullptr;
  if (!s.revoked.load() && !h->closed.load()) r = pool_.enter(where.region, where.generation);
  if (r != nullptr) {
    bool allowed = h->owns(*r) && bytes <= pool_.region_bytes() && where.offset <= pool_.region_bytes() - bytes;
    if (allowed && how == fabric::access::write) {
      allowed = r->writable.load(std::memory_order_acquire);
      if (allowed && where.offset < r->append_end.load(std::memory_order_acquire)) {
        std::lock_guard lock(h->mutex);  // into a hole before the last extent
        allowed = !r->overlaps(where.offset, bytes);
      }
      if (allowed && !r->confirmed.load(std::memory_order_relaxed)) r->confirmed.store(true, std::memory_order_relaxed);
    }
    if (allowed) return r->memory.base() + where.offset;
    pool_.leave(*r);
  }
  s.in_flight.fetch_sub(1);
  return nullptr;
}

void agent_store::memory_done(fabric::peer& p, std::uint32_t number) noexcept {
  region* r = pool_.find(number);
  FM_CHECK(r != nullptr, "memory_done for a region that was never handed out");
  pool_.leave(*r);
  session_of(p).in_flight.fetch_sub(1);
}

}  // namespace node
}  // namespace fm::store
