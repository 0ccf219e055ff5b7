// The first messages of each connection: pool_open, and pool_tune if this client has made the pool. Members of
// agent_client, called by the session before any other request is accepted.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>

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
  for (std::uint32_t c = 0; c < blocks::line_class_count; ++c) {
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
  for (std::uint32_t c = 0; c < blocks::line_class_count; ++c) {
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
    protocol::pool_open_replicated with;
  } message{};
  std::string others;
  if (slot_ != 0) {
    const auto here = static_cast<std::size_t>(std::find(urls_.begin(), urls_.end(), s.url()) - urls_.begin());
    for (std::size_t i = 1; i < urls_.size(); ++i) others += urls_[(here + i) % urls_.size()] + '\0';
    // Only the first one makes it, and only if nobody has it.
    const bool make = here == 0 && instance_ == 0 && std::all_of(has_not_.begin(), has_not_.end(), std::identity());
    message.with = {slot_, make ? 1u : 0u, static_cast<std::uint32_t>(others.size()), 0};
    if (instance_ == 0) made_ = make;
  }
  const std::size_t fixed = slot_ != 0 ? sizeof message : offsetof(decltype(message), with);
  message.head = {static_cast<std::uint16_t>(message_type::pool_open), 0,
                  static_cast<std::uint32_t>(fixed - sizeof message.head + others.size())};
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
  r.sg_count = others.empty() ? 1 : 2;
  r.sg[0] = {&message, fixed};
  if (!others.empty()) r.sg[1] = {others.data(), others.size()};
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
  if (slot_ != 0 && (code == errc::stale || code == errc::not_found || code == errc::under_replicated)) {
    refusal_ = detail::readable_text(body);
    return not_here(s, code);
  }
  protocol::pool_open_replicas pair{};
  const bool good = code == errc::ok && (slot_ != 0 ? body.size() == sizeof a + sizeof more + sizeof pair
                                                    : body.size() == sizeof a || body.size() == sizeof a + sizeof more);
  if (good) {
    std::memcpy(&a, body.data(), sizeof a);
    if (body.size() != sizeof a) std::memcpy(&more, body.data() + sizeof a, sizeof more);
    if (slot_ != 0) std::memcpy(&pair, body.data() + sizeof a + sizeof more, sizeof pair);
  }
  const auto sound = [&] {
    return a.instance != 0 && a.fresh <= 1 && detail::is_power_of_two(a.region_bytes) && a.region_bytes >= 64_KiB &&
           a.region_bytes <= detail::home_address::offset_limit && a.lease_ms != 0 &&
           detail::is_power_of_two(a.settings.block_bytes) && a.settings.block_bytes >= blocks::frame_bytes_min &&
           a.settings.block_bytes <= std::min(blocks::block_bytes_max, a.region_bytes) &&
           a.settings.shares_lines <= 1 && (a.settings.shares_lines == 0 || a.settings.versions_upto == 0) &&
           (instance_ == 0 || a.instance == instance_) &&
           (slot_ == 0 || (pair.ordinal < blocks::ordinal_limit && pair.offset <= a.region_bytes - 8 &&
                           pair.agent != 0 && (instance_ == 0 || a.region_bytes == layout_.region_bytes)));
  };
  if (!good || !sound()) {
    refused_ = code == errc::ok ? errc::bad_frame : code;
    refusal_ = good || code == errc::bad_frame ? "the answer to pool_open makes no sense" : detail::readable_text(body);
    if (instance_ != 0) log::warn("{}: pool {} is lost: {}", s.url(), options_.name, refusal_);
    return instance_ != 0 ? errc::agent_lost : errc::refused;
  }
  const bool first = instance_ == 0;
  if (first) {
    instance_ = a.instance;
    first_primary_ = pair.agent;
    minor_ = more.minor;
    layout_ = {a.region_bytes, a.settings.block_bytes, a.settings.versions_upto, a.settings.shares_lines == 1};
  } else {
    count.reconnects.fetch_add(1, std::memory_order_relaxed);
  }
  lease_.store(duration(std::chrono::milliseconds(a.lease_ms)).count(), std::memory_order_relaxed);
  const bool elsewhere = slot_ != 0 && (pair.agent != primary_ || pair.term != term_);
  if (a.fresh == 1) life_.fetch_add(1, std::memory_order_acq_rel);
  if (a.fresh == 1 || elsewhere) {
    const std::lock_guard lock(mutex_);
    tenure_.fetch_add(1, std::memory_order_seq_cst);
    if (elsewhere) clock_learned_ = {};  // it has another clock
    agent_tag_ = static_cast<std::uint32_t>(pair.agent);
    note_clock(a.now);  // at once: deadlines on the clock of another agent are not of this one
  } else {
    learn_clock(a.now, tenure());
  }
  if (slot_ != 0) {
    refused_ = errc::ok;
    primary_ = pair.agent;
    term_ = pair.term;
    word_at_.store(blocks::table_word(0, {pair.ordinal, pair.offset}, 0), std::memory_order_release);
  }
  if (elsewhere && !first) begin_elsewhere();
  {
    const std::lock_guard lock(mutex_);
    if ((a.fresh == 1 || elsewhere) && !first) forget_all_ = true;  // a client that begins has learned nothing yet
    if (elsewhere) gone_ = 0;
    epoch_ = elsewhere ? a.epoch : std::max(epoch_, a.epoch);
    pass_wanted_ = true;
    changed_.notify_all();
  }
  // Reads that began under an earlier lease are not saved by a new one: they compare what they began with.
  lease_until_.store((sent + lease()).time_since_epoch().count(), std::memory_order_release);
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
