// fm::pool: its agents, and which of them a pointer is for. Owns the list of agents, which is fixed once the pool is
// open. The work with one agent is done by agent_client and reader. Programs call it, from any thread.
#include <farmem/pool/pool.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "agent/embedded/embedded.h"
#include "base/pool_limits.h"
#include "pool_impl.h"

namespace fm {

using namespace pool_detail;
using protocol::message_type;

pool_tenant pool_tenant::random() {
  pool_tenant t;
  while (t.is_empty())
    if (::getrandom(t.words.data(), sizeof t.words, 0) != sizeof t.words)
      throw error(errc::unsupported, "the system has no random numbers");
  return t;
}

std::string pool_tenant::text() const { return fmt::format("{:016x}{:016x}", words[0], words[1]); }

pool_tenant pool_tenant::parse(const std::string& text) {
  pool_tenant t;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() != 32 || !std::all_of(text.begin(), text.end(), [&](char c) { return digit(c) >= 0; }))
    throw error(errc::invalid_argument, "a tenant is 32 hexadecimal digits in lower case");
  for (std::size_t i = 0; i < 32; ++i)
    t.words[i / 16] = t.words[i / 16] << 4 | static_cast<std::uint64_t>(digit(text[i]));
  if (t.is_empty()) throw error(errc::invalid_argument, "a tenant is not all zeros");
  return t;
}

pool::impl::impl(pool_options o) : options(std::move(o)) {
  check();
  events.start(options.on_agent_event);
  try {
    options.replicas > 1 ? open_replicated() : open();
  } catch (...) {
    events.stop();  // what is closed now is no news
    throw;
  }
}

void pool::impl::open() {
  for (const std::string& url : options.agents) {
    if (url.starts_with("local:") && options.in_process == nullptr && !local) {
      local = agent::start_embedded({agent::embedded_for::pool, options.local_memory, options.local_region});
    }
    agents.push_back(
        std::make_unique<agent_client>(url, options, options.in_process ? options.in_process : local.get(), events));
    for (std::size_t i = 0; i + 1 < agents.size(); ++i)
      if (agents[i]->instance() == agents.back()->instance())
        throw error(errc::invalid_argument, url + ": this agent is named twice");
  }
}

/// A part for each agent, which the others may take over, in the order of the list.
void pool::impl::open_replicated() {
  const std::size_t n = options.agents.size();
  parts = std::make_unique<copies>(events, n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::string> urls(options.agents.begin() + static_cast<std::ptrdiff_t>(i), options.agents.end());
    urls.insert(urls.end(), options.agents.begin(), options.agents.begin() + static_cast<std::ptrdiff_t>(i));
    agents.push_back(std::make_unique<agent_client>(static_cast<std::uint32_t>(i + 1), urls, options, events, *parts));
    // Of an older pool, one agent may have several parts by now.
    for (std::size_t j = 0; j < i && agents[i]->has_made(); ++j)
      if (agents[j]->has_made() && agents[i]->first_primary() == agents[j]->first_primary())
        throw error(errc::invalid_argument, fmt::format("{} and {} are one agent", options.agents[j], urls.front()));
  }
  // What is made here begins with all its replicas, or not at all. Later it may go on with fewer.
  const time_point until = clock::now() + options.connect_within;
  for (const auto& a : agents) {
    while (a->has_made() && !a->await_copy(std::min(until, clock::now() + pool_limits::until_paired))) {
      const result<agent_client::replica_state> now = a->replicas();
      if (!now) throw error(now.error());
      if (!now->backup.empty() && !a->tells_state()) break;
      if (clock::now() >= until)
        throw error(errc::under_replicated,
                    fmt::format("pool {}: no other agent becomes the backup of {}", options.name, a->url()));
    }
  }
  parts->opened();
}

