// What clients of pools ask for, and what the store does for pools of its own accord; see shared_pool.h.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <shared_mutex>

#include "agent/service/agent_store.h"
#include "pool.h"

namespace fm::store::node {

namespace {

constexpr std::uint32_t keep_max_ms = 600'000;
constexpr std::uint32_t steps_back_max = 4;  // of background compaction, one after the other
constexpr auto ask_retry = std::chrono::milliseconds(5);

bool sound(const pool_settings& s, std::uint64_t region_bytes) {
  return detail::is_power_of_two(s.block_bytes) && s.block_bytes >= blocks::frame_bytes_min &&
         s.block_bytes <= std::min(blocks::block_bytes_max, region_bytes) && s.arenas >= 1 && s.arenas <= 64 &&
         s.compact_above <= 65536 && s.fallback <= static_cast<std::uint8_t>(blocks::fallback::none) &&
         std::all_of(std::begin(s.naming), std::end(s.naming),
                     [](std::uint8_t n) { return blocks::exists(static_cast<blocks::naming>(n)); }) &&
         std::all_of(std::begin(s.zero), std::end(s.zero), [](std::uint8_t z) { return z == 0; });
}

std::string text_of(const pool_object& o) {
  return fmt::format("no object in block {} index {} generation {}", o.vblock, o.index, o.generation);
}

shared_blocks::where where_of(const pool_object& o) { return {{o.vblock, o.generation, o.index}, o.slot, 0}; }

pool_where wire_of(const shared_blocks::where& w) {
  return {{w.id.vblock, w.id.generation, w.id.index, w.slot, 0}, w.word};
}

bool is_change(message_type t) {
  return t == message_type::pool_alloc || t == message_type::pool_write || t == message_type::pool_free ||
         t == message_type::pool_release;
}
bool is_about_objects(message_type t) { return is_change(t) || t == message_type::pool_read; }

/// The fixed part of a body, and what follows it.
template <class T>
bool split(std::span<const std::byte> b, T& fixed, std::span<const std::byte>& rest) {
  if (b.size() < sizeof fixed) return false;
  std::memcpy(&fixed, b.data(), sizeof fixed);
  rest = b.subspan(sizeof fixed);
  return true;
}

}  // namespace

errc agent_store::open_pool(session& s, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_open;
  pool_open_body m;
  if (!read_exactly(b, m) || m.resume > 1 || s.is_open() || (m.resume == 1) != (m.instance != 0) ||
      (m.tenant[0] | m.tenant[1]) == 0 || (m.client[0] | m.client[1]) == 0 || m.name[0] == 0 ||
      m.name[sizeof m.name - 1] != 0)
    return errc::bad_frame;
  if (m.major != pool_protocol_major)
    return refuse(out, type, errc::version_mismatch,
                  fmt::format("the agent speaks pool protocol {}.{}, the client {}.{}", pool_protocol_major,
                              pool_protocol_minor, m.major, m.minor));
  if (!sound(m.settings, pool_.region_bytes()))
    return refuse(
        out, type, errc::invalid_argument,
        fmt::format("settings of pool {}: blocks of {} bytes, {} arenas, identities {} and others, fallback {}; with "
                    "regions of {} bytes",
                    m.name, m.settings.block_bytes, m.settings.arenas, m.settings.naming[0], m.settings.fallback,
                    pool_.region_bytes()));
  m.settings.keep_ms = std::min(m.settings.keep_ms, keep_max_ms);
  const std::uint64_t most = options_.quota_default_bytes ? options_.quota_default_bytes : pool_.memory_bytes();
  const std::uint64_t quota = m.quota_bytes ? m.quota_bytes : most;
  if (quota > most || quota < pool_.region_bytes())
    return refuse(
        out, type, errc::quota_exceeded,
        fmt::format("a quota of {} bytes: the agent gives a pool from {} to {}", quota, pool_.region_bytes(), most));

  std::lock_guard pools_lock(pools_mutex_);
  const auto key = std::tuple(m.tenant[0], m.tenant[1], std::string(m.name));
  auto found = pools_.find(key);
  if (found == pools_.end()) {
    if (m.resume == 1) return refuse(out, type, errc::not_found, fmt::format("pool {} is not there any more", m.name));
    if (pools_.size() >= options_.pools_max)
      return refuse(out, type, errc::agent_full, fmt::format("the agent has {} pools, its limit", pools_.size()));
    std::uint32_t instance = 0;
    const auto taken = [&](std::uint32_t n) {
      return std::any_of(pools_.begin(), pools_.end(), [&](const auto& p) { return p.second->instance == n; });
    };
    while (instance == 0 || taken(instance)) instance = static_cast<std::uint32_t>(pool_random_.next());
    found = pools_
                .emplace(key,
                         std::make_shared<shared_pool>(pool_, m, quota, instance, options_.hooks.pool_first_generation))
                .first;
    spdlog::log(heap_level(), "store {}: pool {} made by {}, quota {} bytes", options_.name, m.name, s.peer.name(),
                quota);
  }
  const std::shared_ptr<shared_pool>& p = found->second;
  std::lock_guard lock(p->structure);
  if (m.resume == 1 && p->instance != m.instance)
    return refuse(out, type, errc::not_found, fmt::format("pool {} is another one now", m.name));
  std::shared_ptr<shared_client> c = p->find(m.client);
  const bool fresh = c == nullptr;
  if (fresh) {
    if (p->clients.size() >= options_.pool_clients_max)
      return refuse(out, type, errc::agent_full,
                    fmt::format("pool {} has {} clients, its limit", m.name, p->clients.size()));
    c = std::make_shared<shared_client>();
    std::copy(std::begin(m.client), std::end(m.client), c->id);
    c->lease_ms = std::min(m.lease_ms ? m.lease_ms : options_.lease_default_ms, options_.lease_max_ms);
    c->passed = p->blocks->epoch();
    p->clients.push_back(c);
  } else if (c->owner != nullptr) {
    c->owner->revoked.store(true);
    c->owner->peer.close(errc::stale, "the client came back on another connection");
  }
  c->owner = &s;
  c->heard = now();
  c->asked = 0;  // a notice to an earlier connection may never have arrived
  s.keep_pool = p;
  s.client = c;
  const pool_open_answer a{p->instance,        fresh ? 1u : 0u, pool_.region_bytes(), p->quota_bytes,
                           p->blocks->epoch(), c->lease_ms,     p->blocks->chunks(),  p->settings};
  begin_answer(out, type, &a, sizeof a);
  s.pool.store(p.get(), std::memory_order_release);
  p->ask_to_pass();
  wake();
  return errc::ok;
}

errc agent_store::pool_message(session& s, shared_pool& p, message_type type, body b, fabric::answer& out) {
  const auto may_speak = [&] { return !p.closed && !s.client->gone && s.client->owner == &s; };
  shared_client& c = *s.client;
  outcome done;
  if (is_about_objects(type)) {
    const std::shared_lock lock(p.structure);
    if (!may_speak()) return errc::stale;
    c.hear(now());
    done = pool_object_message(c, p, type, b, out, held::shared);
    if (done && !(is_change(type) && p.wants_round())) return *done;
  }
  const std::lock_guard lock(p.structure);
  if (!may_speak()) return done.value_or(errc::stale);
  c.hear(now());
  const std::uint64_t epoch = p.blocks->epoch();
  if (!done)
    done = is_about_objects(type) ? pool_object_message(c, p, type, b, out, held::exclusive)
                                  : pool_structure_message(c, p, type, b, out);
  FM_CHECK(done.has_value(), "an operation on a pool that has all of it");
  if (is_change(type) && p.wants_round()) {
    p.blocks->begin_round();
    wake();
  }
  if (p.blocks->epoch() != epoch) p.ask_to_pass();
  return *done;
}

errc agent_store::pool_structure_message(shared_client& c, shared_pool& p, message_type type, body b,
                                         fabric::answer& out) {
  switch (type) {
    case message_type::pool_pass: return pool_pass(c, p, b, out);
    case message_type::pool_table:
    case message_type::pool_region: return pool_location(p, type, b, out);
    case message_type::pool_compact: return pool_compact(p, b, out);
    case message_type::pool_statistics: return b.empty() ? pool_statistics(p, out) : errc::bad_frame;
    case message_type::pool_audit: {
      if (!b.empty()) return errc::bad_frame;
      std::string text;
      const audit_answer a = p.blocks->audit(text);
      begin_answer(out, type, &a, sizeof a);
      append_answer(out, text.data(), text.size());
      return errc::ok;
    }
    case message_type::pool_close:
      if (!b.empty()) return errc::bad_frame;
      p.remove(c, now());
      begin_answer(out, type, nullptr, 0);
      wake();
      return errc::ok;
    default: return errc::bad_frame;
  }
}

outcome agent_store::pool_object_message(shared_client& c, shared_pool& p, message_type type, body b,
                                         fabric::answer& out, held how) {
  if (type == message_type::pool_read) return pool_read(p, b, out);
  pool_change change;
  body rest;
  if (!split(b, change, rest) || change.number == 0 || change.stream >= pool_streams_max || change.zero != 0)
    return errc::bad_frame;
  if (change.stream >= c.streams.size() || c.streams[change.stream] == nullptr) {
    if (how == held::shared) return {};
    if (change.stream >= c.streams.size()) c.streams.resize(change.stream + 1);
    c.streams[change.stream] = std::make_unique<shared_client::stream>();
  }
  shared_client::stream& in = *c.streams[change.stream];
  const std::lock_guard one(in.mutex);
  if (change.number < in.number) return refuse(out, type, errc::stale, "a change that its client has given up");
  if (change.number == in.number) {
    out.payload = in.answer;
    answer_head head;
    std::memcpy(&head, out.payload.data(), sizeof head);
    return head.type == static_cast<std::uint16_t>(type) ? errc::ok : errc::bad_frame;
  }
  const outcome e = type == message_type::pool_alloc   ? pool_alloc(p, b, out, how)
                    : type == message_type::pool_write ? pool_write(p, b, out)
                                                       : pool_object_change(p, type, b, out, how);
  if (!e || *e != errc::ok) return e;
  answer_head head;
  std::memcpy(&head, out.payload.data(), sizeof head);
  const bool waits = type == message_type::pool_alloc && head.code == 0 && p.short_of_memory &&
                     out.payload[sizeof head + offsetof(pool_alloc_answer, wait)] != std::byte{0};
  // What was refused changed nothing, and may be asked again.
  if (head.code == 0 && !waits) {
    in.number = change.number;
    in.answer = out.payload;
  }
  return errc::ok;
}

outcome agent_store::pool_alloc(shared_pool& p, body b, fabric::answer& out, held how) {
  constexpr auto type = message_type::pool_alloc;
  pool_alloc_body m;
  body payload;
  if (!split(b, m, payload) || m.bytes != payload.size()) return errc::bad_frame;
  shared_blocks::where at;
  const outcome first = p.blocks->allocate(payload, m.arena, at, how);
  if (!first) return {};
  errc e = *first;
  pool_alloc_answer a{};
  if (e == errc::quota_exceeded || e == errc::agent_full) {
    // Memory may come back by compaction, and from frames whose epoch is passed.
    if (!p.short_of_memory && !p.round_in_vain) {
      p.blocks->begin_round();
      p.short_of_memory = true;
      wake();
    }
    if (p.short_of_memory) p.compact();
    p.reclaim();
    const errc again = p.blocks->allocate(payload, m.arena, at).value_or(errc::agent_full);
    if (again != errc::ok && (p.short_of_memory || p.blocks->graves() != 0)) {
      a.wait = 1;
      p.short_of_memory = true;
      if (!p.blocks->in_round()) p.blocks->begin_round();
      p.round_in_vain = false;
      begin_answer(out, type, &a, sizeof a);
      return errc::ok;
    }
    p.round_in_vain = false;
    e = again;
  }
  if (e == errc::too_large)
    return refuse(out, type, e,
                  fmt::format("an object of {} bytes: 1 to {} are possible in pool {}", m.bytes,
                              p.blocks->layout().bytes_max(), p.name));
  if (e != errc::ok)
    return refuse(out, type, e,
                  e == errc::quota_exceeded ? fmt::format("pool {} has {} bytes in frames, its quota is {}", p.name,
                                                          p.frames->used_bytes(), p.quota_bytes)
                                            : fmt::format("{} of {} regions of the agent are in use",
                                                          pool_.regions_in_use(), pool_.regions_max()));
  a.at = wire_of(at);
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

errc agent_store::pool_read(shared_pool& p, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_read;
  pool_read_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.object.zero != 0) return errc::bad_frame;
  shared_blocks::where at = where_of(m.object);
  std::vector<std::byte> payload;
  const errc e = p.blocks->read(at, payload, m.bytes_max);
  if (e == errc::too_large)
    return refuse(out, type, e,
                  fmt::format("an object of {} bytes, {} are wanted", p.blocks->bytes_of(at), m.bytes_max));
  if (e == errc::not_found) return refuse(out, type, e, text_of(m.object));
  if (e != errc::ok)
    return refuse(out, type, e,
                  fmt::format("the bytes of block {} index {} generation {}", m.object.vblock, m.object.index,
                              m.object.generation));
  ++p.count.reads;
  const pool_read_answer a{wire_of(at), static_cast<std::uint32_t>(payload.size()), 0};
  begin_answer(out, type, &a, sizeof a);
  append_answer(out, payload.data(), payload.size());
  return errc::ok;
}

errc agent_store::pool_write(shared_pool& p, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_write;
  pool_write_body m;
  body payload;
  if (!split(b, m, payload) || m.zero != 0 || m.object.zero != 0 || m.bytes != payload.size()) return errc::bad_frame;
  shared_blocks::where at = where_of(m.object);
  std::uint32_t bytes = 0;
  const errc e = p.blocks->write(at, payload, bytes);
  if (e == errc::layout_mismatch)
    return refuse(out, type, e, fmt::format("{} bytes for an object of {}", m.bytes, bytes));
  if (e != errc::ok) return refuse(out, type, e, text_of(m.object));
  ++p.count.writes;
  const pool_where a = wire_of(at);
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

outcome agent_store::pool_object_change(shared_pool& p, message_type type, body b, fabric::answer& out, held how) {
  pool_object_body m;
  if (!read_exactly(b, m) || m.object.zero != 0) return errc::bad_frame;
  shared_blocks::where at = where_of(m.object);
  const outcome e = type == message_type::pool_free ? p.blocks->free(at, how) : p.blocks->release(at, how);
  if (!e) return {};
  if (*e != errc::ok) return refuse(out, type, *e, text_of(m.object));
  if (type == message_type::pool_free) {
    if (p.round_in_vain.load(std::memory_order_relaxed)) p.round_in_vain = false;
    begin_answer(out, type, nullptr, 0);
    return errc::ok;
  }
  ++p.count.releases;
  const pool_where a = wire_of(at);
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

errc agent_store::pool_pass(shared_client& c, shared_pool& p, body b, fabric::answer& out) {
  pool_pass_body m;
  const std::vector<std::uint32_t>& gone = p.frames->gone();
  if (!read_exactly(b, m) || m.epoch > p.blocks->epoch() || m.gone > gone.size()) return errc::bad_frame;
  if (m.epoch > c.passed) {
    c.passed = m.epoch;
    p.reclaim();
  }
  const std::size_t n = std::min<std::size_t>(gone.size() - m.gone, 1024);
  const pool_pass_answer a{p.blocks->epoch(), static_cast<std::uint32_t>(n), 0};
  begin_answer(out, message_type::pool_pass, &a, sizeof a);
  append_answer(out, gone.data() + m.gone, n * sizeof(std::uint32_t));
  p.ask_to_pass();
  return errc::ok;
}

errc agent_store::pool_location(shared_pool& p, message_type type, body b, fabric::answer& out) {
  pool_table_body m;
  if (!read_exactly(b, m) || m.zero != 0) return errc::bad_frame;
  if (type == message_type::pool_table) {
    if (m.chunk >= p.blocks->chunks())
      return refuse(out, type, errc::not_found, fmt::format("the table has {} pieces", p.blocks->chunks()));
    const blocks::place at = p.blocks->chunk(m.chunk);
    const pool_table_answer a{at.ordinal, at.offset};
    begin_answer(out, type, &a, sizeof a);
    return errc::ok;
  }
  const region* const r = p.frames->find(m.chunk);
  if (r == nullptr) return refuse(out, type, errc::not_found, fmt::format("region {} of pool {}", m.chunk, p.name));
  const region_answer a{r->number, r->generation, r->memory.bytes(), r->memory.bytes(), 1, 0};
  begin_answer(out, type, &a, sizeof a);
  out.key.fd = r->memory.fd();
  return errc::ok;
}

errc agent_store::pool_compact(shared_pool& p, body b, fabric::answer& out) {
  pool_compact_body m;
  if (!read_exactly(b, m) || m.begin > 1 || m.zero != 0) return errc::bad_frame;
  const auto totals = [&] {
    pool_compact_answer sum{};
    for (std::uint32_t k = 0; k < blocks::class_count; ++k) {
      const auto& n = p.blocks->counts(k);
      sum.merges_tried += n.merges_tried;
      sum.merges_made += n.merges_made;
      sum.objects_moved += n.objects_moved;
      sum.bytes_returned += n.bytes_returned;
    }
    return sum;
  };
  if (m.begin == 1) {
    p.round_began = totals();
    p.blocks->begin_round();
  }
  const bool more = p.compact();
  pool_compact_answer a = totals();
  a.merges_tried -= p.round_began.merges_tried;
  a.merges_made -= p.round_began.merges_made;
  a.objects_moved -= p.round_began.objects_moved;
  a.bytes_returned -= p.round_began.bytes_returned;
  a.done = more ? 0 : 1;
  a.waiting = static_cast<std::uint32_t>(p.blocks->graves());
  begin_answer(out, message_type::pool_compact, &a, sizeof a);
  return errc::ok;
}

// ---- of its own accord ----

bool agent_store::maintain_pools() {
  bool more = false;
  std::lock_guard pools_lock(pools_mutex_);
  const time_point at = now();
  for (auto next = pools_.begin(); next != pools_.end();) {
    const std::shared_ptr<shared_pool> p = next->second;
    std::lock_guard lock(p->structure);
    for (const auto& c : std::vector(p->clients)) {
      const time_point until = c->heard.load() + std::chrono::milliseconds(c->lease_ms);
      if (until > at) {
        wake_at_ = std::min(wake_at_, until);
        continue;
      }
      spdlog::log(heap_level(), "store {}: a client of pool {} was not heard of for {} ms", options_.name, p->name,
                  c->lease_ms);
      ++p->count.fenced;
      if (c->owner != nullptr) {
        c->owner->revoked.store(true);
        c->owner->peer.close(errc::stale, "the client's lease ran out");
      }
      p->remove(*c, at);
    }
    if (p->clients.empty()) {
      const time_point until = p->empty_since + std::chrono::milliseconds(p->settings.keep_ms);
      if (until <= at) {
        spdlog::log(heap_level(), "store {}: pool {} freed: it has no client", options_.name, p->name);
        p->close();
        next = pools_.erase(next);
        continue;
      }
      wake_at_ = std::min(wake_at_, until);
    }
    if (p->ask_again) {
      p->ask_to_pass();
      if (p->ask_again) wake_at_ = std::min(wake_at_, at + ask_retry);
    }
    // Messages that change the structure, too, go first, though not for ever: the lock knows no order among those.
    if (p->blocks->in_round() && p->structure.is_wanted_exclusively() && p->stepped_back++ < steps_back_max) {
      more = true;
    } else if (p->blocks->in_round()) {
      const std::uint64_t epoch = p->blocks->epoch();
      p->stepped_back = 0;
      more = p->compact() || more;
      if (p->blocks->epoch() != epoch) p->ask_to_pass();
    }
    ++next;
  }
  return more;
}

}  // namespace fm::store::node
