// What the sessions of every transport must do: connections that break, deadlines, credit, refusals.
#include <catch2/catch.hpp>

#include <thread>

#include "conformance.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;

namespace {

/// A message that the agent keeps until it is released; its end is counted in `told`. Outlives the session.
struct held_message {
  held_message() {
    r.kind = op_kind::message;
    r.sg_count = 1;
    r.sg[0] = {&hold, sizeof hold};
    r.on_done = [](request& done) noexcept {
      auto& count = *static_cast<std::atomic<std::uint32_t>*>(done.context);
      ++count;
      fm::os::futex_wake(count, 1);
    };
    r.context = &told;
  }
  command hold{.what = verb::hold};
  std::atomic<std::uint32_t> told{0};
  request r;
};

}  // namespace

TEMPLATE_TEST_CASE("a broken connection is replaced and the generation goes up by one", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::byte b[8] = {std::byte{1}};
  for (std::uint32_t g = 1; g <= 4; ++g) {
    CHECK(p.link->generation() == g);
    CHECK(p.transfer(op_kind::write, b, 8, 0) == errc::ok);
    p.reconnect();
  }
  CHECK(p.events.ups == std::vector<std::uint32_t>{1, 2, 3, 4, 5});
  CHECK(p.events.downs == std::vector<std::uint32_t>{1, 2, 3, 4});
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended >= 4; }));
}

TEMPLATE_TEST_CASE("a connection that breaks after its owner took it, and before it is up, is told as broken", "",
                   ALL_TRANSPORTS) {
  pair_over<TestType> p;
  p.events.on_connected = [](session& s, std::uint32_t g) {
    if (g == 2) s.drop_connection(g);
    return errc::ok;
  };
  p.link->drop_connection(1);
  REQUIRE(p.events.until([](auto& e) { return e.ups.size() == 3; }));
  CHECK(p.events.ups == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(p.events.downs == std::vector<std::uint32_t>{1, 2});
}

TEMPLATE_TEST_CASE("requests posted between two connections complete as disconnected", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::atomic<bool> go{false}, entered{false};
  std::mutex m;
  std::condition_variable cv;
  p.events.on_connected = [&](session&, std::uint32_t) {  // holds the session before `up`
    std::unique_lock lock(m);
    entered = true;
    cv.notify_all();
    cv.wait_for(lock, std::chrono::minutes(10), [&] { return go.load(); });
    return errc::ok;
  };
  p.link->drop_connection(p.link->generation());
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::disconnected);
  {
    std::unique_lock lock(m);
    REQUIRE(cv.wait_for(lock, std::chrono::minutes(10), [&] { return entered.load(); }));
  }
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::disconnected);
  CHECK(p.link->state() == session_state::down);
  {
    const std::lock_guard lock(m);
    go = true;
    cv.notify_all();
  }
  REQUIRE(p.events.until([](auto& e) { return e.ups.size() == 2; }));
  while (p.link->state() != session_state::up) std::this_thread::yield();
  p.attach_all();
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::ok);
}

TEMPLATE_TEST_CASE("the owner may talk on the control lane before the session is up", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  errc control = errc::cancelled, fetch = errc::cancelled;
  std::vector<std::byte> reply;
  p.events.on_connected = [&](session& s, std::uint32_t) {
    auto data = pattern(5, 5);
    request r;
    r.kind = op_kind::message;
    r.on = lane::control;
    r.sg_count = 1;
    r.sg[0] = {data.data(), data.size()};
    s.post(r);
    s.wait(r);
    control = r.status;
    reply = r.reply;
    request other;
    other.kind = op_kind::message;
    other.on = lane::fetch;
    s.post(other);
    s.wait(other);
    fetch = other.status;
    return errc::ok;
  };
  p.reconnect();
  CHECK(control == errc::ok);
  CHECK(reply == pattern(5, 5));
  CHECK(fetch == errc::disconnected);
}

TEMPLATE_TEST_CASE("a service that refuses a session makes connect throw and ends a reconnect", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  p.agent.refuse_with = errc::refused;
  recorded_events other;
  try {
    if constexpr (TestType::in_process)
      connect("local:", {}, other, &p.agent);
    else
      connect(p.server->url(), {}, other);
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::refused);
  }
  p.link->drop_connection(p.link->generation());
  REQUIRE(p.events.until([](auto& e) { return e.lost_with != errc::ok; }));
  CHECK(p.events.lost_with == errc::refused);
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::agent_lost);
  CHECK(p.link->state() == session_state::lost);
}

