// What a pool with replicas writes down beside its blocks, and what its backup makes of it; members of pool.
//
// A client's changes are made once, also across a change of primaries: the record of a change says whose it was, and the
// backup keeps the answer that it would give itself. Words of the table are not in it, because they are of the other
// agent's memory; a client looks them up.
//
// Invariant owned here: what a primary sends makes nothing last longer or grow larger than a client could.
// Called with the pool's structure exclusively.
#include "pool.h"
#include "pool_keeper.h"

#include "agent/base/answers.h"

#include <algorithm>

namespace fm::agent {

pool_replication::pool_replication(std::uint64_t self_number, pair_role role, std::uint64_t term, duration tenure)
    : members(role, term, tenure), self(self_number) {}
pool_replication::~pool_replication() = default;

errc pool::reserve_word() { return blocks->reserve(replicas->word); }

void pool::begin_log(std::uint64_t after) {
  replicas->log.begin_after(after);
  replicas->log.show_in(frames->memory(replicas->word));
  blocks->keep_log(replicas->log);
}

void pool::begin_image() const {
  pool_log& log = replicas->log;
  const auto write = [&](pool_log::entry e) { (void)log.append(std::move(e)); };
  write(pool_log::make(record_kind::thresholds, compact_above));
  names.for_each([&](const std::string& n, const pool_names::pointer& at) {
    write(pool_log::make(record_kind::bind, bind_record{{}, at.who, at.what}, std::as_bytes(std::span(n))));
  });
  for (const auto& c : clients)
    write(pool_log::make(record_kind::client, client_record{{c->id[0], c->id[1]}, c->lease_ms, 0}));
}

// Last: of a change in a frame that was not in the image yet there is no record that says whose it was.
void pool::end_image() const {
  for (const auto& c : clients)
    for (std::uint32_t s = 0; s < c->streams.size(); ++s) {
      if (c->streams[s] == nullptr) continue;
      const pool_client::stream& in = *c->streams[s];
      if (in.number != 0)
        (void)replicas->log.append(
            pool_log::make(record_kind::stream, stream_record{{c->id[0], c->id[1]}, in.number, s, 0}, in.answer));
    }
}

namespace {

pool_client::stream& stream_of(pool_client& c, std::uint32_t number) {
  if (number >= c.streams.size()) c.streams.resize(number + 1);
  if (c.streams[number] == nullptr) c.streams[number] = std::make_unique<pool_client::stream>();
  return *c.streams[number];
}

/// What the agent would have answered, with the version that the object has then.
void answer_change(fabric::answer& out, message_type type, const pool_object& o, std::uint64_t version) {
  const pool_where at{o, 0};
  switch (type) {
    case message_type::pool_alloc:
    case message_type::pool_alloc_expiring: {
      const pool_alloc_answer a{at, 0, 0};
      return begin_answer(out, type, &a, sizeof a);
    }
    case message_type::pool_write:
    case message_type::pool_release: return begin_answer(out, type, &at, sizeof at);
    case message_type::pool_write_if: {
      const pool_write_if_answer a{at, version};
      return begin_answer(out, type, &a, sizeof a);
    }
    default: return begin_answer(out, type, nullptr, 0);
  }
}

record_origin origin_of(std::span<const std::byte> b) {
  record_origin o{};
  if (b.size() >= sizeof o) std::memcpy(&o, b.data(), sizeof o);
  return o;
}

bool has_origin(record_kind k) {
  return k == record_kind::object || k == record_kind::vacate || k == record_kind::expiry || k == record_kind::bind ||
         k == record_kind::unbind;
}

}  // namespace

errc pool::apply(record_kind kind, std::uint64_t number, body b, std::uint32_t clients_max) {
  std::span<const std::byte> tail;
  const auto text = [&] { return std::string_view(reinterpret_cast<const char*>(tail.data()), tail.size()); };
  errc e = errc::ok;
  switch (kind) {
    case record_kind::bind:
    case record_kind::unbind: {
      bind_record r;
      if (!split_record(b, r, tail) || !pool_names::is_sound(text())) return errc::bad_frame;
      if (kind == record_kind::bind)
        e = names.bind(text(), {r.who, r.what}, true);
      else if (names.unbind(text()) != errc::ok)
        e = errc::bad_frame;
      break;
    }
    case record_kind::client:
    case record_kind::client_gone: {
      client_record r;
      if (!read_exactly(b, r) || (r.id[0] | r.id[1]) == 0) return errc::bad_frame;
      std::erase_if(clients, [&](const auto& c) { return c->id[0] == r.id[0] && c->id[1] == r.id[1]; });
      if (kind == record_kind::client_gone) break;
      if (clients.size() >= clients_max) return errc::agent_full;
      auto c = std::make_shared<pool_client>();
      std::copy(std::begin(r.id), std::end(r.id), c->id);
      c->lease_ms = std::min(r.lease_ms, agent_.options.lease_max_ms);
      clients.push_back(std::move(c));
      break;
    }
    case record_kind::stream: {
      stream_record r;
      if (!split_record(b, r, tail) || r.stream >= pool_streams_max || tail.size() < sizeof(answer_head) ||
          tail.size() > pool_change_answer_max)
        return errc::bad_frame;
      const std::shared_ptr<pool_client> c = find(r.client);
      if (c == nullptr) return errc::bad_frame;
      pool_client::stream& in = stream_of(*c, r.stream);
      in.number = r.number;
      in.answer.assign(tail.begin(), tail.end());
      break;
    }
    case record_kind::thresholds: {
      pool_blocks::thresholds above{};
      if (b.size() != sizeof above) return errc::bad_frame;
      std::memcpy(above.data(), b.data(), sizeof above);
      compact_classes_above(above);
      tuned = true;
      break;
    }
    default: e = blocks->apply(kind, number, b);
  }
  if (e != errc::ok || !has_origin(kind)) return e;
  const record_origin by = origin_of(b);
  const std::uint64_t id[2] = {by.client[0], by.client[1]};
  if ((id[0] | id[1]) == 0) return errc::ok;
  const std::shared_ptr<pool_client> c = find(id);
  if (c == nullptr || by.stream >= pool_streams_max) return errc::bad_frame;
  pool_object o{};
  std::uint64_t version = 0;
  if (object_record r; kind == record_kind::object && split_record(b, r, tail)) {
    o = {r.vblock, r.generation, static_cast<std::uint16_t>(r.index), static_cast<std::uint16_t>(r.slot), 0};
    version = blocks->version_at({{o.vblock, o.generation, o.index}, o.slot, 0});
  }
  fabric::answer a;
  answer_change(a, static_cast<message_type>(by.type), o, version);
  pool_client::stream& in = stream_of(*c, by.stream);
  in.number = by.number;
  in.answer = std::move(a.payload);
  return errc::ok;
}

void pool::take_over(std::uint64_t term, time_point now) {
  blocks->stop_mirroring();
  begin_log(replicas->applied);
  for (const auto& c : clients) {
    c->hear(now + limits::return_tenures * replicas->members.tenure());
    c->passed = blocks->epoch();  // it has read nothing here
    c->told = frames->gone();
  }
  empty_since = now + limits::return_tenures * replicas->members.tenure();
  replicas->members.take_over(term);
}

}  // namespace fm::agent