errc pool::impl::foreign(const pool_address& p) const noexcept {
  if (agents.empty()) return errc::cancelled;
  const std::uint64_t tenant[2] = {options.tenant.words[0], options.tenant.words[1]};
  const bool own = static_cast<std::uint8_t>(p.instance()) == blocks::instance_tag(tenant, options.name);
  return own && !p.is_null() ? errc::agent_lost : errc::access_denied;
}

void pool::impl::check() const {
  const auto bad = [](const std::string& what) { throw error(errc::invalid_argument, "pool_options::" + what); };
  if (options.agents.empty()) bad("agents is empty");
  if (options.name.empty() || options.name.size() >= sizeof(protocol::pool_open_body::name))
    bad(fmt::format("name \"{}\": 1 to {} bytes are possible", options.name,
                    sizeof(protocol::pool_open_body::name) - 1));
  if (options.name.find('\0') != std::string::npos) bad("name has a zero byte");
  if (options.tenant.is_empty())
    bad("tenant is empty: give pool_tenant::random(), or the tenant of the process that made the pool");
  if (!detail::is_power_of_two(options.block) || options.block < blocks::frame_bytes_min ||
      options.block > blocks::block_bytes_max)
    bad(fmt::format("block {}: a power of two from 4 KiB to 1 MiB is needed", options.block));
  if (options.arenas < 1 || options.arenas > 64) bad(fmt::format("arenas {}: 1 to 64 are possible", options.arenas));
  if (!(options.compact_above >= 0 && options.compact_above <= 1))
    bad(fmt::format("compact_above {} is not in [0, 1]", options.compact_above));
  for (std::size_t i = 1; i < options.identity_by_class.size(); ++i)
    if (options.identity_by_class[i].slot_bytes <= options.identity_by_class[i - 1].slot_bytes)
      bad(fmt::format("identity_by_class: {} bytes after {}, which must rise", options.identity_by_class[i].slot_bytes,
                      options.identity_by_class[i - 1].slot_bytes));
  for (std::size_t i = 0; i < options.compact_above_by_class.size(); ++i) {
    const pool_class_threshold& t = options.compact_above_by_class[i];
    if (!(t.compact_above >= 0 && t.compact_above <= 1))
      bad(fmt::format("compact_above_by_class: {} is not in [0, 1]", t.compact_above));
    if (i != 0 && t.slot_bytes <= options.compact_above_by_class[i - 1].slot_bytes)
      bad(fmt::format("compact_above_by_class: {} bytes after {}, which must rise", t.slot_bytes,
                      options.compact_above_by_class[i - 1].slot_bytes));
  }
  if (options.replicas < 1 || options.replicas > 2)
    bad(fmt::format("replicas {}: 1 or 2 are possible", options.replicas));
  if (options.replicas > 1) {
    if (options.agents.size() < options.replicas || options.agents.size() > pool_limits::replicated_agents_max)
      bad(fmt::format("replicas {}: {} to {} agents are needed, and {} are named", options.replicas, options.replicas,
                      pool_limits::replicated_agents_max, options.agents.size()));
    const auto kind = [](const std::string& url) { return url.substr(0, url.find(':')); };
    for (std::size_t i = 0; i < options.agents.size(); ++i) {
      if (kind(options.agents[i]) == "local") bad("replicas: a local: agent ends with this process");
      if (kind(options.agents[i]) != kind(options.agents.front()))
        bad("replicas: agents are of two kinds of addresses");
      if (std::find(options.agents.begin(), options.agents.begin() + static_cast<std::ptrdiff_t>(i),
                    options.agents[i]) != options.agents.begin() + static_cast<std::ptrdiff_t>(i))
        bad(options.agents[i] + " is named twice");
    }
    const auto is_random = [](pool_identity i) { return i != pool_identity::birth && i != pool_identity::offset; };
    if (is_random(options.identity) || std::any_of(options.identity_by_class.begin(), options.identity_by_class.end(),
                                                   [&](const pool_class_identity& c) { return is_random(c.identity); }))
      bad("replicas: random ids are of one agent: pool_identity::birth or offset is needed");
  }
  if (options.lease < std::chrono::milliseconds(1)) bad("lease is shorter than a millisecond");
  if (options.keep < duration::zero()) bad("keep is negative");
}

