// Real agents of a pool with replicas, and a real etcd that says who goes on: agents are killed, stopped and drained at random,
// one at a time, and etcd is stopped, beside threads that know what the pool has to have. FARMEM_POOL_EVENTS asks for more events than a
// test has: for long runs.
#include "pool/replicas/etcd.h"
#include "pool/replicas/replicas_fixture.h"

using namespace pool_test;
using fm::test::await;

TEST_CASE("a pool with replicas over real agents and etcd loses nothing, whatever happens to one of them at a time") {
  if (!etcd::is_installed()) {
    WARN("etcd is not installed: nothing was tested");
    return;
  }
  const char* const asked = std::getenv("FARMEM_POOL_EVENTS");
  const int events = asked != nullptr ? std::atoi(asked) : 10;
  for (const std::string scheme : {"shm", "tcp"}) {
    INFO(scheme);
    etcd arbiter;
    std::vector<std::unique_ptr<agent_test::live_agent>> agents;
    pool_options o;
    o.agents.clear();
    for (int i = 0; i < 3; ++i) {
      agents.push_back(std::make_unique<agent_test::live_agent>(std::vector<std::string>{
          "--memory", "64MiB", "--region", "1MiB", "--etcd", arbiter.url(), "--pool-tenure", "500ms"}));
      o.agents.push_back(agents.back()->url(scheme));
    }
    o.tenant = pool_tenant::random();
    o.replicas = 2;
    o.compact_above = 0.3;
    o.access_within = o.memory_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::minutes(2);
    pool p(o);
    owners u(p);
    std::mt19937_64 random(std::random_device{}());
    std::string done;
    const auto is_whole = [&] { return members::is_whole(p); };
    for (int e = 0; e < events; ++e) {
      u.pass(200 + random() % 1000);
      agent_test::live_agent& agent = *agents[random() % agents.size()];
      const auto kind = random() % 6;
      done += "ksmeld"[kind];
      switch (kind) {
        case 0:  // dies, and comes back with nothing
          agent.program->end(SIGKILL);
          u.pass(200);
          agent.start_again();
          break;
        case 1: {  // is silent until somebody else has what it had, and comes back believing that it has it
          agent.program->stop();
          u.pass(200);
          agent.program->send(SIGCONT);
          break;
        }
        case 2:  // is silent for a moment
          agent.program->stop();
          u.pass_within(random() % 200, std::chrono::milliseconds(300));
          agent.program->send(SIGCONT);
          break;
        case 3:  // nobody says who goes on for a while
          arbiter.process().stop();
          agent.program->stop();
          u.pass_within(random() % 500, std::chrono::milliseconds(1500));
          arbiter.process().send(SIGCONT);
          agent.program->send(SIGCONT);
          break;
        case 4: {  // leaves, and is another one when it comes back
          agent_test::process drain({FARMEM_AGENT, "--drain", "1min", "--admin", agent.admin()}, agent.where / "drain");
          CHECK(drain.end() == 0);
          CHECK(agent.program->end(SIGTERM) == 0);
          u.pass(200);
          agent.start_again();
          break;
        }
        default: p.drop_connections();
      }
      INFO(done);
      CHECK(await(is_whole));
    }
    u.stop();
    INFO(done << ", the longest call took " << u.longest_ms() << " ms");
    CHECK(u.wrong() == "");
    const pool_report r = p.verify();
    INFO(r.text);
    CHECK(r.faults == 0);
    if (asked != nullptr) WARN(scheme << ": " << done << ", the longest call took " << u.longest_ms() << " ms");
  }
}
