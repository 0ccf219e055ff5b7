// Posting and settling of messages to a backup; see backup_link.h.
#include "backup_link.h"

#include "backup_session.h"
#include "protocol/heap_codec.h"
#include <fmt/format.h>

namespace fm::agent {

namespace {

using codec::answer_view;
using codec::make_message;
using codec::parse_answer;

/// Names the number as that of the primary of a part that no pool has. The agent of that number finds that it asks itself;
/// others have never heard of the part.
class question final : public fabric::session_events {
 public:
  question(const open_backup_body& hello, std::uint64_t number) : hello_(hello) {
    hello_.slot = UINT32_MAX;
    hello_.resume = 1;
    hello_.primary = number;
  }
  errc connected(fabric::session& s, std::uint32_t) override {
    auto message = codec::frame(as_type(backup_message::open_backup), hello_);
    fabric::request r;
    if (const errc e = codec::ask(s, r, &message, sizeof message); e != errc::ok) return e;
    const answer_view v = parse_answer(r.reply, as_type(backup_message::open_backup));
    if (v.code == errc::ok || v.code == errc::not_found) is = v.code == errc::ok;
    return errc::refused;  // that was all
  }
  void disconnected(fabric::session&, std::uint32_t, errc) noexcept override {}
  void lost(fabric::session&, errc) noexcept override {}
  void notice(fabric::session&, std::span<const std::byte>) noexcept override {}
  std::optional<bool> is;

 private:
  open_backup_body hello_;
};

}  // namespace

std::optional<bool> is_agent(const std::string& url, const open_backup_body& hello, std::uint64_t number,
                             duration within) {
  question q(hello, number);
  fabric::session_options o;
  o.connect_within = o.reconnect_for = o.operation_within = within;
  o.fetch_lanes = 1;
  try {
    (void)fabric::connect(url, o, q);
  } catch (const error&) {  // as it always ends
  }
  return q.is;
}

backup_link::backup_link(const std::string& url, const open_backup_body& hello, duration tenure, pool_log& log,
                         void (*rung)(void*) noexcept, void* context)
    : url_(url), hello_(hello), tenure_(tenure), log_(log), rung_(rung), context_(context), term_(hello.term) {
  fabric::session_options o;
  o.connect_within = tenure;
  o.reconnect_for = tenure;
  o.operation_within = tenure;
  o.fetch_lanes = 1;
  try {
    session_ = fabric::connect(url, o, *this);
  } catch (const error&) {
    if (refused_ != errc::ok) throw error(refused_, url + ": " + text_);
    throw;
  }
}

backup_link::~backup_link() {
  if (session_) session_->close();
  for (letter& l : letters_) codec::discard_key(l.request.reply_key);  // of those that nobody has looked at
}

errc backup_link::connected(fabric::session& s, std::uint32_t) {
  auto message = codec::frame(as_type(backup_message::open_backup), hello_);
  message.body.term = term_.load(std::memory_order_relaxed);
  message.body.resume = agent_ != 0 ? 1 : 0;
  fabric::request r;
  if (const errc e = codec::ask(s, r, &message, sizeof message); e != errc::ok) return e;
  answer_view v = parse_answer(r.reply, as_type(backup_message::open_backup));
  open_backup_answer a{};
  const bool good = v.code == errc::ok && v.body.size() == sizeof a && codec::take(v.body, a) && a.agent != 0 &&
                    (agent_ == 0 || a.agent == agent_);
  if (!good) {
    const std::lock_guard lock(mutex_);
    refused_ = v.code == errc::ok ? errc::bad_frame : v.code;
    text_ = v.code == errc::ok ? "its answer makes no sense" : v.text();
    return errc::refused;
  }
  if (agent_ == 0) {  // before the keeper knows the link
    agent_ = a.agent;
    zone_ = a.zone;
  }
  rung_(context_);
  return errc::ok;
}

duration backup_link::reconnect_for(duration usual) const noexcept {
  return insists_.load(std::memory_order_relaxed) ? std::max<duration>(usual, limits::unarbitrated_reconnect_for)
                                                  : usual;
}

void backup_link::post(backup_message type, std::span<const std::byte> fixed, std::span<const std::byte> tail) {
  std::list<letter> one(1);
  letter& l = one.front();
  const message_head head{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(fixed.size() + tail.size())};
  l.message.reserve(sizeof head + fixed.size() + tail.size());
  const auto add = [&](std::span<const std::byte> b) { l.message.insert(l.message.end(), b.begin(), b.end()); };
  add(std::as_bytes(std::span(&head, 1)));
  add(fixed);
  add(tail);
  l.type = type;
  l.of = this;
  make_message(l.request, fabric::lane::control, l.message.data(), l.message.size());
  l.sent = posted_ = clock::now();
  l.request.deadline = l.sent + tenure_;
  l.request.context = &l;
  l.request.on_done = [](fabric::request& r) noexcept {
    auto& done = *static_cast<letter*>(r.context);
    backup_link& of = *done.of;
    void (*const rung)(void*) noexcept = of.rung_;
    void* const context = of.context_;
    // At once, and not when the keeper comes by: clients wait for it.
    if (answer_view v = parse_answer(r.reply, as_type(done.type)); r.status == errc::ok && v.code == errc::ok)
      if (backup_answer a{}; codec::take(v.body, a)) of.log_.confirmed(a.applied);
    done.done.store(true, std::memory_order_release);  // it may be gone from here on
    rung(context);
  };
  letters_.splice(letters_.end(), one);
  session_->post(l.request);
}

backup_link::news backup_link::look() {
  news n;
  while (!letters_.empty() && letters_.front().done.load(std::memory_order_acquire)) {
    letter& l = letters_.front();
    codec::discard_key(l.request.reply_key);
    if (l.request.status != errc::ok) {
      lost_some_ = true;
    } else {
      answer_view v = parse_answer(l.request.reply, as_type(l.type));
      backup_answer a{};
      const bool tells = l.type != backup_message::leave_backup;
      if (v.code == errc::conflict) {
        lost_some_ = true;
      } else if (v.code != errc::ok || (tells && !codec::take(v.body, a))) {
        n.refusal = v.code == errc::ok ? errc::bad_frame : v.code;
        n.text = v.text();
      } else if (tells) {
        n.joined = n.joined || l.type == backup_message::backup_joined;
        n.takes_over = n.takes_over || l.type == backup_message::take_over;
        n.leaves = n.leaves || a.leaves != 0;
        n.promised = std::max(n.promised, l.sent);
      } else {
        n.left = true;
      }
    }
    letters_.pop_front();
  }
  if (is_lost() && n.refusal == errc::ok) {
    const std::lock_guard lock(mutex_);
    n.refusal = refused_ != errc::ok ? refused_ : errc::disconnected;
    n.text = refused_ != errc::ok ? text_ : "it does not answer";
  }
  if (lost_some_ && letters_.empty() && is_up()) {
    lost_some_ = false;
    n.begins_again = true;
  }
  return n;
}

}  // namespace fm::agent