namespace {

/// What the agent said to a change of an object, with where it is now.
errc take_where(agent_client& a, const reply& r, pool_address& p) {
  protocol::pool_where w{};
  if (r.body().size() != sizeof w) return errc::bad_frame;
  std::memcpy(&w, r.body().data(), sizeof w);
  pool_detail::take_where(a, w, p);
  return errc::ok;
}

/// Zeros of an agent that knows no such thing.
protocol::pool_expiries_answer expiries_of(agent_client& a) {
  protocol::pool_expiries_answer e{};
  if (!a.knows_expiry()) return e;
  const reply r = a.call(message_type::pool_expiries, {}, {}, a.deadline());
  if (r.code != errc::ok || r.body().size() != sizeof e)
    throw error(r.code == errc::ok ? errc::bad_frame : r.code, a.url() + ": statistics: " + r.text());
  std::memcpy(&e, r.body().data(), sizeof e);
  return e;
}

reply send_alloc(agent_client& a, std::span<const std::byte> payload, std::uint64_t expires_ms) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  if (expires_ms == 0)
    return a.change(message_type::pool_alloc, protocol::pool_alloc_body{{}, bytes, thread_number()}, payload,
                    a.deadline());
  const protocol::pool_alloc_expiring_body b{{}, bytes, thread_number(), expires_ms};
  return a.change(message_type::pool_alloc_expiring, b, payload, a.deadline());
}

pool_identity identity_of(std::uint16_t naming) {
  switch (static_cast<blocks::naming>(naming)) {
    case blocks::naming::birth: break;
    case blocks::naming::offset: return pool_identity::offset;
    case blocks::naming::random_8: return pool_identity::random_8;
    case blocks::naming::random_12: return pool_identity::random_12;
    case blocks::naming::random_16: return pool_identity::random_16;
  }
  return pool_identity::birth;
}

}  // namespace

std::string pool_detail::text_of(const pool_address& p) {
  return fmt::format("object {:08x}:{}:{}:{}", p.instance(), p.block(), p.index(), p.generation());
}

pool::pool(const pool_options& options) {
  const detail::section_break outside;  // also of clients that are closed again because one of them fails
  impl_ = std::make_unique<impl>(options);
}
pool::~pool() { close(); }
void pool::close() noexcept {
  const detail::section_break outside;
  impl_->events.stop();  // its function may be using the pool
  impl_->agents.clear();
  impl_->local.reset();
}

const pool_tenant& pool::tenant() const noexcept { return impl_->options.tenant; }

std::uint64_t pool::object_bytes_max() const noexcept {
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& a : impl_->agents) least = std::min<std::uint64_t>(least, a->layout().bytes_max());
  return impl_->agents.empty() ? 0 : least;
}

void pool::drop_connections() noexcept {
  for (const auto& a : impl_->agents) a->session().drop_connection(a->session().generation());
}

std::string pool::describe(const pool_address& p, errc why) const {
  if (impl_->agents.empty()) return closed;
  if (p.is_null()) return "a null pointer";
  const agent_client* const a = impl_->agent_of(p);
  if (a == nullptr)
    return text_of(p) +
           (why == errc::agent_lost
                ? " is of this pool at an agent that was started again since, or that is not one of the pool's"
                : " is of another pool");
  return fmt::format("{}: {}{}", a->url(), text_of(p),
                     why == errc::not_found         ? " does not exist, or not any more"
                     : why == errc::layout_mismatch ? " has another size"
                     : why == errc::unsupported
                         ? fmt::format(": the agent speaks version 3.{} of pools, which has no such call", a->minor())
                         : "");
}

// ---- changes ----

