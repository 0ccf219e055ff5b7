// The rounds of a pool's primary: finding a backup, teaching it, sending it what changes, leaving; members of pool_keeper.
#include "pool_keeper.h"

#include "base/log.h"
#include <fmt/format.h>

#include <algorithm>

#include "agent/base/reachable.h"

namespace fm::agent {

backup_link::news pool_keeper::hear_backup() {
  backup_link::news news = link_->look();
  if (news.promised != time_point{}) {
    promised_ = news.promised;
    heard_ = std::max(heard_, promised_);
    warned_ = warned_ && asks_;
    replicas_.members.promised(news.promised);
  }
  if (news.begins_again) {
    replicas_.log.send_again_after(replicas_.log.confirmed());
    lets_go_ = asked_over_ = false;
  }
  told_ = told_ || news.joined;
  left_ = left_ || (let_go_ && (news.left || news.refusal == errc::not_found));
  takes_over_ = takes_over_ || news.takes_over || (ever_asked_over_ && news.refusal == errc::refused);
  return news;
}

std::string pool_keeper::why_lost(const backup_link::news& news) const {
  return left_ ? "its agent is drained" : news.refusal != errc::ok ? news.text : "it does not answer";
}

/// By numbers: two processes may spell one address in two ways. One address a round, so that beats go on.
bool pool_keeper::has_third(time_point now) {
  if (link_->agent() == third_beside_ && now < third_until_) return has_third_;
  if (link_->agent() != third_beside_) next_third_ = 0;
  third_beside_ = link_->agent();
  has_third_ = false;
  std::string url;
  {
    const std::lock_guard lock(mutex_);
    if (next_third_ < urls_.size()) url = urls_[next_third_];
  }
  if (!url.empty() && url != link_->url() && may_connect(agent_.options, url) == errc::ok) {
    const auto is_not = [&](std::uint64_t number) {
      return !is_agent(url, hello(), number, replicas_.members.tenure() / 4).value_or(true);
    };
    has_third_ = is_not(link_->agent()) && is_not(self_);
  }
  next_third_ = has_third_ || url.empty() ? 0 : next_third_ + 1;
  if (next_third_ == 0) third_until_ = clock::now() + limits::sleep_max;
  return has_third_;
}

bool pool_keeper::lead(time_point now, time_point& until) {
  if (stage_ == stage::none) {
    find_backup(now, until);
    return stage_ != stage::none;
  }
  const duration tenure = replicas_.members.tenure();
  const backup_link::news news = hear_backup();
  const bool follows = stage_ == stage::following;
  const bool silent =
      follows ? now >= heard_ + tenure / 2 || is_by_hand(replicas_.members.term())
              : now >= heard_ + limits::teaching_tenures * tenure || replicas_.log.bytes() >= limits::log_bytes_max;
  if (news.refusal != errc::ok || silent || asks_ || left_) {
    if (asks_ && stage_ == stage::settling)
      join_backup(now, until);
    else
      lose_backup(now, why_lost(news), until);
    if (link_ == nullptr || replicas_.members.role() == pair_role::over) return false;
  }
  // Clients hear that it leaves before it serves no more.
  const bool drained = agent_.drained.load(std::memory_order_acquire);
  if (!drained) stayed_ = now;
  const bool may_leave = drained && now >= stayed_ + pool_.reading_lease();
  if (stage_ == stage::following && told_ && !asks_ && !lets_go_ && link_->takes_more()) {
    // Once it was said, until it is heard: the backup may have ended because of what was said on an earlier connection.
    if (!let_go_ && may_leave && has_third(now) && replicas_.members.leave()) {
      log::info("pool {}: this agent is drained, and gives it to {}", pool_.name, link_->url());
      const duration lease = pool_.reading_lease();
      leases_until_ = clock::now() + lease + lease / limits::tenure_drift_share;
      return true;
    }
    if (let_go_ || (news.leaves && has_third(now))) {
      lets_go_ = let_go_ = true;
      link_->post(backup_message::leave_backup, {});
    }
  }
  const duration beat = tenure / limits::beats_a_tenure;
  until = std::min({until, now + beat, heard_ + tenure / 2 > now ? heard_ + tenure / 2 : now + beat});
  if (lets_go_) return false;  // what changes goes to the next one
  bool more = false;
  if (stage_ == stage::teaching) more = teach() || more;
  more = send_records() || more;
  if (stage_ == stage::settling && !asks_ && replicas_.log.confirmed() >= settled_at_) join_backup(now, until);
  if (link_ != nullptr && stage_ == stage::following && !told_ && link_->is_idle() && link_->takes_more())
    tell_backup();
  if (link_ != nullptr && link_->is_idle() && link_->takes_more() && now >= link_->posted() + beat)
    link_->post(backup_message::backup_beat, {});
  return more;
}

/// Whatever counts is at the backup: this only has to be said, when nobody reads here any more.
bool pool_keeper::hand_over(time_point now, time_point& until) {
  const duration tenure = replicas_.members.tenure();
  const backup_link::news news = hear_backup();
  // Not while it is asked whether this agent goes on: the answer may be that, whatever the backup has said.
  if (takes_over_ && !asks_) {
    log::info("pool {}: {} is its primary now", pool_.name, link_->url());
    replicas_.members.end();
    agent_.wake();
    return false;
  }
  // It may be gone, or it has forgotten, or it takes over and that was not heard: whoever says who goes on knows. An
  // administrator does not, as long as the backup may be about to.
  const bool by_hand = !ever_asked_over_ && is_by_hand(replicas_.members.term());
  if (news.refusal != errc::ok || asks_ || now >= heard_ + tenure / 2 || by_hand) {
    lose_backup(now, why_lost(news), until);
    if (link_ == nullptr || replicas_.members.role() != pair_role::leaving || asks_) return false;
  }
  const bool more = send_records();
  const duration beat = tenure / limits::beats_a_tenure;
  if (now >= leases_until_ && !asked_over_ && link_->takes_more()) {
    const take_over_body b{replicas_.members.term()};
    link_->post(backup_message::take_over, std::as_bytes(std::span(&b, 1)));
    asked_over_ = ever_asked_over_ = true;
  } else if (link_->is_idle() && link_->takes_more() && now >= link_->posted() + beat) {
    link_->post(backup_message::backup_beat, {});
  }
  until = std::min({until, now + beat, std::max(leases_until_, now + limits::pair_retry)});
  return more;
}

open_backup_body pool_keeper::hello() const {
  open_backup_body b{};
  b.major = backup_protocol_major;
  b.minor = backup_protocol_minor;
  b.slot = pool_.slot;
  b.instance = pool_.instance;
  b.tenant[0] = pool_.tenant[0];
  b.tenant[1] = pool_.tenant[1];
  b.primary = self_;
  b.term = replicas_.members.term();
  b.quota_bytes = pool_.quota_bytes;
  b.tenure_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(replicas_.members.tenure()).count());
  b.region_bytes = region_bytes_;
  b.settings = pool_.settings;
  pool_.name.copy(b.name, sizeof b.name - 1);
  return b;
}

