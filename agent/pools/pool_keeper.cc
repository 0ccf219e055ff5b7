// The thread of a pool's keeper, what others ask of it, and the rounds of a backup; see pool_keeper.h, and leading.cc for
// those of a primary.
#include "pool_keeper.h"

#include "base/log.h"
#include "os/os.h"
#include <fmt/format.h>

#include <algorithm>

namespace fm::agent {

pool_keeper::pool_keeper(environment& agent, pool& of)
    : agent_(agent),
      pool_(of),
      replicas_(*of.replicas),
      self_(of.replicas->self),
      region_bytes_(static_cast<std::uint32_t>(of.frames->region_bytes())),
      followed_(agent.now()) {}

pool_keeper::~pool_keeper() {
  hurry();
  if (thread_.joinable()) thread_.join();
}

void pool_keeper::start() {
  try {
    done_.store(false);
    thread_ = std::thread([this] {
      run();
      environment& agent = agent_;
      done_.store(true, std::memory_order_release);  // the keeper may be gone from here on
      agent.wake();
    });
  } catch (const std::exception& e) {
    done_.store(true);
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
  asked_for_ = agent_.now();
  ring();
}

std::string pool_keeper::backup() const {
  const std::lock_guard lock(mutex_);
  return backup_url_;
}

void pool_keeper::set_backup(const std::string& url) {
  {
    const std::lock_guard lock(mutex_);
    if (backup_url_ == url) return;
    backup_url_ = url;
    has_backup_.store(!url.empty(), std::memory_order_release);
  }
  const std::lock_guard lock(pool_.structure);
  pool_.tell_state();
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
    if (!stop_.load()) wait_for_bell(seen, until);
  }
  const bool ended = ended_.load() && replicas_.members.is_primary();
  if (ended && stage_ == stage::following && agent_.options.arbiter == nullptr) tell_end();
  drop_link(ended);
  if (ended && registered_ && agent_.options.arbiter != nullptr) agent_.options.arbiter->forget(record_name(), record_);
}

void pool_keeper::wait_for_bell(std::uint32_t seen, time_point until) noexcept {
  replicas_.log.sleepers.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wait(replicas_.log.bell, seen, until);
  replicas_.log.sleepers.fetch_sub(1, std::memory_order_seq_cst);
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
      wait_for_bell(seen, enough);
    }
  }
  link_.reset();
  stage_ = stage::none;
  lets_go_ = let_go_ = asked_over_ = ever_asked_over_ = takes_over_ = false;
  set_backup({});
}

void pool_keeper::tell_end() {
  const time_point enough = clock::now() + limits::ending_for;
  try {
    for (bool said = false; !hurries_.load() && clock::now() < enough;) {
      const std::uint32_t seen = replicas_.log.bell.load(std::memory_order_seq_cst);
      const backup_link::news news = link_->look();
      if (news.left || news.refusal != errc::ok) break;  // it is gone, or the primary
      said = said && !news.begins_again;
      if (!said && link_->takes_more()) {
        link_->post(backup_message::leave_backup, {});
        said = true;
      }
      wait_for_bell(seen, std::min(enough, clock::now() + limits::sleep_max));
    }
  } catch (const std::bad_alloc&) {
    log::error("pool {}: it has ended, and {} could not be told", pool_.name, link_->url());
  }
  link_.reset();
}

// ---- the backup ----

bool pool_keeper::give_up(bool is_silent) {
  const time_point at = agent_.now();
  if (!is_silent) followed_ = at;
  time_point wanted = followed_;
  {
    const std::lock_guard lock(mutex_);
    wanted = std::max(wanted, asked_for_);
  }
  const auto enough = std::chrono::milliseconds(std::uint64_t{agent_.options.lease_max_ms} + limits::pool_keep_max_ms);
  if (at < wanted + enough || is_by_hand(replicas_.members.term()) || !replicas_.members.let_go()) return false;
  log::warn("pool {}: its primary is gone, nobody said who goes on, and no client has asked for it", pool_.name);
  agent_.wake();
  return true;
}

bool pool_keeper::follow(time_point now, time_point& until) {
  pair_membership& members = replicas_.members;
  const time_point silent = members.silent_until();
  const bool learns = members.role() == pair_role::learning, has_arbiter = agent_.options.arbiter != nullptr;
  const bool left = members.is_left();
  const time_point from = left ? time_point{} : learns ? silent + limits::learning_tenures * members.tenure() : silent;
  if (!has_arbiter && !learns && !left && give_up(now >= silent)) return false;
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
  stayed_ = now;
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
