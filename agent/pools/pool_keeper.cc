// The rounds of a pool's keeper; see pool_keeper.h.
#include "pool_keeper.h"

#include "base/log.h"
#include "os/os.h"
#include <fmt/format.h>

#include <algorithm>

#include "agent/base/reachable.h"

namespace fm::agent {

pool_keeper::pool_keeper(environment& agent, pool& of)
    : agent_(agent),
      pool_(of),
      replicas_(*of.replicas),
      self_(of.replicas->self),
      region_bytes_(static_cast<std::uint32_t>(of.frames->region_bytes())) {}

pool_keeper::~pool_keeper() {
  stop(false);
  if (thread_.joinable()) thread_.join();
}

void pool_keeper::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception& e) {
    throw error(errc::out_of_memory, fmt::format("a thread for the replicas of pool {}: {}", pool_.name, e.what()));
  }
}

void pool_keeper::stop(bool ended) noexcept {
  if (ended) ended_.store(true);
  stop_.store(true);
  ring();
}

void pool_keeper::may_ask(std::vector<std::string> urls) {
  const std::lock_guard lock(mutex_);
  urls_ = std::move(urls);
  ring();
}

std::string pool_keeper::backup() const {
  const std::lock_guard lock(mutex_);
  return backup_url_;
}

void pool_keeper::set_backup(const std::string& url) {
  const std::lock_guard lock(mutex_);
  backup_url_ = url;
}

std::string pool_keeper::record_name() const {
  // Not the tenant itself: it is a secret.
  const std::uint32_t of_tenant = detail::crc32c(pool_.tenant, sizeof pool_.tenant);
  return fmt::format("farmem/pools/{:08x}-{:08x}", of_tenant, pool_.instance);
}

std::string pool_keeper::survive(std::uint64_t term) {
  const pair_membership& members = replicas_.members;
  const auto now = [&] {
    return fmt::format("pool {} instance {:08x}: {}, term {}", pool_.name, pool_.instance, to_string(members.role()),
                       members.term());
  };
  if (term != members.term()) return now() + fmt::format(", and not {}: nothing was done", term);
  if (members.role() == pair_role::alone) return now() + ": it goes on already";
  if (members.role() == pair_role::learning) return now() + ": it has not everything: nothing was done";
  std::unique_lock lock(mutex_);
  by_hand_ = term;
  ring();
  decided_.wait_for(lock, limits::admin_deadline / 2, [&] { return by_hand_ == 0; });
  const bool done = by_hand_ == 0;
  by_hand_ = 0;
  return now() + (done ? ": it goes on alone" : ": not yet; its primary was heard a moment ago, or it is asked still");
}

errc pool_keeper::decide(const pair_record& before, const pair_record& next, bool free, pair_record& now) {
  if (agent_.options.arbiter != nullptr) {
    const errc e = agent_.options.arbiter->change(record_name(), before, next, now);
    if (e == errc::ok) record_ = next;
    return e;
  }
  if (free) return errc::ok;
  return is_by_hand(before.term) ? errc::ok : errc::unreachable;
}

bool pool_keeper::is_by_hand(std::uint64_t term) const {
  const std::lock_guard lock(mutex_);
  return by_hand_ == term;
}

// ---- rounds ----

void pool_keeper::run() noexcept {
  os::name_thread("fm-replica");
  pool_log& log = replicas_.log;
  while (!stop_.load() && replicas_.members.role() != pair_role::over) {
    const std::uint32_t seen = log.bell.load(std::memory_order_seq_cst);
    const time_point now = clock::now();
    time_point until = now + limits::sleep_max;
    bool more = false;
    try {
      more = step(now, until);
    } catch (const std::exception& e) {
      log::error("pool {}: its replicas: {}", pool_.name, e.what());
      until = now + limits::pair_retry;
    }
    if (more) continue;
    log.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!stop_.load()) os::futex_wait(log.bell, seen, until);
    log.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  const bool ended = ended_.load() && replicas_.members.is_primary();
  drop_link(ended);
  if (ended && registered_ && agent_.options.arbiter != nullptr) agent_.options.arbiter->forget(record_name(), record_);
}

bool pool_keeper::step(time_point now, time_point& until) {
  // Silence counts only while this thread would have heard something.
  const duration lag = round_at_ == time_point{} ? duration{} : now - round_at_;
  if (lag > replicas_.members.tenure() / limits::beats_a_tenure && heard_ != time_point{} && stage_ != stage::none)
    heard_ = std::min(now, heard_ + lag);
  const pair_membership& members = replicas_.members;
  const bool more = members.is_primary()                   ? lead(now, until)
                    : members.role() == pair_role::leaving ? hand_over(now, until)
                                                           : follow(now, until);
  round_at_ = more ? now : std::min(until, clock::now() + limits::sleep_max);
  return more;
}