void pool_keeper::find_backup(time_point now, time_point& until) {
  if (now < try_at_) {
    until = std::min(until, try_at_);
    return;
  }
  try_at_ = now + limits::pair_retry;
  until = std::min(until, try_at_);
  const std::uint64_t term = replicas_.members.term();
  if (!registered_) {
    pair_record is;
    const errc e = decide({}, {term, self_, 0}, true, is);
    if (e == errc::conflict) log::warn("pool {}: the arbiter has another record of that name", pool_.name);
    if (e != errc::ok) return;
    registered_ = true;
  }
  std::string url;
  bool tried_all = false;
  {
    const std::lock_guard lock(mutex_);
    if (urls_.empty()) {
      until = now + limits::sleep_max;
      return;
    }
    url = urls_[next_url_++ % urls_.size()];
    tried_all = ++tried_ > urls_.size();
  }
  if (may_connect(agent_.options, url) != errc::ok) return;
  try {
    link_ = std::make_unique<backup_link>(
        url, hello(), replicas_.members.tenure(), replicas_.log,
        [](void* k) noexcept { static_cast<pool_keeper*>(k)->ring(); }, this);
  } catch (const error& e) {
    log::debug("pool {}: {} does not become its backup: {}", pool_.name, url, e.what());
    return;
  }
  if (link_->agent() == self_) {
    link_.reset();
    return;
  }
  // Of its own zone only if there was none of another one.
  if (!tried_all && link_->zone() != 0 && link_->zone() == zone_number(agent_.options.zone)) return drop_link(true);
  stage_ = stage::teaching;
  image_begun_ = false;
  promised_ = heard_ = now;
}

