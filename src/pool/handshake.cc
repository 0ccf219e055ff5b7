// The first messages of each connection: pool_open, and pool_tune if this client has made the pool. Members of
// agent_client, called by the session before any other request is accepted.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "agent_client.h"
#include "base/log.h"

namespace fm::pool_detail {

using protocol::message_type;

namespace {

blocks::naming naming_of(pool_identity i) {
  switch (i) {
    case pool_identity::birth: break;
    case pool_identity::offset: return blocks::naming::offset;
    case pool_identity::random_8: return blocks::naming::random_8;
    case pool_identity::random_12: return blocks::naming::random_12;
    case pool_identity::random_16: return blocks::naming::random_16;
  }
  return blocks::naming::birth;
}

std::uint32_t share_of_65536(double share) { return static_cast<std::uint32_t>(share * 65536); }

protocol::pool_tune_body tuning_of(const pool_options& o) {
  protocol::pool_tune_body t{};
  auto own = o.compact_above_by_class.begin();
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    while (own != o.compact_above_by_class.end() && blocks::slot_bytes(c) > own->slot_bytes) ++own;
    t.compact_above[c] = share_of_65536(own != o.compact_above_by_class.end() ? own->compact_above : o.compact_above);
  }
  return t;
}

protocol::pool_settings settings_of(const pool_options& o) {
  protocol::pool_settings s{};
  s.block_bytes = static_cast<std::uint32_t>(o.block);
  s.versions_upto = o.versions_upto;
  s.arenas = o.arenas;
  s.compact_above = share_of_65536(o.compact_above);
  s.keep_ms = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(o.keep).count(), 0, UINT32_MAX));
  auto own = o.identity_by_class.begin();
  for (std::uint32_t c = 0; c < blocks::class_count; ++c) {
    while (own != o.identity_by_class.end() && blocks::slot_bytes(c) > own->slot_bytes) ++own;
    s.naming[c] = static_cast<std::uint8_t>(naming_of(own != o.identity_by_class.end() ? own->identity : o.identity));
  }
  switch (o.fallback) {
    case pool_fallback::birth: s.fallback = static_cast<std::uint8_t>(blocks::fallback::birth); break;
    case pool_fallback::offset: s.fallback = static_cast<std::uint8_t>(blocks::fallback::offset); break;
    case pool_fallback::none: s.fallback = static_cast<std::uint8_t>(blocks::fallback::none); break;
  }
  return s;
}

}  // namespace

errc agent_client::shake_hands(fabric::session& s) {
  struct {
    protocol::message_head head;
    protocol::pool_open_body body;
  } message{};
  message.head = {static_cast<std::uint16_t>(message_type::pool_open), 0, sizeof message.body};
  protocol::pool_open_body& b = message.body;
  b.major = protocol::pool_protocol_major;
  b.minor = protocol::pool_protocol_minor;
  b.resume = instance_ != 0 ? 1 : 0;
  std::copy(options_.tenant.words.begin(), options_.tenant.words.end(), std::begin(b.tenant));
  std::copy(std::begin(client_), std::end(client_), std::begin(b.client));
  b.quota_bytes = options_.quota;
  b.lease_ms = static_cast<std::uint32_t>(std::max<std::int64_t>(
      1,
      std::min<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(options_.lease).count(), 1 << 30)));
  b.instance = instance_;
  b.settings = settings_of(options_);
  options_.name.copy(b.name, sizeof b.name - 1);

  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {&message, sizeof message};
  const time_point sent = clock::now();
  s.post(r);
  s.wait(r);
  discard(r.reply_key);
  if (r.status != errc::ok) return r.status;
  const errc code = code_of(r.reply, message_type::pool_open);
  protocol::pool_open_answer a{};
  const std::span<const std::byte> body =
      std::span(r.reply).subspan(std::min(r.reply.size(), sizeof(protocol::answer_head)));
  protocol::pool_open_more more{};  // an agent of version 3.0 does not send it
  const bool good = code == errc::ok && (body.size() == sizeof a || body.size() == sizeof a + sizeof more);
  if (good) {
    std::memcpy(&a, body.data(), sizeof a);
    if (body.size() != sizeof a) std::memcpy(&more, body.data() + sizeof a, sizeof more);
  }
  const auto sound = [&] {
    return a.instance != 0 && a.fresh <= 1 && detail::is_power_of_two(a.region_bytes) && a.region_bytes >= 64_KiB &&
           a.region_bytes <= detail::home_address::offset_limit && a.lease_ms != 0 &&
           detail::is_power_of_two(a.settings.block_bytes) && a.settings.block_bytes >= blocks::frame_bytes_min &&
           a.settings.block_bytes <= std::min(blocks::block_bytes_max, a.region_bytes) &&
           (instance_ == 0 || a.instance == instance_);
  };
  if (!good || !sound()) {
    refused_ = code == errc::ok ? errc::bad_frame : code;
    refusal_ = good || code == errc::bad_frame ? "the answer to pool_open makes no sense" : detail::readable_text(body);
    if (instance_ != 0) log::warn("{}: pool {} is lost: {}", url_, options_.name, refusal_);
    return instance_ != 0 ? errc::agent_lost : errc::refused;
  }
  const bool first = instance_ == 0;
  if (first) {
    instance_ = a.instance;
    minor_ = more.minor;
    layout_ = {a.region_bytes, a.settings.block_bytes, a.settings.versions_upto};
    lease_ = std::chrono::milliseconds(a.lease_ms);
  } else {
    count.reconnects.fetch_add(1, std::memory_order_relaxed);
  }
  if (a.fresh == 1) life_.fetch_add(1, std::memory_order_acq_rel);
  learn_clock(a.now);
  {
    const std::lock_guard lock(mutex_);
    if (a.fresh == 1 && !first) forget_all_ = true;  // a client that begins has learned nothing yet
    epoch_ = std::max(epoch_, a.epoch);
    pass_wanted_ = true;
    changed_.notify_all();
  }
  // Reads that began under an earlier lease are not saved by a new one: they compare what they began with.
  lease_until_.store((sent + lease_).time_since_epoch().count(), std::memory_order_release);
  return options_.compact_above_by_class.empty() ? errc::ok : tune(s, more.may_tune == 1);
}

/// Only the client that made the pool is allowed to, until it has an answer: it asks again when a connection broke.
errc agent_client::tune(fabric::session& s, bool allowed) {
  if (minor_ == 0) {
    refused_ = errc::unsupported;
    refusal_ = "pool_options::compact_above_by_class: the agent speaks version 3.0 of pools, which has no such setting";
    return errc::refused;
  }
  if (!allowed) return errc::ok;
  struct {
    protocol::message_head head;
    protocol::pool_tune_body body;
  } message{{static_cast<std::uint16_t>(message_type::pool_tune), 0, sizeof message.body}, tuning_of(options_)};
  fabric::request r;
  r.kind = fabric::op_kind::message;
  r.on = fabric::lane::control;
  r.sg_count = 1;
  r.sg[0] = {&message, sizeof message};
  s.post(r);
  s.wait(r);
  discard(r.reply_key);
  return r.status != errc::ok ? r.status : code_of(r.reply, message_type::pool_tune);
}

}  // namespace fm::pool_detail