void pool_keeper::end(const char* why) {
  log::warn("pool {}: this agent is not one of its two any more: {}", pool_.name, why);
  replicas_.members.end();
  agent_.wake();
}

void pool_keeper::drop_link(bool tell) {
  if (link_ != nullptr && tell && link_->is_up()) {
    link_->post(backup_message::leave_backup, {});
    const time_point enough = clock::now() + limits::pair_retry;
    while (!link_->is_idle() && link_->is_up() && clock::now() < enough) {
      const std::uint32_t seen = replicas_.log.bell.load(std::memory_order_seq_cst);
      (void)link_->look();
      if (link_->is_idle()) break;
      replicas_.log.sleepers.fetch_add(1, std::memory_order_seq_cst);
      os::futex_wait(replicas_.log.bell, seen, enough);
      replicas_.log.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
  }
  link_.reset();
  stage_ = stage::none;
  lets_go_ = let_go_ = asked_over_ = ever_asked_over_ = takes_over_ = false;
  set_backup({});
}

// ---- the primary ----

backup_link::news pool_keeper::hear_backup() {
  backup_link::news news = link_->look();
  if (news.promised != time_point{}) {
    promised_ = news.promised;
    heard_ = std::max(heard_, promised_);
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

bool pool_keeper::has_third() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(urls_.begin(), urls_.end(), [&](const std::string& u) { return u != link_->url(); });
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
  if (stage_ == stage::following && told_ && !asks_ && !lets_go_ && link_->takes_more() && has_third()) {
    if (agent_.drained.load(std::memory_order_acquire) && replicas_.members.leave()) {
      log::info("pool {}: this agent is drained, and gives it to {}", pool_.name, link_->url());
      const duration lease = pool_.reading_lease();
      leases_until_ = clock::now() + lease + lease / limits::tenure_drift_share;
      if (agent_.options.arbiter == nullptr) link_->insist();
      return true;
    }
    if (news.leaves) {
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
  open_backup_body hello{};
  hello.major = backup_protocol_major;
  hello.minor = backup_protocol_minor;
  hello.slot = pool_.slot;
  hello.instance = pool_.instance;
  hello.tenant[0] = pool_.tenant[0];
  hello.tenant[1] = pool_.tenant[1];
  hello.primary = self_;
  hello.term = term;
  hello.quota_bytes = pool_.quota_bytes;
  hello.tenure_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(replicas_.members.tenure()).count());
  hello.region_bytes = region_bytes_;
  hello.settings = pool_.settings;
  pool_.name.copy(hello.name, sizeof hello.name - 1);
  try {
    link_ = std::make_unique<backup_link>(
        url, hello, replicas_.members.tenure(), replicas_.log,
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
    // By hand, what was said once is done; the backup may answer again before anybody says so.
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

// ---- the backup ----

bool pool_keeper::follow(time_point now, time_point& until) {
  pair_membership& members = replicas_.members;
  const time_point silent = members.silent_until();
  const bool learns = members.role() == pair_role::learning, has_arbiter = agent_.options.arbiter != nullptr;
  const bool left = members.is_left();
  const time_point from = left ? time_point{} : learns ? silent + limits::learning_tenures * members.tenure() : silent;
  if (now < from || (!has_arbiter && !learns && !left && !is_by_hand(members.term()))) {
    until = std::min(until, std::max(from, now + members.tenure() / limits::beats_a_tenure));
    return false;
  }
  if (learns && !has_arbiter) {
    end("its primary is gone, and it has not everything");
    return false;
  }
  if (!members.begin_taking_over(now)) {
    until = std::min(until, now + members.tenure() / limits::beats_a_tenure);
    return false;
  }
  // One that is learning has everything if the record names it: its primary was lost when it was about to say so.
  const std::uint64_t term = members.term() + (learns ? 1 : 0);
  pair_record is;
  const errc e = decide({term, replicas_.primary, self_}, {term + 1, self_, 0}, left, is);
  if (e == errc::conflict) {
    end(learns ? "its primary is gone, and it has not everything" : "its primary goes on without it");
    return false;
  }
  if (e != errc::ok) {
    if (!std::exchange(warned_, true))
      log::warn("pool {}: its primary is silent, and the arbiter does not say who goes on", pool_.name);
    until = std::min(until, now + limits::pair_retry);
    return false;
  }
  {
    const std::lock_guard lock(pool_.structure);
    if (pool_.closed) return false;
    pool_.take_over(term + 1, agent_.now());
  }
  warned_ = false;
  registered_ = true;
  log::at(left ? log_level::info : log_level::warn, "pool {}: its primary {}; this agent is the primary now, term {}",
          pool_.name, left ? "has left" : "is gone", term + 1);
  {
    const std::lock_guard lock(mutex_);
    by_hand_ = 0;
    decided_.notify_all();
  }
  agent_.wake();
  return true;
}

}  // namespace fm::agent