bool pool_keeper::teach() {
  pool_log& log = replicas_.log;
  bool more = true;
  {
    const std::lock_guard lock(pool_.structure);
    if (pool_.closed) return false;
    if (!image_begun_) {
      log.record(true);
      pool_.blocks->begin_image();
      pool_.begin_image();
      image_begun_ = true;
    }
    if (log.bytes() >= limits::image_bytes_max) return false;  // what is under way comes first
    more = pool_.blocks->image_step(limits::image_bytes_at_once);
    if (!more) {
      pool_.blocks->end_image();
      pool_.end_image();
      (void)log.append(pool_log::make(record_kind::mark, std::size_t{0}));
      settled_at_ = log.wait_for_backup();
      stage_ = stage::settling;
    }
  }
  return true;
}

bool pool_keeper::send_records() {
  if (!link_->takes_more()) return false;
  records_.clear();
  backup_records_body b{};
  b.count = replicas_.log.take(records_, limits::records_bytes_max, b.after);
  if (b.count == 0) return false;
  const auto now_ms = std::chrono::floor<std::chrono::milliseconds>(agent_.now().time_since_epoch());
  tell_how_long(records_, static_cast<std::uint64_t>(now_ms.count()));
  b.bytes = static_cast<std::uint32_t>(records_.size());
  link_->post(backup_message::backup_records, std::as_bytes(std::span(&b, 1)), records_);
  return true;
}

void pool_keeper::join_backup(time_point now, time_point& until) {
  if (asks_ && now < try_at_) {
    until = std::min(until, try_at_);
    return;
  }
  // It serves under promises before it asks: once the record names the backup, that may take over whatever it has heard,
  // and whether or not the arbiter's answer comes. And not from now on: it has answered what was sent then.
  if (replicas_.members.role() == pair_role::alone) replicas_.members.join(replicas_.members.term() + 1, promised_);
  const std::uint64_t term = replicas_.members.term() - 1;
  pair_record is;
  const errc e = decide({term, self_, 0}, {term + 1, self_, link_->agent()}, true, is);
  if (e == errc::conflict && is == pair_record{}) {  // nobody can have gone on in place of one that is alone
    log::warn("pool {}: the arbiter has lost its record", pool_.name);
    registered_ = asks_ = false;
    replicas_.members.go_on_alone(term + 2);
    return lose_backup(now, "the arbiter does not know of the pool", until);
  }
  if (e == errc::conflict) return end("somebody else goes on");
  asks_ = e != errc::ok;
  try_at_ = clock::now() + limits::pair_retry;
  if (asks_) return;
  heard_ = clock::now();
  link_->set_term(term + 1);
  told_ = false;
  tell_backup();
  stage_ = stage::following;
  tried_ = 0;
  set_backup(link_->url());
  if (agent_.options.arbiter == nullptr) link_->insist();
  log::info("pool {}: {} is its backup, term {}", pool_.name, link_->url(), term + 1);
}

/// Until it has answered: a connection that breaks may lose it.
void pool_keeper::tell_backup() {
  const backup_joined_body b{replicas_.members.term()};
  link_->post(backup_message::backup_joined, std::as_bytes(std::span(&b, 1)));
}

void pool_keeper::lose_backup(time_point now, const std::string& why, time_point& until) {
  if (stage_ == stage::following) {
    if (asks_ && now < try_at_) {
      until = std::min(until, try_at_);
      return;
    }
    const std::uint64_t term = replicas_.members.term();
    pair_record is;
    const errc e = decide({term, self_, link_->agent()}, {term + 1, self_, 0}, left_, is);
    if (e == errc::conflict) return end("its backup has taken over");
    // By hand, what was said once is done; the backup may answer again before anybody says so, on another connection.
    asks_ = e != errc::ok && agent_.options.arbiter != nullptr;
    try_at_ = clock::now() + limits::pair_retry;
    until = std::min(until, try_at_);
    if (e != errc::ok) {
      if (!std::exchange(warned_, true))
        log::warn("pool {}: its backup {}: {}; changes wait until {} who goes on", pool_.name, link_->url(), why,
                  agent_.options.arbiter != nullptr ? "the arbiter says" : "an administrator says");
      return;
    }
    replicas_.members.go_on_alone(term + 1);
    log::warn("pool {}: its backup {} is given up: {}; it goes on alone, term {}", pool_.name, link_->url(), why,
              term + 1);
    const std::lock_guard lock(mutex_);
    by_hand_ = 0;
    decided_.notify_all();
  } else {
    log::warn("pool {}: {} does not become its backup: {}", pool_.name, link_->url(), why);
  }
  {
    const std::lock_guard lock(pool_.structure);
    if (!pool_.closed) pool_.blocks->end_image();
    replicas_.log.record(false);
  }
  asks_ = warned_ = false;
  try_at_ = now + limits::pair_retry;
  drop_link(!std::exchange(left_, false));
}

}  // namespace fm::agent
