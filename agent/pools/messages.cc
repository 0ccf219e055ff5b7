// Messages of a pool's client, and its reads of the pool's memory; members of pool_session.
// Messages about objects share the pool's structure, so that serving threads work side by side. All others take it
// exclusively.
// A change is made once: a repeated number gets the answer that its stream keeps.
#include <fmt/format.h>

#include <algorithm>
#include <shared_mutex>

#include "agent/base/limits.h"
#include "pool_session.h"

namespace fm::agent {

namespace {

std::string text_of(const pool_object& o) {
  return fmt::format("no object in block {} index {} generation {}", o.vblock, o.index, o.generation);
}

pool_blocks::where where_of(const pool_object& o) { return {{o.vblock, o.generation, o.index}, o.slot, 0}; }

pool_where wire_of(const pool_blocks::where& w) {
  return {{w.id.vblock, w.id.generation, w.id.index, w.slot, 0}, w.word};
}

bool is_of_names(message_type t) { return t == message_type::pool_bind || t == message_type::pool_unbind; }
bool is_alloc(message_type t) { return t == message_type::pool_alloc || t == message_type::pool_alloc_expiring; }
bool is_change(message_type t) {
  return is_alloc(t) || t == message_type::pool_expire || t == message_type::pool_write ||
         t == message_type::pool_write_if || t == message_type::pool_free || t == message_type::pool_release ||
         is_of_names(t);
}
bool is_read(message_type t) { return t == message_type::pool_read || t == message_type::pool_read_version; }
bool is_about_objects(message_type t) { return is_about_pool_objects(t); }

errc refuse_write(fabric::answer& out, message_type type, errc e, const pool_object& o, std::uint32_t given,
                  std::uint32_t bytes) {
  if (e == errc::layout_mismatch)
    return refuse(out, type, e, fmt::format("{} bytes for an object of {}", given, bytes));
  return refuse(out, type, e, text_of(o));
}

/// The fixed part of a body, and what follows it.
template <class T>
bool split(std::span<const std::byte> b, T& fixed, std::span<const std::byte>& rest) {
  if (b.size() < sizeof fixed) return false;
  std::memcpy(&fixed, b.data(), sizeof fixed);
  rest = b.subspan(sizeof fixed);
  return true;
}
/// The same, of an allocation of an object that does not expire.
bool split_alloc(std::span<const std::byte> b, pool_alloc_expiring_body& fixed, std::span<const std::byte>& rest) {
  pool_alloc_body m;
  if (!split(b, m, rest)) return false;
  fixed = {m.change, m.bytes, m.arena, 0};
  return true;
}

}  // namespace

errc pool_session::message(message_type type, body b, fabric::answer& out) {
  const pool& p = *pool_;
  if (p.replicas == nullptr) return answer_to(type, b, out);
  const auto refused = [&] {
    if (!p.is_primary()) {
      refuse(out, type, errc::stale, fmt::format("pool {}: this agent is not its primary any more", p.name));
      return true;
    }
    if (p.serves(agent_.now()) && (!is_change(type) || p.replicas->log.bytes() < limits::log_bytes_max)) return false;
    refuse(out, type, errc::under_replicated, fmt::format("pool {}: its backup does not answer", p.name));
    return true;
  };
  if (refused()) return errc::ok;
  errc e = errc::ok;
  try {
    e = answer_to(type, b, out);
  } catch (const error& what) {
    refuse(out, type, what.code(), what.what());
  } catch (const std::bad_alloc&) {
    refuse(out, type, errc::agent_full, "the agent is out of memory");
  }
  if (e != errc::ok) return e == errc::stale && refused() ? errc::ok : e;
  // Again, now that it is done: what was read was still so.
  if (!p.serves(agent_.now()))
    return refuse(out, type, p.is_primary() ? errc::under_replicated : errc::stale,
                  fmt::format("pool {}: this agent does not know whether it is its primary still", p.name));
  if (is_about_objects(type)) {
    const pool_number n{p.replicas->log.end()};
    append_answer(out, &n, sizeof n);
  }
  return errc::ok;
}

errc pool_session::answer_to(message_type type, body b, fabric::answer& out) {
  pool& p = *pool_;
  pool_client& c = *client_;
  const auto may_speak = [&] { return !p.closed && !c.gone && c.owner == &s_; };
  outcome done;
  if (is_about_objects(type)) {
    const std::shared_lock lock(p.structure);
    if (!may_speak()) return errc::stale;
    c.hear(agent_.now());
    done = object_message(c, p, type, b, out, held::shared);
    if (done && !(is_change(type) && p.wants_round())) return *done;
  }
  const std::lock_guard lock(p.structure);
  if (!may_speak()) return done.value_or(errc::stale);
  c.hear(agent_.now());
  const std::uint64_t epoch = p.blocks->epoch();
  if (!done)
    done = is_about_objects(type) ? object_message(c, p, type, b, out, held::exclusive)
                                  : structure_message(c, p, type, b, out);
  FM_CHECK(done.has_value(), "an operation on a pool that has all of it");
  if (is_change(type) && p.wants_round()) {
    p.blocks->begin_round(p.compact_above);
    agent_.wake();
  }
  if (p.blocks->epoch() != epoch) p.ask_to_pass();
  return *done;
}

errc pool_session::structure_message(pool_client& c, pool& p, message_type type, body b, fabric::answer& out) {
  switch (type) {
    case message_type::pool_pass: return pass(c, p, b, out);
    case message_type::pool_table:
    case message_type::pool_region: return location(p, type, b, out);
    case message_type::pool_compact: return compact(p, b, out);
    case message_type::pool_tune: return tune(c, p, b, out);
    case message_type::pool_statistics: return b.empty() ? statistics(p, out) : errc::bad_frame;
    case message_type::pool_expiries: return b.empty() ? expiries(p, out) : errc::bad_frame;
    case message_type::pool_replicas: return b.empty() ? replicas(p, out) : errc::bad_frame;
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
      p.remove(c, agent_.now());
      begin_answer(out, type, nullptr, 0);
      agent_.wake();
      return errc::ok;
    default: return errc::bad_frame;
  }
}

outcome pool_session::object_message(pool_client& c, pool& p, message_type type, body b, fabric::answer& out,
                                     held how) {
  if (is_read(type)) return read(p, type, b, out);
  if (type == message_type::pool_lookup) return lookup(p, b, out);
  if (type == message_type::pool_list) return list(p, b, out);
  pool_change change;
  body rest;
  if (!split(b, change, rest) || change.number == 0 || change.stream >= pool_streams_max ||
      (p.replicas == nullptr && change.agent != 0) || change.deadline == 0 || change.deadline > INT64_MAX)
    return errc::bad_frame;
  if (p.replicas != nullptr && change.agent != static_cast<std::uint32_t>(p.replicas->self))
    return refuse(out, type, errc::under_replicated, "the change is meant for the primary before");
  if (change.stream >= c.streams.size() || c.streams[change.stream] == nullptr) {
    if (how == held::shared) return {};
    if (change.stream >= c.streams.size()) c.streams.resize(change.stream + 1);
    c.streams[change.stream] = std::make_unique<pool_client::stream>();
  }
  pool_client::stream& in = *c.streams[change.stream];
  const std::lock_guard one(in.mutex);
  if (change.number < in.number) return refuse(out, type, errc::stale, "a change that its client has given up");
  if (change.number == in.number) {
    out.payload = in.answer;
    answer_head head;
    std::memcpy(&head, out.payload.data(), sizeof head);
    return head.type == static_cast<std::uint16_t>(type) ? errc::ok : errc::bad_frame;
  }
  const asked_change by{time_point(std::chrono::nanoseconds(change.deadline)),
                        &agent_,
                        {{c.id[0], c.id[1]}, change.number, change.stream, static_cast<std::uint32_t>(type)}};
  const outcome e = is_alloc(type)                        ? alloc(p, type, b, out, how, by)
                    : type == message_type::pool_expire   ? expire(p, b, out, by)
                    : type == message_type::pool_write    ? write(p, b, out, by)
                    : type == message_type::pool_write_if ? write_if(p, b, out, by)
                    : is_of_names(type)                   ? name_change(p, type, b, out, how, by)
                                                          : object_change(p, type, b, out, how, by);
  if (!e || *e != errc::ok) return e;
  answer_head head;
  std::memcpy(&head, out.payload.data(), sizeof head);
  const bool waits = is_alloc(type) && head.code == 0 && p.short_of_memory &&
                     out.payload[sizeof head + offsetof(pool_alloc_answer, wait)] != std::byte{0};
  // What was refused changed nothing, and may be asked again.
  if (head.code == 0 && !waits) {
    in.number = change.number;
    in.answer = out.payload;
  }
  return errc::ok;
}

outcome pool_session::alloc(pool& p, message_type type, body b, fabric::answer& out, held how, const asked_change& by) {
  pool_alloc_expiring_body m{};
  body payload;
  if (!(type == message_type::pool_alloc ? split_alloc(b, m, payload) : split(b, m, payload)) ||
      m.bytes != payload.size() || m.expires_ms > pool_expiry_ms_max ||
      (m.expires_ms == 0) != (type == message_type::pool_alloc))
    return errc::bad_frame;
  if (by.has_passed()) return refuse(out, type, errc::timed_out, too_late);  // nobody else can know of the object
  pool_blocks::where at;
  const outcome first = p.blocks->allocate(payload, m.arena, at, how, m.expires_ms, by);
  if (!first) return {};
  errc e = *first;
  pool_alloc_answer a{};
  if (e == errc::quota_exceeded || e == errc::agent_full) {
    // Memory may come back from objects that have expired, by compaction, and from frames whose epoch is passed.
    const bool expires = p.expire();
    if (!p.short_of_memory && !p.round_in_vain) {
      p.blocks->begin_round();
      p.short_of_memory = true;
      agent_.wake();
    }
    if (p.short_of_memory) p.compact();
    p.reclaim();
    const errc again =
        p.blocks->allocate(payload, m.arena, at, held::exclusive, m.expires_ms, by).value_or(errc::agent_full);
    if (again != errc::ok && (p.short_of_memory || expires || p.blocks->graves() != 0)) {
      a.wait = 1;
      p.short_of_memory = true;
      if (!p.blocks->in_full_round()) p.blocks->begin_round();
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
                                                          regions_.regions_in_use(), regions_.regions_max()));
  if (m.expires_ms != 0 && p.expires_sooner()) agent_.wake();
  a.at = wire_of(at);
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

errc pool_session::expire(pool& p, body b, fabric::answer& out, const asked_change& by) const {
  constexpr auto type = message_type::pool_expire;
  pool_expire_body m;
  if (!read_exactly(b, m) || m.object.zero != 0 || m.expires_ms > pool_expiry_ms_max) return errc::bad_frame;
  const errc e = p.blocks->expire_after(where_of(m.object), m.expires_ms, by);
  if (e == errc::timed_out) return refuse(out, type, e, too_late);
  if (e != errc::ok) return refuse(out, type, e, text_of(m.object));
  if (p.expires_sooner()) agent_.wake();
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc pool_session::read(pool& p, message_type type, body b, fabric::answer& out) {
  pool_read_body m;
  if (!read_exactly(b, m) || m.zero != 0 || m.object.zero != 0) return errc::bad_frame;
  pool_blocks::where at = where_of(m.object);
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
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  if (type == message_type::pool_read) {
    const pool_read_answer a{wire_of(at), bytes, 0};
    begin_answer(out, type, &a, sizeof a);
  } else {
    const pool_read_version_answer a{wire_of(at), bytes, 0, at.version};
    begin_answer(out, type, &a, sizeof a);
  }
  append_answer(out, payload.data(), payload.size());
  return errc::ok;
}

errc pool_session::write(pool& p, body b, fabric::answer& out, const asked_change& by) {
  constexpr auto type = message_type::pool_write;
  pool_write_body m;
  body payload;
  if (!split(b, m, payload) || m.zero != 0 || m.object.zero != 0 || m.bytes != payload.size()) return errc::bad_frame;
  pool_blocks::where at = where_of(m.object);
  std::uint32_t bytes = 0;
  const errc e = p.blocks->write(at, payload, bytes, by);
  if (e == errc::timed_out) return refuse(out, type, e, too_late);
  if (e != errc::ok) return refuse_write(out, type, e, m.object, m.bytes, bytes);
  ++p.count.writes;
  const pool_where a = wire_of(at);
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

errc pool_session::write_if(pool& p, body b, fabric::answer& out, const asked_change& by) {
  constexpr auto type = message_type::pool_write_if;
  pool_write_if_body m;
  body payload;
  if (!split(b, m, payload) || m.zero != 0 || m.object.zero != 0 || m.bytes != payload.size()) return errc::bad_frame;
  pool_blocks::where at = where_of(m.object);
  std::uint32_t bytes = 0;
  const errc e = p.blocks->write(at, payload, bytes, by, m.version);
  if (e == errc::timed_out) return refuse(out, type, e, too_late);
  if (e == errc::conflict) return refuse(out, type, e, "the object was changed since the version that was named");
  if (e != errc::ok) return refuse_write(out, type, e, m.object, m.bytes, bytes);
  ++p.count.writes;
  const pool_write_if_answer a{wire_of(at), at.version};
  begin_answer(out, type, &a, sizeof a);
  return errc::ok;
}

outcome pool_session::object_change(pool& p, message_type type, body b, fabric::answer& out, held how,
                                    const asked_change& by) {
  pool_object_body m;
  if (!read_exactly(b, m) || m.object.zero != 0) return errc::bad_frame;
  pool_blocks::where at = where_of(m.object);
  const outcome e = type == message_type::pool_free ? p.blocks->free(at, how, by) : p.blocks->release(at, how, by);
  if (!e) return {};
  if (*e == errc::timed_out) return refuse(out, type, *e, too_late);
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

errc pool_session::list(pool& p, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_list;
  pool_list_body m;
  if (!read_exactly(b, m) || m.most == 0 || m.zero != 0) return errc::bad_frame;
  pool_blocks::position at{m.vblock, m.index};
  std::vector<pool_blocks::list_entry> found;
  const bool done = p.blocks->list(at, std::min<std::size_t>(m.most, limits::listed_objects_max), found);
  const pool_list_answer a{at.vblock, at.index, static_cast<std::uint32_t>(found.size()), done ? 1u : 0u};
  begin_answer(out, type, &a, sizeof a);
  for (const pool_blocks::list_entry& o : found) {
    const pool_listed record{o.id.vblock, o.id.generation, o.id.index, o.slot, o.bytes};
    append_answer(out, &record, sizeof record);
  }
  return errc::ok;
}

errc pool_session::tune(const pool_client& c, pool& p, body b, fabric::answer& out) {
  constexpr auto type = message_type::pool_tune;
  pool_tune_body m;
  if (!read_exactly(b, m) || m.zero != 0 ||
      !std::all_of(std::begin(m.compact_above), std::end(m.compact_above), [](std::uint32_t s) { return s <= 65536; }))
    return errc::bad_frame;
  if (!p.may_tune(c)) return refuse(out, type, errc::access_denied, fmt::format("pool {} has its settings", p.name));
  pool_blocks::thresholds above{};
  for (std::uint32_t k = 0; k < above.size(); ++k) above[k] = m.compact_above[blocks::line_class(k)];
  p.compact_classes_above(above);
  p.tuned = true;
  p.write_down(p.note(record_kind::thresholds, above));
  begin_answer(out, type, nullptr, 0);
  return errc::ok;
}

errc pool_session::pass(pool_client& c, pool& p, body b, fabric::answer& out) const {
  pool_pass_body m;
  if (!read_exactly(b, m)) return errc::bad_frame;
  if (m.epoch > p.blocks->epoch() || m.gone > p.frames->gone()) {
    if (p.replicas == nullptr) return errc::bad_frame;
    m = {};  // what the primary before has told
  }
  if (m.gone > c.told) {
    c.told = m.gone;
    p.forget_regions();
  }
  if (m.epoch > c.passed) {
    c.passed = m.epoch;
    if (p.reclaim()) agent_.wake();  // there may be more of them
  }
  std::vector<std::uint32_t> gone;
  for (std::uint64_t n = c.told; n < p.frames->gone() && gone.size() < limits::gone_at_once; ++n)
    gone.push_back(p.frames->gone(n));
  const pool_pass_answer a{p.blocks->epoch(), c.told + gone.size(), agent_.now_ns(),
                           static_cast<std::uint32_t>(gone.size()), p.state()};
  begin_answer(out, message_type::pool_pass, &a, sizeof a);
  append_answer(out, gone.data(), gone.size() * sizeof(std::uint32_t));
  p.ask_to_pass();
  return errc::ok;
}

errc pool_session::location(pool& p, message_type type, body b, fabric::answer& out) {
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
  // Readers that could write would change what others read, and the agent's own records (blocks.h).
  if (r->memory.is_sealed()) out.share(r->memory.fd());
  return errc::ok;
}

errc pool_session::compact(pool& p, body b, fabric::answer& out) {
  pool_compact_body m;
  if (!read_exactly(b, m) || m.begin > 1 || m.rests > 1) return errc::bad_frame;
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
  if (m.rests == 1) {
    const pool_compact_rest rest{more ? p.rest_after_step() : 0};
    append_answer(out, &rest, sizeof rest);
  }
  return errc::ok;
}

std::byte* pool_session::memory(const fabric::remote& where, std::uint64_t bytes, fabric::access how) noexcept {
  if (how != fabric::access::read || s_.revoked.load()) return nullptr;
  region* const r = regions_.enter(where.region, where.generation);
  if (r == nullptr) return nullptr;
  if (r->tenant.load(std::memory_order_acquire) == pool_.get() && bytes <= regions_.region_bytes() &&
      where.offset <= regions_.region_bytes() - bytes) {
    s_.in_flight.fetch_add(1);
    return r->memory.base() + where.offset;
  }
  regions_.leave(*r);
  return nullptr;
}

void pool_session::disconnected() noexcept {
  std::lock_guard lock(pool_->structure);
  if (client_->owner == &s_) client_->owner = nullptr;  // its lease runs on from when it was last heard of
}

}  // namespace fm::agent