TEMPLATE_TEST_CASE("an owner that cannot use the connection ends the session", "", ALL_TRANSPORTS) {
  memory_service agent;
  std::unique_ptr<listener> server;
  recorded_events events;
  events.on_connected = [](session&, std::uint32_t) { return errc::layout_mismatch; };
  try {
    if constexpr (TestType::in_process) {
      connect("local:", {}, events, &agent);
    } else {
      server = listen_over<TestType>(agent);
      connect(server->url(), {}, events);
    }
    FAIL("connected");
  } catch (const error& e) {
    CHECK(e.code() == errc::layout_mismatch);
  }
  CHECK(events.lost_with == errc::ok);
}

TEMPLATE_TEST_CASE("a message that the service refuses costs the connection only", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  for (const verb v : {verb::refuse, verb::kick}) {
    const auto before = p.link->generation();
    command c{.what = v};
    request r;
    const errc e = p.message(r, &c, sizeof c);
    if (v == verb::refuse) CHECK(e == errc::disconnected);
    REQUIRE(p.events.until([&](auto& ev) { return ev.ups.back() > before; }));
    while (p.link->state() != session_state::up) std::this_thread::yield();
    p.attach_all();
  }
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::ok);
}

TEMPLATE_TEST_CASE("an answer over the limit is a bad frame and costs the connection", "", ALL_TRANSPORTS) {
  session_options options;
  options.message_bytes_max = 10'000;
  pair_over<TestType> p(options);
  command c{.what = verb::grow, .count = 10'001};
  request r;
  CHECK(p.message(r, &c, sizeof c) == errc::disconnected);
  REQUIRE(p.events.until([](auto& e) { return e.ups.size() == 2; }));
}

namespace {
struct chain {
  session* link = nullptr;
  int left = 0;
  std::atomic<bool> over{false};
  static void step(request& r) noexcept {
    auto* c = static_cast<chain*>(r.context);
    if (--c->left == 0)
      c->over.store(true, std::memory_order_release);
    else
      c->link->post(r);
  }
};
}  // namespace

TEMPLATE_TEST_CASE("a completion may post its request again, any number of times", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::byte b[8];
  for (const bool alive : {true, false}) {
    chain c{.link = p.link.get(), .left = alive ? 2000 : 200'000};
    request r;
    p.prepare(r, op_kind::read, b, 8, 0);
    r.on_done = chain::step;
    r.context = &c;
    if (!alive) p.link->close();  // then every post completes at once: no recursion, however long the chain
    p.link->post(r);
    while (!c.over.load(std::memory_order_acquire)) {
      p.link->poll();
      std::this_thread::yield();
    }
  }
}

TEMPLATE_TEST_CASE("a closed session completes everything as cancelled", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  p.link->close();
  p.link->close();
  std::byte b[8];
  CHECK(p.transfer(op_kind::read, b, 8, 0) == errc::cancelled);
  CHECK(p.link->state() == session_state::closed);
  CHECK(p.agent.until([](auto& a) { return a.sessions_ended == 1; }));
  CHECK(p.events.downs.empty());
}

TEMPLATE_TEST_CASE("threads that use a session while it breaks see each request end once", "", ALL_TRANSPORTS) {
  pair_over<TestType> p;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> ended{0}, bad{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t)
    workers.emplace_back([&, t] {
      std::vector<std::byte> mine(3000, std::byte(t + 1)), back(3000);
      while (!stop.load()) {
        request w, r;
        w.kind = op_kind::write;
        r.kind = op_kind::read;
        r.fence = true;
        w.where = r.where = {0, 1, std::uint64_t(t) * 4096};
        w.sg_count = r.sg_count = 1;
        w.sg[0] = {mine.data(), mine.size()};
        r.sg[0] = {back.data(), back.size()};
        request* both[] = {&w, &r};
        p.link->post(both);
        p.link->wait(w);
        p.link->wait(r);
        for (const errc e : {w.status, r.status})
          if (e != errc::ok && e != errc::disconnected && e != errc::access_denied) ++bad;
        if (w.status == errc::ok && r.status == errc::ok && back != mine) ++bad;
        ++ended;
      }
    });
  for (int i = 0; i < 8; ++i) {
    const auto at = ended.load();
    while (ended.load() < at + 20) std::this_thread::yield();
    p.reconnect();
  }
  stop = true;
  for (auto& w : workers) w.join();
  CHECK(bad.load() == 0);
  CHECK(p.link->generation() == 9);
}

TEMPLATE_TEST_CASE("a message that is not answered in time ends by its deadline, and its late answer reaches nobody",
                   "", CONNECTED_TRANSPORTS) {
  const bool by_deadline = GENERATE(true, false);
  pair_over<TestType> p;
  command hold{.what = verb::hold}, echo{.count = 17};
  request late;
  late.kind = op_kind::message;
  late.sg_count = 1;
  late.sg[0] = {&hold, sizeof hold};
  const duration within = by_deadline ? a_while<TestType> : std::chrono::seconds(60);
  late.deadline = clock::now() + within;
  p.link->post(late);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  CHECK_FALSE(late.done());
  if (!by_deadline) p.link->cancel(late);
  p.link->wait(late);
  CHECK(late.status == (by_deadline ? errc::timed_out : errc::cancelled));
  CHECK(late.reply.empty());
  p.agent.release();
  request next;
  CHECK(p.message(next, &echo, sizeof echo) == errc::ok);
  CHECK(next.reply.size() == sizeof echo);  // the answer to this one, not the one before
  CHECK(late.reply.empty());
  CHECK(p.link->generation() == 1);
}

TEMPLATE_TEST_CASE("a request whose poster waits no longer stays in flight, and its end is told", "",
                   CONNECTED_TRANSPORTS) {
  held_message held;
  auto& told = held.told;
  request& r = held.r;
  pair_over<TestType> p;
  r.attended_by = attendance::waiter;
  p.link->post(r);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  CHECK_FALSE(p.link->wait_until(r, clock::now()));
  CHECK_FALSE(p.link->wait_until(r, clock::now() + std::chrono::milliseconds(1)));
  CHECK_FALSE(r.done());
  CHECK(told == 0);
  p.agent.release();
  for (const auto until = clock::now() + std::chrono::minutes(2); told == 0 && clock::now() < until;)
    std::this_thread::yield();
  REQUIRE(told == 1);
  CHECK(p.link->wait_until(r, clock::now()));
  CHECK(r.status == errc::ok);
  CHECK(p.link->generation() == 1);
}

TEMPLATE_TEST_CASE(
    "an answer that is left to pollers comes to one that polls, and to those that sleep or have forgotten it", "",
    CONNECTED_TRANSPORTS) {
  const auto how = GENERATE(as<std::string>(), "polls", "sleeps", "sleeps while another polls", "has forgotten it");
  INFO(how);
  held_message held;
  auto& told = held.told;
  request& r = held.r;
  pair_over<TestType> p;
  r.attended_by = attendance::poller;
  p.link->post(r);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  p.link->poll();
  CHECK(told == 0);
  const bool sleeps = how.starts_with("sleeps");
  if (sleeps) p.link->stop_polling();
  p.agent.release();
  const auto until = clock::now() + std::chrono::minutes(2);
  while (told == 0 && clock::now() < until) {
    if (how.ends_with("polls"))
      p.link->poll();
    else
      fm::os::futex_wait(told, 0, until);
  }
  if (sleeps) p.link->resume_polling();
  CHECK(told == 1);
  CHECK(r.status == errc::ok);
  CHECK(p.link->generation() == 1);
}

TEMPLATE_TEST_CASE("a deadline ends a request that nobody waits for, also while other lanes are busy", "",
                   CONNECTED_TRANSPORTS) {
  held_message held;
  auto& told = held.told;
  request& late = held.r;
  request other;  // outlives the session
  std::byte b[8]{};
  listen_options listening;
  listening.io_threads = 4;  // what is held holds up its own lane
  pair_over<TestType> p({}, listening);
  late.deadline = clock::now() + a_while<TestType>;
  p.link->post(late);
  REQUIRE(p.agent.until([](auto& a) { return a.held == 1; }));
  // Not much longer than the deadline: by chance a lull comes at some time.
  const auto until = late.deadline + std::chrono::seconds(5);
  const auto waits = [&] { return told == 0 && clock::now() < until; };
  while (waits()) {
    p.prepare(other, op_kind::write, b, sizeof b, 0, 0, lane::bulk);
    other.on_done = [](request&) noexcept {};  // so the session's thread attends to it
    p.link->post(other);
    while (!other.done() && waits()) std::this_thread::yield();
  }
  REQUIRE(told == 1);
  CHECK(late.status == errc::timed_out);
  CHECK(p.link->generation() == 1);
  p.agent.release();
}

TEMPLATE_TEST_CASE("requests beyond the credit wait their turn, and no longer than their deadline", "",
                   CONNECTED_TRANSPORTS) {
  session_options options;
  options.requests_in_flight = 2;
  pair_over<TestType> p(options);
  command hold{.what = verb::hold};
  std::array<request, 3> r;
  for (request& one : r) {
    one.kind = op_kind::message;
    one.sg_count = 1;
    one.sg[0] = {&hold, sizeof hold};
  }
  p.link->post(r[0]);
  p.link->post(r[1]);
  r[2].deadline = clock::now() + std::chrono::milliseconds(50);
  p.link->post(r[2]);
  p.link->wait(r[2]);
  CHECK(r[2].status == errc::timed_out);
  CHECK_FALSE(r[0].done());
  p.agent.release();
  for (std::size_t i : {0, 1}) {
    p.link->wait(r[i]);
    CHECK(r[i].status == errc::ok);
  }
  command echo{};
  request next;
  CHECK(p.message(next, &echo, sizeof echo) == errc::ok);
}
