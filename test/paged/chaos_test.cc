// Agents of a range with two replicas are killed, stopped, removed and added at random, one at a time, beside threads that
// use it. FARMEM_PAGED_EVENTS asks for more events than a test has: for long runs.
#include "users.h"

using namespace paged_test;

TEST_CASE("with two replicas a range loses nothing, whatever happens to one agent at a time", "[replicas]") {
  const char* const asked = std::getenv("FARMEM_PAGED_EVENTS");
  const int events = asked != nullptr ? std::atoi(asked) : 16;
  for (const std::string t : {"shm", "tcp"}) {
    INFO(t);
    served w(t, 4, modes().front(), 2);
    w.o.suspect_within = served::soon;
    const paged p(w.o);
    users u(p);
    std::mt19937_64 random(std::random_device{}());
    std::string done;
    std::uint64_t lost = 0;
    const auto is_lost = [&] { return p.stats().agents_lost > lost; };
    const auto put_back = [&](std::size_t i) {
      CHECK(is_whole(p));
      p.add_agent(w.o.agents[i]);
      lost = p.stats().agents_lost;
    };
    const auto restart = [&](std::size_t i) {
      CHECK(becomes(is_lost));
      w.live[i]->start_again();
      put_back(i);
    };
    for (int e = 0; e < events; ++e) {
      u.pass(200 + random() % 2000);
      const std::size_t i = random() % 4;
      agent_test::process& agent = *w.live[i]->program;
      auto kind = random() % 6;
      // Over shm:// the memory of an agent that is stopped is as good as before, and nobody notices.
      if (t == "shm" && kind == 3) kind = 2;
      done += "krsSdc"[kind];
      switch (kind) {
        case 0:  // dies
          agent.end(SIGKILL);
          restart(i);
          break;
        case 1:  // is removed, and comes back at once
          p.remove_agent(w.o.agents[i]);
          put_back(i);
          break;
        case 2:  // is silent for a moment
          agent.stop();
          u.pass(random() % 200);
          agent.send(SIGCONT);
          break;
        case 3:  // is silent until it is given up, and comes back
          agent.stop();
          CHECK(becomes(is_lost));
          agent.send(SIGCONT);
          u.pass(200);
          put_back(i);
          break;
        case 4: {  // dies while it is removed, or just after
          std::thread remover([&] {
            try {
              p.remove_agent(w.o.agents[i]);
            } catch (const error& wrong) {
              UNSCOPED_INFO(wrong.what());
            }
          });
          agent.end(SIGKILL);
          remover.join();
          if (p.stats().agents_up == 4) CHECK(becomes(is_lost));
          CHECK(is_whole(p));
          w.live[i]->start_again();
          put_back(i);
          break;
        }
        default: p.drop_connections();
      }
      // One that was silent for a moment may have been given up after all.
      CHECK(becomes([&] { return p.stats().agents_up == 4 || is_lost(); }));
      if (is_lost()) put_back(i);
      CHECK(is_whole(p));
    }
    INFO(done);
    INFO(p.stats().text());
    check_all(p, u, w);
    CHECK(p.stats().lost_pages == 0);
  }
}
