// What ends a connection over verbs://, in a lab machine: the agent is killed, the device is removed, and, between two
// machines, the cable is pulled. Each ends in a typed error, with every request done, and the session comes back where it
// can. Upper bounds are generous: everything is emulated.
#include "heap/heap_core.h"
#include <farmem/farmem.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>

#include "fabric/fixture.h"
#include "lab_agent.h"

using namespace fm;
using namespace fm::fabric;
using namespace fm::fabric::test;
using namespace lab;
using namespace fm::literals;

namespace {

/// Whether the kernel has removed rxe0, for which it waits until nobody holds anything of it.
bool remove_device() {
  const char* done = "/tmp/removed";
  std::remove(done);
  if (std::system("(rdma link delete rxe0 && echo yes >/tmp/removed.new && mv /tmp/removed.new /tmp/removed) &") != 0)
    return false;
  const time_point deadline = clock::now() + std::chrono::minutes(10);
  while (!std::ifstream(done).good() && clock::now() < deadline) std::this_thread::yield();
  return std::ifstream(done).good();
}

/// Tells the lab to do something to the cable.
void wish(const char* what) {
  std::ofstream out("/dev/ttyS2");
  out << what << std::endl;
  REQUIRE(out.good());
}

}  // namespace

TEST_CASE("an agent that is killed is noticed, and its objects say so", "[one]") {
  lab_agent agent;
  auto options = far_away(agent.url());
  options.reconnect_within = std::chrono::seconds(3);
  heap h(options);
  const auto head = make_nodes(h, nodes);
  REQUIRE(h.evict_all() == errc::ok);
  CHECK(walk_nodes(head, nodes) == errc::ok);
  CHECK(agent.end(SIGKILL) == -SIGKILL);
  const time_point killed = clock::now();
  CHECK(walk_nodes(head, nodes) == errc::agent_lost);
  CHECK(clock::now() - killed < std::chrono::minutes(5));
}

TEST_CASE("of two replicas one agent is killed, then another one, and no access fails", "[replicas]") {
  std::array<std::optional<lab_agent>, 3> agents;
  for (auto& a : agents) a.emplace();
  auto options = far_away(agents[0]->url());
  options.agents = {agents[0]->url(), agents[1]->url(), agents[2]->url()};
  options.replicas = 2;
  heap h(options);
  const auto is_mended = [&] { return h.stats().tablets_degraded == 0; };
  constexpr std::uint64_t few = 2'000;  // each is copied anew, one after the other
  const auto head = make_nodes(h, few);
  REQUIRE(h.evict_all() == errc::ok);
  for (std::size_t killed = 0; killed < 2; ++killed) {
    CAPTURE(killed);
    // A second list is written while the agent goes: what was written counts as much as what was stored before.
    std::atomic<bool> begun{false};
    fm::ptr<node> written;
    std::thread writer([&] {
      for (std::uint64_t i = 0; i < few; ++i) {
        written = h.make<node>({.value = i, .next = written});
        begun = true;
      }
    });
    while (!begun.load()) std::this_thread::yield();
    CHECK(agents[killed]->end(SIGKILL) == -SIGKILL);
    CHECK(walk_nodes(head, few) == errc::ok);
    const time_point deadline = clock::now() + std::chrono::minutes(10);
    // Afterwards only one agent is left.
    const auto is_over = [&] { return h.stats().agents_lost == killed + 1 && (is_mended() || killed == 1); };
    while (!is_over() && clock::now() < deadline) std::this_thread::yield();
    writer.join();
    CHECK(is_over());
    REQUIRE(h.evict_all() == errc::ok);
    CHECK(walk_nodes(written, few) == errc::ok);
    CHECK(walk_nodes(head, few) == errc::ok);
    CHECK(h.verify().ok());
  }
}