result<pool_address> pool::try_alloc_bytes(std::span<const std::byte> payload, const pool_alloc_options& how) {
  if (impl_->agents.empty()) return fail(errc::cancelled, closed);
  const result<std::uint64_t> expires_ms = impl_->expiry_of(how);
  if (!expires_ms) return tl::unexpected<error>(expires_ms.error());
  if (payload.empty() || payload.size() > object_bytes_max())
    return fail(errc::too_large,
                fmt::format("an object of {} bytes: 1 to {} are possible", payload.size(), object_bytes_max()));
  const detail::section_break outside;
  const std::size_t n = impl_->agents.size();
  const std::size_t first = impl_->next.fetch_add(1, std::memory_order_relaxed);
  const time_point give_up = clock::now() + impl_->options.memory_within;
  errc why = errc::ok;
  std::string text;
  for (;;) {
    bool waits = false;
    for (std::size_t i = 0; i < n; ++i) {
      agent_client& a = *impl_->agents[(first + i) % n];
      const reply r = send_alloc(a, payload, *expires_ms);
      why = r.code;
      if (why == errc::quota_exceeded || why == errc::agent_full || why == errc::agent_lost) {
        text = a.url() + ": " + r.text();
        continue;  // another one may have room
      }
      if (why != errc::ok) return fail(why, a.url() + ": " + r.text());
      protocol::pool_alloc_answer got{};
      if (r.body().size() != sizeof got) return fail(errc::bad_frame, a.url());
      std::memcpy(&got, r.body().data(), sizeof got);
      if (got.wait == 0) {
        const protocol::pool_object& o = got.at.object;
        a.learn_word(o.vblock, got.at.word);
        return pool_address::make(a.instance(), o.vblock, o.generation, o.index, o.slot);
      }
      waits = true;
      why = errc::agent_full;
      text = a.url() + ": frames are waiting for other clients to pass an epoch";
      a.pass_soon();
    }
    if (!waits || clock::now() >= give_up) return fail(why, text);
    std::this_thread::yield();
  }
}

result<void> pool::try_write_bytes(pool_address& p, std::span<const std::byte> payload) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  if (payload.size() > a->layout().bytes_max())
    return fail(errc::layout_mismatch, fmt::format("{} has another size than {} bytes", text_of(p), payload.size()));
  const protocol::pool_write_body b{{}, object_of(p), static_cast<std::uint32_t>(payload.size()), 0};
  const reply r = a->change(message_type::pool_write, b, payload, a->deadline());
  if (r.code != errc::ok) return fail(r.code, a->url() + ": " + text_of(p) + ": " + r.text());
  if (const errc e = take_where(*a, r, p); e != errc::ok) return fail(e, a->url());
  return {};
}

result<void> pool::try_free(const pool_address& p) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  const reply r = a->change(message_type::pool_free, protocol::pool_object_body{{}, object_of(p)}, {}, a->deadline());
  if (r.code != errc::ok) return fail(r.code, a->url() + ": " + text_of(p) + ": " + r.text());
  return {};
}

result<void> pool::try_release(pool_address& p) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  const reply r =
      a->change(message_type::pool_release, protocol::pool_object_body{{}, object_of(p)}, {}, a->deadline());
  if (r.code != errc::ok) return fail(r.code, a->url() + ": " + text_of(p) + ": " + r.text());
  if (const errc e = take_where(*a, r, p); e != errc::ok) return fail(e, a->url());
  return {};
}

// ---- reads ----

errc pool::read_into(pool_address& p, std::span<std::byte> to) noexcept {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return impl_->foreign(p);
  if (to.size() > a->layout().bytes_max()) return errc::layout_mismatch;
  target t{to.data(), static_cast<std::uint32_t>(to.size()), nullptr};
  return impl_->reader_of(*a).read(p, t, nullptr);
}

