// An agent, a session with it over a transport, and the owner's side of batches: filling them and recording what it
// says of them. Every record is checked for the two promises that all else rests on: one outcome a batch, in sequence.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "agent.h"

namespace fm::remote::test {

inline time_point soon() { return clock::now() + std::chrono::minutes(10); }

/// What the owner was told. Thread-safe.
struct outcomes {
  struct one {
    std::uint64_t seq;
    errc code;
  };
  std::mutex mutex;
  std::condition_variable told;
  std::vector<one> all;
  std::vector<std::uint32_t> retire_asked;
  std::vector<errc> lost;

  std::vector<one> take() {
    const std::lock_guard lock(mutex);
    return all;
  }
  template <class Condition>
  bool until(Condition condition) {
    std::unique_lock lock(mutex);
    return told.wait_for(lock, std::chrono::minutes(10), condition);
  }
  static void acknowledged(batch& b, errc code) noexcept {
    auto& o = *static_cast<outcomes*>(b.owner);
    const std::lock_guard lock(o.mutex);
    o.all.push_back({b.seq, code});
    o.told.notify_all();
  }
  static bool retire(void* context, std::uint32_t region, std::uint32_t) noexcept {
    auto& o = *static_cast<outcomes*>(context);
    const std::lock_guard lock(o.mutex);
    o.retire_asked.push_back(region);
    o.told.notify_all();
    return true;
  }
  static void link_lost(void* context, errc why) noexcept {
    auto& o = *static_cast<outcomes*>(context);
    const std::lock_guard lock(o.mutex);
    o.lost.push_back(why);
    o.told.notify_all();
  }
};

inline std::string listen_url(const std::string& scheme) {
  static std::atomic<int> serial{0};
  if (scheme == "shm") return "shm:///tmp/fm-link-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
  return "tcp://127.0.0.1:0";
}

inline agent_session_options options_for(outcomes& o) {
  agent_session_options p;
  p.heap_name = "test";
  p.heap_id[0] = 7;
  p.heap_id[1] = 9;
  p.incarnation = 11;
  p.batch_bytes = 4096;
  p.on_retire = outcomes::retire;
  p.on_lost = outcomes::link_lost;
  p.context = &o;
  return p;
}

/// Appends a copy {header, bytes, pattern} of `bytes` (a multiple of 8, at least 16).
inline detail::home_address put(batch& b, detail::slot_t slot, std::uint32_t bytes, std::uint32_t type = 1) {
  REQUIRE(b.fits(bytes));
  const detail::home_address at = b.next(bytes);
  std::byte* p = b.data + b.used;
  const std::uint64_t header = detail::header::pack(type, slot);
  const std::uint64_t n = bytes;
  std::memcpy(p, &header, 8);
  std::memcpy(p + 8, &n, 8);
  for (std::uint32_t i = 16; i < bytes; i += 8) {
    const std::uint64_t v = slot * 1000003 + i;
    std::memcpy(p + i, &v, 8);
  }
  b.used += bytes;
  ++b.count;
  return at;
}
inline bool is_copy(const std::byte* p, detail::slot_t slot, std::uint32_t bytes) {
  std::uint64_t v = 0;
  std::memcpy(&v, p, 8);
  if (detail::header::slot(v) != slot || copy_bytes(p) != bytes) return false;
  for (std::uint32_t i = 16; i < bytes; i += 8) {
    std::memcpy(&v, p + i, 8);
    if (v != slot * 1000003 + i) return false;
  }
  return true;
}

/// A scripted agent and a session with it over "local", "shm" or "tcp".
struct linked {
  scripted_agent agent;
  outcomes told;
  agent_session_options options;
  std::unique_ptr<fabric::listener> server;
  std::unique_ptr<agent_session> l;

  explicit linked(std::uint64_t region_bytes = 64 << 10, std::uint32_t regions = 64)
      : agent(region_bytes, regions), options(options_for(told)) {}
  ~linked() {
    if (l) l->close();
  }
  linked& open(const std::string& scheme = "local") {
    if (scheme == "local") {
      options.in_process = &agent;
      l = agent_session::open("local:", options);
    } else {
      server = fabric::listen(listen_url(scheme), {}, agent);
      l = agent_session::open(server->url(), options);
    }
    return *this;
  }
  batch* begin(std::uint64_t bytes = 64) {
    errc why = errc::ok;
    batch* b = l->begin_batch(bytes, soon(), why);
    INFO("begin_batch: " << to_string(why));
    REQUIRE(b);
    b->owner = &told;
    b->on_acknowledged = outcomes::acknowledged;
    return b;
  }
  /// One batch with one object.
  detail::home_address write(detail::slot_t slot, std::uint32_t bytes = 64) {
    batch* b = begin(bytes);
    const detail::home_address at = put(*b, slot, bytes);
    l->submit(b);
    return at;
  }
  void flush() { REQUIRE(l->flush(soon()) == errc::ok); }

  /// Every batch was told once, in sequence; nothing is missing up to the last one.
  void check_outcomes(std::size_t n, errc code = errc::ok) {
    const auto all = told.take();
    REQUIRE(all.size() == n);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0) CHECK(all[i].seq > all[i - 1].seq);
      CHECK(all[i].code == code);
    }
  }
  /// The agent applied 1, 2, 3, ... without a gap, and regions can be walked by their batch headers.
  void check_agent() {
    std::map<std::uint32_t, std::uint64_t> readable;
    {
      const std::lock_guard lock(agent.mutex);
      for (std::size_t i = 0; i < agent.log.size(); ++i) CHECK(agent.log[i].seq == i + 1);
      for (auto& [n, r] : agent.regions) readable[n] = r.readable;
    }
    for (auto& [n, bytes] : readable) {
      if (bytes != 0) CHECK_FALSE(agent.walk(n).empty());
      if (l && !l->lost()) CHECK(l->readable(n) <= agent.region_bytes);
    }
  }
};

}  // namespace fm::remote::test