TEST_CASE("a device that was removed and came back is used again by the processes that had it", "[removal]") {
  // One agent listens at every address, and so on no device of its own; the other one, in this process, at the device's.
  lab_agent agent("verbs://0.0.0.0:0");
  auto options =
      far_away("verbs://" + std::string(std::getenv("LAB_ADDRESS")) + agent.url().substr(agent.url().rfind(':')));
  options.access_within = options.reconnect_within = std::chrono::seconds(90);
  heap h(options);
  const auto head = make_nodes(h, nodes);
  REQUIRE(h.evict_all() == errc::ok);
  REQUIRE(walk_nodes(head, nodes) == errc::ok);
  // Program and agent have one handle of the device here.
  pair_over<over_verbs> p({}, {}, std::chrono::seconds(90));
  auto data = pattern(100'000, 7);
  REQUIRE(p.transfer(op_kind::write, data.data(), data.size(), 0) == errc::ok);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    const auto generation = p.link->generation();
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> walks{0};
    errc walked = errc::ok;
    std::thread walker([&] {
      do {
        walked = walk_nodes(head, nodes);
        ++walks;
      } while (walked == errc::ok && !over.load());
    });
    while (walks.load() == 0) std::this_thread::yield();
    const bool removed = remove_device();
    CHECK(p.events.until([&](auto& e) { return e.downs.size() >= round; }));
    const bool added = std::system("rdma link add rxe0 type rxe netdev d0") == 0;
    const time_point deadline = clock::now() + std::chrono::seconds(90);
    while ((p.link->generation() == generation || p.link->state() != session_state::up) && clock::now() < deadline)
      std::this_thread::yield();
    const std::uint64_t before = walks.load();
    while (walks.load() == before && clock::now() < deadline) std::this_thread::yield();
    over = true;
    walker.join();
    CHECK(walked == errc::ok);  // the access that was under way waited for the device
    REQUIRE(removed);
    REQUIRE(added);
    REQUIRE(p.link->state() == session_state::up);
    p.attach_all();
    std::vector<std::byte> back(data.size());
    CHECK(p.transfer(op_kind::read, back.data(), back.size(), 0) == errc::ok);
    CHECK(back == data);
    CHECK(h.stats().reconnects >= round);
  }
  REQUIRE(h.evict_all() == errc::ok);
  CHECK(h.verify().ok());
}

// The last thing that runs in its machine: the device does not come back.
TEST_CASE("requests end when the device is removed, and the session says that its agent is lost", "[removal]") {
  session_options options;
  pair_over<over_verbs> p(options, {}, std::chrono::seconds(3));
  auto data = pattern(100'000, 7);
  REQUIRE(p.transfer(op_kind::write, data.data(), data.size(), 0) == errc::ok);
  // Requests are always in flight while it goes; each must end. A connection that ends early can be followed by one that
  // lives until the device is gone: nothing is attached on that one, and the session says so with access_denied.
  const auto attached_on = p.link->generation();
  std::atomic<std::uint64_t> good{0}, ended{0}, wrong{0};
  std::set<std::string_view> others;
  std::thread user([&] {
    std::vector<std::byte> back(data.size());
    for (errc last = errc::ok; last != errc::agent_lost;) {
      request r;
      p.prepare(r, op_kind::read, back.data(), back.size(), 0);
      p.link->post(r);
      p.link->wait(r);
      last = r.status;
      if (last == errc::ok) {
        ++good;
        if (back != data) ++wrong;
      } else {
        ++ended;
        const bool not_attached = last == errc::access_denied && r.generation != attached_on;
        if (last != errc::disconnected && last != errc::agent_lost && !not_attached) others.insert(to_string(last));
      }
    }
  });
  while (good.load() < 20) std::this_thread::yield();
  REQUIRE(std::system("rdma link delete rxe0 &") == 0);
  CHECK(p.events.until([](auto& e) { return !e.downs.empty(); }));
  CHECK(p.events.until([](auto& e) { return e.lost_with != errc::ok; }));
  user.join();
  CHECK(ended.load() > 0);
  CHECK(wrong.load() == 0);
  CHECK(others == std::set<std::string_view>());
  CHECK(p.link->state() == session_state::lost);
}

TEST_CASE("a partition ends what is in flight, and the heap goes on when it is over", "[two]") {
  const char* url = std::getenv("LAB_PEER_URL");
  REQUIRE(url != nullptr);
  std::unique_ptr<heap> h;
  const time_point deadline = clock::now() + std::chrono::seconds(120);
  while (!h) {
    try {
      h = std::make_unique<heap>(far_away(url));
    } catch (const error& e) {  // the other machine is still booting
      if (clock::now() > deadline) throw;
      std::this_thread::yield();
    }
  }
  const auto head = make_nodes(*h, nodes);
  REQUIRE(h->evict_all() == errc::ok);
  REQUIRE(walk_nodes(head, nodes) == errc::ok);
  REQUIRE(h->stats().reconnects == 0);
  // Until the break is noticed, walking goes on; it must be noticed by what is in flight alone.
  wish("unplug");
  errc last = errc::ok;
  std::thread walker([&] {
    while (h->stats().reconnects == 0 && last == errc::ok) last = walk_nodes(head, nodes);
  });
  auto& session = h->core().cache().agents()[0]->session();
  const time_point noticed_by = clock::now() + std::chrono::seconds(60);
  while (session.state() == session_state::up && clock::now() < noticed_by) std::this_thread::yield();
  CHECK(session.state() != session_state::up);
  wish("plug");
  walker.join();
  CHECK(last == errc::ok);  // the access waited for the connection to come back
  CHECK(walk_nodes(head, nodes) == errc::ok);
  CHECK(h->stats().reconnects >= 1);
  REQUIRE(h->evict_all() == errc::ok);
  CHECK(h->verify().ok());
}