result<std::vector<std::byte>> pool::try_read_bytes(pool_address& p) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return fail(impl_->foreign(p), describe(p, impl_->foreign(p)));
  std::vector<std::byte> bytes;
  std::string text;
  target t{nullptr, 0, &bytes};
  if (const errc e = impl_->reader_of(*a).read(p, t, &text); e != errc::ok)
    return fail(e, describe(p, e) + ": " + text);
  return bytes;
}

pool_read pool::direct_read_into(pool_address p, std::span<std::byte> to) noexcept {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return pool_read::unknown;
  if (to.size() > a->layout().bytes_max()) return pool_read::wrong_size;
  target t{to.data(), static_cast<std::uint32_t>(to.size()), nullptr};
  return impl_->reader_of(*a).direct(p, t);
}

pool_read pool::scan_read_into(pool_address& p, std::span<std::byte> to) {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return pool_read::unknown;
  if (to.size() > a->layout().bytes_max()) return pool_read::wrong_size;
  target t{to.data(), static_cast<std::uint32_t>(to.size()), nullptr};
  return impl_->reader_of(*a).scan(p, t);
}

errc pool::rpc_read_into(pool_address& p, std::span<std::byte> to) noexcept {
  agent_client* const a = impl_->agent_of(p);
  if (a == nullptr) return impl_->foreign(p);
  if (to.size() > a->layout().bytes_max()) return errc::layout_mismatch;
  target t{to.data(), static_cast<std::uint32_t>(to.size()), nullptr};
  return impl_->reader_of(*a).ask(p, t, nullptr);
}

// ---- compaction and introspection ----

pool_compaction pool::compact() {
  impl_->require_open();
  pool_compaction all;
  for (const auto& a : impl_->agents) {
    protocol::pool_compact_answer last{};
    protocol::pool_compact_rest rest{};
    const bool rests = a->minor() >= protocol::minor_of_rests;
    time_point until = time_point::max();
    for (std::uint32_t begin = 1;; begin = 0) {
      const protocol::pool_compact_body b{begin, rests ? 1u : 0u};
      const reply r = a->call(message_type::pool_compact, std::as_bytes(std::span(&b, 1)), {}, a->deadline());
      if (r.code != errc::ok || r.body().size() != sizeof last + (rests ? sizeof rest : 0))
        throw error(r.code == errc::ok ? errc::bad_frame : r.code, a->url() + ": compaction: " + r.text());
      std::memcpy(&last, r.body().data(), sizeof last);
      if (rests) std::memcpy(&rest, r.body().data() + sizeof last, sizeof rest);
      if (last.done == 0) {
        // Pacing: nothing happens that one could wait for.
        if (rest.ns != 0)
          std::this_thread::sleep_for(
              std::min<duration>(std::chrono::nanoseconds(rest.ns), pool_limits::compaction_rest_most));
        continue;
      }
      // What was emptied is free when all clients have passed an epoch, which they are just being asked for.
      if (until == time_point::max()) until = clock::now() + pool_limits::graves_within;
      if (last.waiting == 0 || clock::now() >= until) break;
      std::this_thread::sleep_for(pool_limits::graves_look_every);
    }
    all.merges_tried += last.merges_tried;
    all.merges_made += last.merges_made;
    all.objects_moved += last.objects_moved;
    all.bytes_returned += last.bytes_returned;
  }
  return all;
}

