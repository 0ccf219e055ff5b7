// The service behind the fabric's tests: a few regions of memory, and messages that echo, hold, notify and misbehave on
// request. It keeps account of what a service is promised: no call for a peer before connected or after disconnected
// has begun, and one memory_done for each memory.
#pragma once

#include "fabric/client/client.h"
#include "fabric/server/server.h"
#include "os/os.h"
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>

namespace fm::fabric::test {

/// First byte of a message.
enum class verb : std::uint8_t { echo, hold, key, sum, notify, grow, refuse, kick, finish };

#pragma pack(push, 1)
struct command {
  verb what = verb::echo;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};
#pragma pack(pop)

class memory_service final : public service {
 public:
  static constexpr std::uint64_t region_bytes = 8ull << 20;
  static constexpr std::uint32_t region_count = 2;

  memory_service() {
    for (auto& r : regions_) r.file = os::memory_file("test-region", region_bytes);
  }
  ~memory_service() override {
    CHECK(peers_.empty());
    CHECK(violations_ == 0);
  }

  std::byte* base(std::uint32_t number) { return regions_[number].file.base(); }
  [[nodiscard]] std::uint32_t generation_of(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    return regions_[number].generation;
  }
  void bump_generation(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    ++regions_[number].generation;
  }
  /// Opens the gate that `hold` messages wait at, for good.
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  /// Waits (bounded) until a condition on the service's own counters holds.
  bool until(const std::function<bool(memory_service&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(10), [&] { return condition(*this); });
  }

  errc connected(peer& p) noexcept override {
    const std::lock_guard lock(mutex_);
    if (refuse_with != errc::ok) return refuse_with;
    peers_.insert(&p);
    ++sessions_seen;
    changed_.notify_all();
    return errc::ok;
  }
  void disconnected(peer& p) noexcept override {
    const std::lock_guard lock(mutex_);
    if (peers_.erase(&p) != 1 || inside_[&p] != 0) ++violations_;
    inside_.erase(&p);
    ++sessions_ended;
    changed_.notify_all();
  }

  errc stream(peer& p, std::uint16_t index, os::descriptor socket) noexcept override {
    const std::lock_guard lock(mutex_);
    if (peers_.count(&p) == 0) ++violations_;
    if (!takes_streams) return errc::refused;
    streams.emplace_back(index, std::move(socket));
    changed_.notify_all();
    return errc::ok;
  }

  errc message(peer& p, std::span<const std::byte> payload, answer& out) noexcept override {
    const call c(*this, p);
    if (payload.size() < sizeof(command)) {  // anything short is echoed, empty messages included
      out.payload.assign(payload.begin(), payload.end());
      return errc::ok;
    }
    command cmd;
    std::memcpy(&cmd, payload.data(), sizeof cmd);
    return obey(p, cmd, payload, out);
  }

  std::byte* memory(peer& p, const remote& where, std::uint64_t bytes, access) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!peers_.contains(&p)) ++violations_;
    if (where.region >= region_count || where.generation != regions_[where.region].generation) return nullptr;
    if (bytes > region_bytes || where.offset > region_bytes - bytes) return nullptr;
    ++inside_[&p];
    ++memory_calls;
    return regions_[where.region].file.base() + where.offset;
  }
  void memory_done(peer& p, std::uint32_t) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!peers_.contains(&p) || --inside_[&p] < 0) ++violations_;
  }

  errc refuse_with = errc::ok;
  bool takes_streams = false;
  std::vector<std::pair<std::uint16_t, os::descriptor>> streams;  ///< that were given to it
  int sessions_seen = 0, sessions_ended = 0, held = 0;
  std::uint64_t memory_calls = 0, messages = 0;

 private:
  struct region {
    os::memory_file file;
    std::uint32_t generation = 1;
  };

  /// Counts a message call as inside its peer's lifetime.
  struct call {
    call(memory_service& service, peer& who) : s(service), p(who) {
      const std::lock_guard lock(s.mutex_);
      if (!s.peers_.contains(&p)) ++s.violations_;
      ++s.inside_[&p];
      ++s.messages;
    }
    ~call() {
      const std::lock_guard lock(s.mutex_);
      --s.inside_[&p];
    }
    memory_service& s;
    peer& p;
  };

  errc obey(peer& p, const command& cmd, std::span<const std::byte> payload, answer& out) {
    switch (cmd.what) {
      case verb::echo: out.payload.assign(payload.begin(), payload.end()); return errc::ok;
      case verb::hold: {
        std::unique_lock lock(mutex_);
        ++held;
        changed_.notify_all();
        changed_.wait_for(lock, std::chrono::minutes(10), [this] { return released_; });
        --held;
        changed_.notify_all();
        return errc::ok;
      }
      case verb::key:
        out.token = 77;
        out.share(regions_[cmd.region % region_count].file.fd());
        return errc::ok;
      case verb::sum: {
        const std::byte* at = memory(p, {cmd.region, generation_of(cmd.region), cmd.offset}, cmd.count, access::read);
        if (!at) return errc::bad_frame;
        const std::uint32_t crc = fm::detail::crc32c(at, cmd.count);
        memory_done(p, cmd.region);
        out.payload.resize(sizeof crc);
        std::memcpy(out.payload.data(), &crc, sizeof crc);
        return errc::ok;
      }
      case verb::notify: {
        std::uint64_t sent = 0;
        for (std::uint64_t i = 0; i < cmd.count; ++i) sent += p.notify(std::as_bytes(std::span(&i, 1)));
        out.payload.resize(sizeof sent);
        std::memcpy(out.payload.data(), &sent, sizeof sent);
        return errc::ok;
      }
      case verb::grow: out.payload.assign(cmd.count, std::byte{0x5a}); return errc::ok;
      case verb::refuse: return errc::bad_frame;
      case verb::finish:
        for (std::uint64_t i = 0; i < cmd.count; ++i) p.notify(std::as_bytes(std::span(&i, 1)));
        p.finish();
        return errc::ok;
      case verb::kick: p.close(errc::quota_exceeded, "the test asked for it"); return errc::ok;
    }
    return errc::bad_frame;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  region regions_[region_count];
  std::set<peer*> peers_;
  std::map<peer*, int> inside_;
  int violations_ = 0;
  bool released_ = false;
};

/// Events that a test can wait for and look at.
class recorded_events : public session_events {
 public:
  errc connected(session& s, std::uint32_t g) override {
    std::unique_lock lock(mutex_);
    if (on_connected) {
      lock.unlock();
      if (const errc e = on_connected(s, g); e != errc::ok) return e;
      lock.lock();
    }
    ups.push_back(g);
    changed_.notify_all();
    return errc::ok;
  }
  void disconnected(session&, std::uint32_t g, errc) noexcept override {
    const std::lock_guard lock(mutex_);
    downs.push_back(g);
    changed_.notify_all();
  }
  void lost(session&, errc why) noexcept override {
    const std::lock_guard lock(mutex_);
    lost_with = why;
    changed_.notify_all();
  }
  void notice(session&, std::span<const std::byte> payload) noexcept override {
    const std::lock_guard lock(mutex_);
    notices.emplace_back(payload.begin(), payload.end());
    changed_.notify_all();
  }
  bool until(const std::function<bool(recorded_events&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(10), [&] { return condition(*this); });
  }

  std::function<errc(session&, std::uint32_t)> on_connected;
  std::vector<std::uint32_t> ups, downs;
  std::vector<std::vector<std::byte>> notices;
  errc lost_with = errc::ok;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace fm::fabric::test
