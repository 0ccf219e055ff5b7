// The agent's half of a pool's protocol in a test's hands: a store on a clock of the test's own, and clients that say what
// they are told to.
#pragma once

#include "agent/service/service.h"
#include "protocol/paged_messages.h"
#include "protocol/pool_messages.h"
#include "remote/agent_session.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace service_test {

using namespace fm;
using namespace fm::agent;
using namespace fm::protocol;
using namespace fm::literals;
using std::chrono::milliseconds;

constexpr std::uint64_t never = INT64_MAX;  ///< as a deadline

class peer final : public fabric::peer {
 public:
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  bool notify(std::span<const std::byte> payload) noexcept override {
    if (!listens) return false;
    pool_epoch_notice n{};
    if (payload.size() == sizeof(message_head) + sizeof n) {
      std::memcpy(&n, payload.data() + sizeof(message_head), sizeof n);
      epochs.push_back(n.epoch);
    }
    return true;
  }
  void close(errc why, std::string_view) noexcept override { closed = why; }
  std::vector<std::uint64_t> epochs;
  errc closed = errc::ok;
  bool listens = true;

 private:
  std::string name_ = "peer";
};

struct world {
  std::atomic<std::int64_t> now_ns{1'000'000'000};
  std::unique_ptr<fm::agent::store> s;
  explicit world(bool rests = false, bool background = false) {
    store_options o;
    o.memory_bytes = 4_MiB;
    o.region_bytes = 256_KiB;
    o.hooks.background = background;
    o.hooks.rests = rests;
    o.hooks.context = this;
    o.hooks.now = [](void* w) { return time_point(std::chrono::nanoseconds(static_cast<world*>(w)->now_ns.load())); };
    s = fm::agent::store::create(o);
  }
  void pass(milliseconds d) {
    now_ns += std::chrono::nanoseconds(d).count();
    while (s->maintain()) {
    }
  }
};

/// A client that says what it is told to.
struct client {
  world& w;
  std::uint64_t id;
  std::unique_ptr<peer> p = std::make_unique<peer>();
  pool_open_answer opened{};
  std::uint64_t number = 0;

  client(world& of, std::uint64_t n) : w(of), id(n) { REQUIRE(w.s->connected(*p) == errc::ok); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;
  ~client() { w.s->disconnected(*p); }

  template <class T>
  errc say(message_type type, const T& body, std::vector<std::byte>* answer = nullptr,
           std::span<const std::byte> payload = {}) {
    std::vector<std::byte> m(sizeof(message_head) + sizeof body + payload.size());
    const message_head h{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(sizeof body + payload.size())};
    std::memcpy(m.data(), &h, sizeof h);
    std::memcpy(m.data() + sizeof h, &body, sizeof body);
    if (!payload.empty()) std::memcpy(m.data() + sizeof h + sizeof body, payload.data(), payload.size());
    fabric::answer a;
    if (const errc e = w.s->message(*p, m, a); e != errc::ok) {
      broke = e;
      return e;
    }
    broke = errc::ok;
    memory = std::move(a.memory);
    key_fd = memory.get();
    answer_head head;
    REQUIRE(a.payload.size() >= sizeof head);
    std::memcpy(&head, a.payload.data(), sizeof head);
    if (answer != nullptr) answer->assign(a.payload.begin() + sizeof head, a.payload.end());
    return static_cast<errc>(head.code);
  }
  template <class A, class T>
  A ask(message_type type, const T& body, std::span<const std::byte> payload = {}) {
    std::vector<std::byte> b;
    REQUIRE(say(type, body, &b, payload) == errc::ok);
    A a{};
    REQUIRE(b.size() >= sizeof a);
    std::memcpy(&a, b.data(), sizeof a);
    return a;
  }
  pool_open_body opening() const {
    pool_open_body b{};
    b.major = pool_protocol_major;
    b.tenant[0] = 5;
    b.client[0] = id;
    b.lease_ms = 1000;
    b.settings = {4096, 0, 1, 0, 3000, {}, 0, {}};
    std::strcpy(b.name, "pool");
    return b;
  }
  void open() { opened = ask<pool_open_answer>(message_type::pool_open, opening()); }
  pool_object make(std::uint64_t value) {
    const auto a = ask<pool_alloc_answer>(message_type::pool_alloc, pool_alloc_body{{++number, 0, 0, never}, 8, 0},
                                          std::as_bytes(std::span(&value, 1)));
    REQUIRE(a.wait == 0);
    return a.at.object;
  }
  /// The same, of an object that expires.
  pool_object make_expiring(std::uint64_t value, std::uint64_t ms) {
    const auto a = ask<pool_alloc_answer>(message_type::pool_alloc_expiring,
                                          pool_alloc_expiring_body{{++number, 0, 0, never}, 8, 0, ms},
                                          std::as_bytes(std::span(&value, 1)));
    REQUIRE(a.wait == 0);
    return a.at.object;
  }
  errc free(const pool_object& o) { return say(message_type::pool_free, pool_object_body{{++number, 0, 0, never}, o}); }
  /// Makes so many objects and frees three of four, so that there is something to compact. One that is left.
  pool_object make_sparse(std::uint64_t n) {
    std::vector<pool_object> all;
    for (std::uint64_t i = 0; i < n; ++i) all.push_back(make(i));
    for (std::uint64_t i = 0; i < n; ++i)
      if (i % 4 != 0) REQUIRE(free(all[i]) == errc::ok);
    return all.front();
  }
  pool_statistics_answer statistics() {
    std::vector<std::byte> b;
    fabric::answer a;
    const message_head h{static_cast<std::uint16_t>(message_type::pool_statistics), 0, 0};
    REQUIRE(w.s->message(*p, std::as_bytes(std::span(&h, 1)), a) == errc::ok);
    pool_statistics_answer s{};
    REQUIRE(a.payload.size() >= sizeof(answer_head) + sizeof s);
    std::memcpy(&s, a.payload.data() + sizeof(answer_head), sizeof s);
    return s;
  }
  errc pass(std::uint64_t epoch) { return say(message_type::pool_pass, pool_pass_body{epoch, 0}); }
  os::descriptor memory;  ///< that came with the last answer
  int key_fd = -1;        ///< the same
  errc broke = errc::ok;  ///< what the last message cost
};

}  // namespace service_test