pool_stats pool::stats() const {
  impl_->require_open();
  pool_stats s;
  for (const auto& a : impl_->agents) {
    for (const sections::stripe& k : a->sections().all()) {
      s.direct_reads += k.direct.load(std::memory_order_relaxed);
      s.corrected_reads += k.corrected.load(std::memory_order_relaxed);
      s.torn += k.torn.load(std::memory_order_relaxed);
      s.moved += k.moved.load(std::memory_order_relaxed);
    }
    const agent_client::counters& c = a->count;
    s.rpc_reads += c.rpc_reads.load(std::memory_order_relaxed);
    s.scans += c.scans.load(std::memory_order_relaxed);
    s.words_refreshed += c.words_refreshed.load(std::memory_order_relaxed);
    s.chunks_read += c.chunks_read.load(std::memory_order_relaxed);
    s.discarded += c.discarded.load(std::memory_order_relaxed);
    s.reconnects += c.reconnects.load(std::memory_order_relaxed);
    s.epochs_passed += c.epochs_passed.load(std::memory_order_relaxed);
    s.stalls += c.stalls.load(std::memory_order_relaxed);
    const histogram_snapshot h = c.corrections.snapshot();
    s.corrections.count += h.count;
    s.corrections.sum_ns += h.sum_ns;
    s.corrections.max_ns = std::max(s.corrections.max_ns, h.max_ns);
    for (std::size_t i = 0; i < h.buckets.size(); ++i) s.corrections.buckets[i] += h.buckets[i];

    const reply r = a->call(message_type::pool_statistics, {}, {}, a->deadline());
    protocol::pool_statistics_answer n{};
    if (r.code != errc::ok || r.body().size() < sizeof n)
      throw error(r.code == errc::ok ? errc::bad_frame : r.code, a->url() + ": statistics: " + r.text());
    std::memcpy(&n, r.body().data(), sizeof n);
    if (n.classes > blocks::class_count ||
        r.body().size() != sizeof n + n.classes * sizeof(protocol::pool_class_record))
      throw error(errc::bad_frame, a->url() + ": statistics");
    pool_agent_stats g;
    g.url = a->url();
    g.quota_bytes = n.quota_bytes;
    g.frame_bytes = n.frame_bytes;
    g.waiting_bytes = n.waiting_bytes;
    g.books_bytes = n.books_bytes;
    g.region_bytes = n.region_bytes;
    g.epoch = n.epoch;
    g.vblocks = n.vblocks;
    g.vblocks_reused = n.vblocks_reused;
    g.vblocks_retired = n.vblocks_retired;
    g.allocations = n.allocations;
    g.frees = n.frees;
    g.writes = n.writes;
    g.reads = n.reads;
    g.releases = n.releases;
    g.compaction_steps = n.steps;
    g.longest_step_ns = n.step_ns_max;
    g.clients = n.clients;
    g.clients_fenced = n.clients_fenced;
    if (impl_->options.replicas > 1) {
      const result<agent_client::replica_state> now = a->replicas();
      if (!now) throw error(now.error());
      g.term = now->term;
      g.backup = now->backup;
    }
    const protocol::pool_expiries_answer e = expiries_of(*a);
    g.expiring = e.expiring;
    g.expired = e.expired;
    for (std::uint32_t i = 0; i < n.classes; ++i) {
      protocol::pool_class_record k{};
      std::memcpy(&k, r.body().data() + sizeof n + i * sizeof k, sizeof k);
      g.classes.push_back({k.slot_bytes, k.block_bytes, identity_of(k.naming), k.compacted != 0, k.blocks, k.slots,
                           k.objects, k.payload_bytes, k.aliases, k.merges_tried, k.merges_made, k.merges_in_conflict,
                           k.ids_in_conflict, k.objects_moved, k.slots_kept});
    }
    s.agents.push_back(std::move(g));
  }
  return s;
}

pool_report pool::verify() const {
  impl_->require_open();
  pool_report all;
  for (const auto& a : impl_->agents) {
    const reply r = a->call(message_type::pool_audit, {}, {}, a->deadline());
    protocol::audit_answer n{};
    if (r.code != errc::ok || r.body().size() < sizeof n)
      throw error(r.code == errc::ok ? errc::bad_frame : r.code, a->url() + ": verify: " + r.text());
    std::memcpy(&n, r.body().data(), sizeof n);
    const auto text = r.body().subspan(sizeof n);
    all.objects += n.objects;
    all.payload_bytes += n.live_bytes;
    all.faults += n.faults;
    all.text += detail::readable_text(text, true);
  }
  return all;
}

}  // namespace fm
