// Sessions, dispatch and one-sided access; see agent_store.h.
// Invariant owned here: a session is made when a peer connects and destroyed when it disconnects, after its last
// operation.
// Called by the transports, on their threads.
#include "agent_store.h"

#include "base/log.h"
#include <fmt/format.h>

#include "agent/base/limits.h"
#include "agent/pools/backup_session.h"
#include "agent/spaces/space_session.h"

namespace fm::agent {

std::unique_ptr<store> store::create(const store_options& o) {
  const auto bad = [](const std::string& text) { throw error(errc::invalid_argument, text); };
  if (!detail::is_power_of_two(o.region_bytes) || o.region_bytes < limits::region_bytes_min ||
      o.region_bytes > detail::home_address::offset_limit)
    bad(fmt::format("region of {} bytes: a power of two from 64 KiB to 32 MiB is needed", o.region_bytes));
  if (o.memory_bytes < limits::regions_min * o.region_bytes)
    bad(fmt::format("memory of {} bytes holds fewer than two regions of {} bytes", o.memory_bytes, o.region_bytes));
  if (o.quota_default_bytes != 0 && o.quota_default_bytes < o.region_bytes)
    bad(fmt::format("quota of {} bytes is less than one region of {} bytes", o.quota_default_bytes, o.region_bytes));
  if (o.heaps_max == 0) bad("heaps_max is 0");
  if (o.lease_default_ms == 0 || o.lease_default_ms > o.lease_max_ms)
    bad(fmt::format("lease of {} ms: 1 to {} ms is needed", o.lease_default_ms, o.lease_max_ms));
  if (!(o.clean_below_live_ratio >= 0 && o.clean_below_live_ratio < 1))
    bad(fmt::format("clean_below_live_ratio {} is not in [0, 1)", o.clean_below_live_ratio));
  if (!(o.clean_reserve >= 0 && o.clean_reserve <= limits::clean_reserve_max))
    bad(fmt::format("clean_reserve {} is not in [0, 0.5]", o.clean_reserve));
  if (o.trace_threads == 0 || o.trace_threads > limits::trace_threads_max)
    bad(fmt::format("{} tracing threads: 1 to 64 are possible", o.trace_threads));
  if (o.trace_nice < 0 || o.trace_nice > limits::nice_max)
    bad(fmt::format("a nice value of {}: 0 to 19 are possible", o.trace_nice));
  const auto in_range = [](std::uint64_t n) { return n >= limits::trace_slots_min && n <= limits::trace_slots_max; };
  if (!in_range(o.trace_queue_slots))
    bad(fmt::format("trace_queue_slots {} is not in [64, 2^32]", o.trace_queue_slots));
  if (o.pool_tenure_ms < limits::tenure_ms_min || o.pool_tenure_ms > limits::tenure_ms_max)
    bad(fmt::format("a pool tenure of {} ms: {} to {} ms are possible", o.pool_tenure_ms, limits::tenure_ms_min,
                    limits::tenure_ms_max));
  if (o.peer_within <= duration::zero()) bad("peer_within is not more than nothing");
  if (!in_range(o.trace_references_max))
    bad(fmt::format("trace_references_max {} is not in [64, 2^32]", o.trace_references_max));
  return std::make_unique<agent_store>(o);
}

namespace {

session& session_of(fabric::peer& p) { return *static_cast<session*>(p.user); }

}  // namespace

agent_store::agent_store(const store_options& o)
    : agent_(o),
      regions_(o.memory_bytes, o.region_bytes, o.clean_reserve, o.huge_pages, o.shared_regions),
      spaces_(agent_, regions_),
      heaps_(agent_, regions_),
      pools_(agent_, regions_),
      peers_(agent_, heaps_),
      cycles_(agent_, heaps_, bell_, peers_.bell()),
      evacuations_(agent_, heaps_, [this] { bell_.ring(); }) {
  heaps_.add(cycles_);
  heaps_.add(peers_);
  heaps_.add(evacuations_);
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
  agent_.wake();
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  for (std::thread& t : tracing_) t.join();
  peers_.stop();
}

agent_store::~agent_store() {
  FM_CHECK(sessions_open_.load() == 0, "a store was destroyed while a peer was connected");
  join();
  heaps_.close();
  pools_.close();
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
  if (tenant* const t = s->opened(); t != nullptr) t->disconnected();
  p.user = nullptr;
  delete s;
  sessions_open_.fetch_sub(1);
  agent_.wake();
}

errc agent_store::message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept {
  message_head head;
  if (payload.size() < sizeof head) return errc::bad_frame;
  std::memcpy(&head, payload.data(), sizeof head);
  if (head.zero != 0 || head.body_bytes != payload.size() - sizeof head) return errc::bad_frame;
  const auto type = static_cast<message_type>(head.type);
  errc result = errc::ok;
  try {
    result = answer_of(session_of(p), type, payload.subspan(sizeof head), out);
  } catch (const std::exception& e) {  // perhaps there is no memory for a refusal, either
    log::error("store {}: message {} of {}: {}", agent_.options.name, head.type, p.name(), e.what());
    return errc::bad_frame;
  }
  if (result != errc::ok)
    log::warn("store {}: message {} of {} breaks the protocol: {}", agent_.options.name, head.type, p.name(),
              to_string(result));
  return result;
}

errc agent_store::answer_of(session& s, message_type type, body b, fabric::answer& out) {
  try {
    return dispatch(s, type, b, out);
  } catch (const error& e) {
    return refuse(out, type, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return refuse(out, type, errc::agent_full, "the agent is out of memory");
  }
}

errc agent_store::dispatch(session& s, message_type type, body b, fabric::answer& out) {
  const bool is_heap = type == message_type::open_heap, is_detached = type == message_type::attach_heap,
             is_pool = type == message_type::pool_open, is_peer = type == message_type::open_peer,
             is_space = type == as_type(paged_message::open_space),
             is_backup = type == as_type(backup_message::open_backup);
  if (is_heap || is_detached || is_pool || is_peer || is_space || is_backup) {
    const std::lock_guard one(s.opening);
    if (s.opened() != nullptr) return errc::bad_frame;
    if (is_heap) return heaps_.open(s, b, out);
    if (is_detached) return heaps_.attach(s, b, out);
    if (is_pool) return pools_.open(s, b, out);
    if (is_backup) return pools_.open_backup(s, b, out);
    return is_peer ? peers_.open(s, b, out) : spaces_.open(s, b, out);
  }
  tenant* const opened = s.opened();
  return opened == nullptr ? errc::bad_frame : opened->message(type, b, out);  // nothing can be said before it is open
}

std::byte* agent_store::memory(fabric::peer& p, const fabric::remote& where, std::uint64_t bytes,
                               fabric::access how) noexcept {
  tenant* const opened = session_of(p).opened();
  return opened == nullptr ? nullptr : opened->memory(where, bytes, how);
}

void agent_store::memory_done(fabric::peer& p, std::uint32_t number) noexcept {
  region* r = regions_.find(number);
  FM_CHECK(r != nullptr, "memory_done for a region that was never handed out");
  regions_.leave(*r);
  session_of(p).in_flight.fetch_sub(1);
}

}  // namespace fm::agent
