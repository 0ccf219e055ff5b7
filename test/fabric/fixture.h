// One service, one session, and helpers that post a request and wait for it; the same for every transport.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "memory_service.h"

namespace fm::fabric::test {

struct over_local {
  static constexpr bool in_process = true;
  static std::string listen_url() { return {}; }
};

struct over_tcp {
  static constexpr bool in_process = false;
  static std::string listen_url() { return "tcp://127.0.0.1:0"; }
};

struct over_shm {
  static constexpr bool in_process = false;
  static std::string listen_url() {
    static std::atomic<int> count{0};
    return "shm:///tmp/farmem-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  }
};

/// On a machine with an RDMA device, whose address is in LAB_ADDRESS; see test/rdma.
struct over_verbs {
  static constexpr bool in_process = false;
  static std::string listen_url() {
    const char* address = std::getenv("LAB_ADDRESS");
    return "verbs://" + std::string(address != nullptr ? address : "LAB_ADDRESS-is-not-set") + ":0";
  }
};

/// A time that passes while something is held, and is not over before that is seen to be held.
template <class Transport>
constexpr duration a_while = std::is_same_v<Transport, over_verbs> ? std::chrono::seconds(3)
                                                                   : std::chrono::milliseconds(50);

/// Listens as the transport's tests do; an address that RDMA can be done with is never a loopback one.
template <class Transport>
std::unique_ptr<listener> listen_over(service& s, listen_options options = {}) {
  if constexpr (std::is_same_v<Transport, over_verbs>) {
    options.insecure = true;
    options.handshake_within = std::chrono::seconds(30);  // everything is emulated there
  }
  return listen(Transport::listen_url(), options, s);
}

/// An agent and one session with it.
template <class Transport>
struct pair_over {
  explicit pair_over(session_options options = {}, listen_options listening = {},
                     duration reconnect_for = std::chrono::seconds(30)) {
    if constexpr (Transport::in_process) {
      (void)listening;
      (void)reconnect_for;
      link = connect("local:", options, events, &agent);
    } else {
      if constexpr (std::is_same_v<Transport, over_verbs>) {
        options.connect_within = std::chrono::seconds(30);
        options.reconnect_for = reconnect_for;
        options.operation_within = std::chrono::seconds(60);
      }
      server = listen_over<Transport>(agent, listening);
      link = connect(server->url(), options, events);
    }
    attach_all();
  }
  ~pair_over() {
    agent.release();
    if (link) link->close();
  }

  /// Makes the regions reachable, as an owner does after each connect.
  void attach_all() {
    for (std::uint32_t i = 0; i < memory_service::region_count; ++i) {
      request r;
      command c{.what = verb::key, .region = i};
      REQUIRE(message(r, &c, sizeof c, lane::control) == errc::ok);
      CHECK(r.reply_key.token == 77);
      REQUIRE(link->attach(i, agent.generation_of(i), memory_service::region_bytes, r.reply_key) == errc::ok);
    }
  }
  /// Breaks the connection and returns when the next one stands.
  void reconnect() {
    const auto before = link->generation();
    link->drop_connection(link->generation());
    REQUIRE(events.until([&](auto& e) { return e.ups.back() > before; }));
    while (link->state() != session_state::up) std::this_thread::yield();
    attach_all();
  }

  errc run(request& r) {
    link->post(r);
    link->wait(r);
    REQUIRE(r.done());
    return r.status;
  }
  errc message(request& r, void* data, std::size_t bytes, lane on = lane::fetch) {
    r.kind = op_kind::message;
    r.on = on;
    r.sg_count = 1;
    r.sg[0] = {data, bytes};
    return run(r);
  }
  errc transfer(op_kind kind, void* data, std::size_t bytes, std::uint64_t offset, std::uint32_t region = 0,
                lane on = lane::fetch) {
    request r;
    prepare(r, kind, data, bytes, offset, region, on);
    return run(r);
  }
  void prepare(request& r, op_kind kind, void* data, std::size_t bytes, std::uint64_t offset, std::uint32_t region = 0,
               lane on = lane::fetch) {
    r.kind = kind;
    r.on = on;
    r.sg_count = 1;
    r.sg[0] = {data, bytes};
    r.where = {region, agent.generation_of(region), offset};
  }

  memory_service agent;
  recorded_events events;
  std::unique_ptr<listener> server;
  std::unique_ptr<session> link;
};

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> v(bytes);
  std::uint32_t x = seed * 2654435761u + 1;
  for (auto& b : v) b = std::byte((x = x * 1664525u + 1013904223u) >> 24);
  return v;
}

}  // namespace fm::fabric::test
