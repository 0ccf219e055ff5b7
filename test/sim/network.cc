#include "network.h"

#include <algorithm>

#include "scheduler.h"

namespace fm::sim {

network& network::get() {
  static auto* n = new network;  // outlives every thread
  return *n;
}

void network::add(const std::string& host, fabric::service& s) {
  const std::lock_guard lock(mutex_);
  nodes_[host].service = &s;
}

void network::remove(const std::string& host) {
  std::unique_lock lock(mutex_);
  nodes_[host].service = nullptr;
  // Again and again: a connection that was on its way to be one cannot be broken before it is.
  do {
    for (breakable* s : sessions_)
      if (s->host() == host) s->break_now();
  } while (!left_.wait_for(lock, std::chrono::milliseconds(1), [&] { return nodes_[host].connections == 0; }));
}

void network::remove_after_last_words(const std::string& host, time_point deadline) {
  const auto some_have_notices = [&] {
    const std::lock_guard lock(mutex_);
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [&](const breakable* s) { return s->host() == host && s->has_notices(); });
  };
  while (some_have_notices() && clock::now() < deadline) sleep_until(now() + options.delay_max);
  remove(host);
}

void network::break_one() {
  const std::lock_guard lock(mutex_);
  if (sessions_.empty()) return;
  sessions_[random() % sessions_.size()]->break_now();
  ++counts.breaks;
}

fabric::service* network::enter(const std::string& host) {
  const std::lock_guard lock(mutex_);
  const auto it = nodes_.find(host);
  if (it == nodes_.end() || it->second.service == nullptr) return nullptr;
  ++it->second.connections;
  return it->second.service;
}

void network::leave(const std::string& host) {
  const std::lock_guard lock(mutex_);
  --nodes_[host].connections;
  left_.notify_all();
}

void network::add(breakable& b) {
  const std::lock_guard lock(mutex_);
  sessions_.push_back(&b);
}

void network::remove(breakable& b) {
  const std::lock_guard lock(mutex_);
  std::erase(sessions_, &b);
}

std::uint64_t network::way(fabric::lane on) const {
  if (on == fabric::lane::control && one_in(options.control_slow_one_in)) return random() % (10 * options.slow_max);
  if (one_in(options.slow_one_in)) return random() % options.slow_max;
  return options.delay_min + random() % (options.delay_max - options.delay_min);
}

}  // namespace fm::sim
