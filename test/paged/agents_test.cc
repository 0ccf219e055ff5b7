// Agents of a range that are uneven, that come, are emptied, fall silent and die, beside threads that use the range.
#include "support/error_code.h"
#include "users.h"

#include <algorithm>
#include <mutex>

using namespace paged_test;

namespace {

using fm::test::code_of;

std::uint64_t regions_of(const agent_test::live_agent& agent) {
  const std::string text = agent.status(), before = "\"regions\":";
  const auto space = text.find("\"spaces\":[{");
  if (space == std::string::npos) return 0;
  return std::stoull(text.substr(text.find(before, space) + before.size()));
}

}  // namespace

TEST_CASE("a range is spread over agents that have not the same room") {
  for (const std::uint32_t replicas : {1u, 2u}) {
    INFO(replicas << " replicas");
    served w("shm", 0, modes().back(), replicas);
    const auto& small = w.add("shm", "4MiB");
    const auto& middle = w.add("shm", "8MiB");
    const auto& large = w.add("shm", "32MiB");
    w.o.capacity = replicas == 1 ? 30_MiB : 10_MiB;  // more than three times what the small one has
    const paged p(w.o);
    std::memset(p.data(), 7, p.size());
    p.evict_all();
    CHECK(regions_of(small) <= 16);
    CHECK(regions_of(middle) <= 32);
    CHECK(regions_of(small) + regions_of(middle) + regions_of(large) >= replicas * p.size() / 256_KiB);
    CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
    CHECK(p.data()[0] == std::byte{7});
    CHECK(p.verify() == "");
    w.o.capacity = 60_MiB;
    CHECK(code_of([&] { paged too_large(w.o); }) == errc::agent_full);
  }
}

TEST_CASE("a range that no agent has room for is refused") {
  served w("tcp", 0, modes().back());
  for (int i = 0; i < 2; ++i) (void)w.add("tcp", "4MiB");
  w.o.capacity = 7_MiB;
  const paged all(w.o);
  CHECK(code_of([&] { paged none(w.o); }) == errc::agent_full);
  w.o.replicas = 2;
  CHECK(code_of([&] { paged none(w.o); }) == errc::agent_full);
}

TEST_CASE("an agent that is added takes its share, beside threads that use the range") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      served w(t, 2, mode);
      const paged p(w.o);
      std::memset(p.data(), 0, p.size());
      p.evict_all();
      users u(p);
      u.pass(1000);
      const agent_test::live_agent& third = w.add(t);
      p.add_agent(third.url(t));
      const std::uint64_t fair = p.size() / 256_KiB / 3;
      CHECK(becomes([&] { return regions_of(third) >= fair - 2; }));
      u.pass(1000);
      check_all(p, u, w);
      CHECK(p.stats().agents_up == 3);
      for (const auto& a : w.live) CHECK(regions_of(*a) <= fair + 4);
      CHECK(code_of([&] { p.add_agent(third.url(t)); }) == errc::invalid_argument);
      CHECK(code_of([&] { p.add_agent("tcp://127.0.0.1:1"); }) != errc::ok);
      CHECK(p.stats().agents_up == 3);
    }
}

TEST_CASE("an agent that is added takes from the others what is too much there, however full they are") {
  constexpr std::size_t stripe = 64_KiB;
  for (const std::uint32_t replicas : {1u, 2u})
    for (const std::size_t part : {8, 2, 1}) {
      INFO(replicas << " replicas, a " << part << "th is used");
      served w("shm", 2, modes().back(), replicas);
      const paged p(w.o);
      const std::size_t used = p.size() / part;
      std::memset(p.data(), 1, used);
      p.evict_all();
      const agent_test::live_agent& third = w.add("shm");
      p.add_agent(third.url("shm"));
      // Each of the others keeps a sixteenth and a stripe more than its share, which may be rounded.
      const std::size_t all = used * replicas / stripe, fair = all / 3, most = all - 2 * (fair + fair / 16 + 1),
                        comes = most - most / 8;
      CHECK(becomes([&] { return p.stats().mended_bytes >= comes * stripe; }));
      CHECK(p.verify() == "");  // after the pass
      CHECK(p.stats().mended_bytes <= (fair + 1) * stripe);
      CHECK(regions_of(third) >= (comes + 3) / 4);
      CHECK(p.data()[used - 1] == std::byte{1});
    }
}

TEST_CASE("an agent that was to be left and stays has its share again") {
  served w("tcp", 2, modes().back());
  w.o.capacity = 32_MiB;
  const paged p(w.o);
  std::memset(p.data(), 1, p.size());
  p.evict_all();
  const agent_test::live_agent &stays = *w.live[0], &other = *w.live[1];
  agent_test::process drain({FARMEM_AGENT, "--drain", "5min", "--admin", stays.admin()}, stays.where / "drain");
  CHECK(becomes([&] { return p.stats().mended_bytes >= 6_MiB; }));  // of 16 MiB
  other.program->stop();                                            // nothing more goes there
  agent_test::process stay({FARMEM_AGENT, "--stay", "--admin", stays.admin()}, stays.where / "stay");
  CHECK(stay.end() == 0);
  other.program->send(SIGCONT);
  const std::uint64_t fair = p.size() / 256_KiB / 2;
  CHECK(becomes([&] {
    if (p.stats().agents_up == 1) p.add_agent(stays.url("tcp"));  // it was left before it was told to stay
    return regions_of(stays) >= fair - fair / 16 - 1;
  }));
  CHECK(p.verify() == "");
  drain.end(SIGKILL);
}

TEST_CASE("an agent that is removed has nothing any more, and may die") {
  for (const std::string t : {"shm", "tcp"})
    for (const std::uint32_t replicas : {1u, 2u}) {
      INFO(t << ", " << replicas << " replicas");
      served w(t, 3, modes().front(), replicas);
      const paged p(w.o);
      users u(p);
      u.pass(5000);
      p.remove_agent(w.o.agents[1]);
      CHECK(regions_of(*w.live[1]) == 0);
      w.live[1]->program->end(SIGKILL);
      u.pass(5000);
      CHECK(is_whole(p));
      check_all(p, u, w);
      CHECK(p.stats().agents_up == 2);
      CHECK(code_of([&] { p.remove_agent(w.o.agents[1]); }) == errc::invalid_argument);
      if (replicas == 2) CHECK(code_of([&] { p.remove_agent(w.o.agents[0]); }) == errc::invalid_argument);
      // It comes again as a new one.
      w.live[1]->start_again();
      p.add_agent(w.o.agents[1]);
      CHECK(p.stats().agents_up == 3);
      CHECK(becomes([&] { return regions_of(*w.live[1]) != 0; }));
      CHECK(p.verify() == "");
    }
}

TEST_CASE("an agent stays if the others have no room, if the time is over, and if it is kept") {
  served w("tcp", 1, modes().front());
  const agent_test::live_agent& small = w.add("tcp", "4MiB");
  w.o.capacity = 20_MiB;
  const paged p(w.o);
  std::memset(p.data(), 3, p.size());
  p.evict_all();
  CHECK(code_of([&] { p.remove_agent(w.o.agents[0]); }) == errc::quota_exceeded);
  CHECK(code_of([&] { p.remove_agent("tcp://127.0.0.1:1"); }) == errc::invalid_argument);
  CHECK(code_of([&] { p.keep_agent("tcp://127.0.0.1:1"); }) == errc::invalid_argument);
  p.keep_agent(w.o.agents[0]);  // nothing waits
  CHECK(p.verify() == "");

  // The other one does not answer, so nothing can go there.
  small.program->stop();
  CHECK(code_of([&] { p.remove_agent(small.url("tcp"), std::chrono::milliseconds(200)); }) == errc::timed_out);
  std::atomic<errc> ended{errc::ok};
  std::thread remover([&] { ended = code_of([&] { p.remove_agent(small.url("tcp")); }); });
  while (ended == errc::ok) p.keep_agent(small.url("tcp"));
  remover.join();
  small.program->send(SIGCONT);
  CHECK(ended == errc::cancelled);
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  CHECK(p.stats().agents_up == 2);
  CHECK(p.verify() == "");
  p.remove_agent(small.url("tcp"));
  CHECK(std::memcmp(p.data(), p.data() + 1, p.size() - 1) == 0);
  CHECK(p.verify() == "");
}

TEST_CASE("of two replicas one may die, and no access fails", "[replicas]") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      served w(t, 4, mode, 2);
      w.o.suspect_within = served::soon;
      const paged p(w.o);
      users u(p);
      u.pass(5000);
      for (const std::size_t dies : {0, 1, 2}) {
        const std::uint64_t lost = p.stats().agents_lost;
        w.live[dies]->program->end(SIGKILL);
        CHECK(becomes([&] { return p.stats().agents_lost > lost; }));
        CHECK(is_whole(p));
        u.pass(2000);
        w.live[dies]->start_again();
        p.add_agent(w.o.agents[dies]);
        u.pass(2000);
      }
      check_all(p, u, w);
      CHECK(p.stats().lost_pages == 0);
      CHECK(p.stats().mended_bytes != 0);
    }
}

TEST_CASE(
    "of two replicas one may fall silent, also before it was asked for memory, and is not believed when it comes back",
    "[replicas]") {
  for (const std::uint64_t before : {0, 5000})
    for (const fault_mode mode : modes()) {
      INFO(name_of(mode) << ", after " << before);
      served w("tcp", 4, mode, 2);
      w.o.suspect_within = served::soon;
      const paged p(w.o);
      std::optional<users> u;
      if (before != 0) u.emplace(p).pass(before);
      w.live[1]->program->stop();
      if (before == 0) u.emplace(p);  // soon all that they write waits for regions
      CHECK(becomes([&] { return p.stats().agents_lost != 0; }));
      CHECK(is_whole(p));
      u->pass(5000);
      w.live[1]->program->send(SIGCONT);
      u->pass(5000);
      check_all(p, *u, w);
      CHECK(p.stats().agents_lost >= 1);
      CHECK(p.stats().lost_pages == 0);
    }
}

TEST_CASE("of three replicas two may fall silent together, and both are given up", "[replicas]") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    served w("tcp", 6, mode, 3);
    w.o.suspect_within = served::soon;
    const paged p(w.o);
    users u(p);
    u.pass(5000);
    w.live[0]->program->stop();
    w.live[1]->program->stop();
    CHECK(becomes([&] { return p.stats().agents_lost >= 2; }));
    CHECK(is_whole(p));
    u.pass(2000);
    check_all(p, u, w);
    CHECK(p.stats().lost_pages == 0);
  }
}

TEST_CASE("what happens to the agents of a range is told in order, to a function that uses the range", "[replicas]") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      served w(t, 3, mode, 2);
      w.o.suspect_within = served::soon;
      std::mutex mutex;
      std::string told;
      std::atomic<const paged*> range{nullptr};
      std::atomic<std::uint64_t> wrong{0};
      w.o.on_agent_event = [&](const agent_event& e) {
        if (const paged* const p = range; e.missed != 0 || (p != nullptr && p->data()[0] != std::byte{5})) ++wrong;
        const auto at = std::find(w.o.agents.begin(), w.o.agents.end(), e.agent);
        const std::lock_guard lock(mutex);
        told += std::string(told.empty() ? "" : ", ") + std::string(to_string(e.change));
        if (at != w.o.agents.end()) told += ' ' + std::to_string(at - w.o.agents.begin());
      };
      const auto becomes_told = [&](const std::string& what) {
        const bool good = becomes([&] {
          const std::lock_guard lock(mutex);
          return told == what;
        });
        const std::lock_guard lock(mutex);
        INFO(told << ", and not " << what);
        CHECK(good);
        told.clear();
      };
      {
        const paged p(w.o);
        std::memset(p.data(), 5, p.size());
        p.evict_all();
        range = &p;
        w.live[2]->program->stop();
        w.live[2]->program->end(SIGKILL);
        becomes_told("silent 2, lost 2, replicated");
        w.live[2]->start_again();
        p.add_agent(w.o.agents[2]);
        becomes_told("added 2");
        agent_test::process drain({FARMEM_AGENT, "--drain", "5min", "--admin", w.live[0]->admin()},
                                  w.live[0]->where / "drain");
        CHECK(drain.end() == 0);
        becomes_told("leaving 0, left 0");
        agent_test::process stay({FARMEM_AGENT, "--stay", "--admin", w.live[0]->admin()}, w.live[0]->where / "stay");
        CHECK(stay.end() == 0);
        p.add_agent(w.o.agents[0]);
        becomes_told("added 0");
        CHECK(p.verify() == "");
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("without replicas a range goes on with what is here when an agent dies, and loses what is not") {
  for (const std::string t : {"shm", "tcp"}) {
    INFO(t);
    std::atomic<int> asked{0};
    std::string dead;
    served w(t, 2, fault_mode::threads);
    if (modes().front() != fault_mode::threads) return;
    w.o.reconnect_within = std::chrono::milliseconds(100);
    w.o.elastic = false;
    w.o.read_ahead = 0;
    w.o.on_failure = [&](const fault_failure& f) {
      if (dead == f.agent && f.code == errc::agent_lost) ++asked;
      return fault_action::signal;
    };
    const paged p(w.o);
    std::memset(p.data(), 5, p.size());
    p.evict_all();
    // Of the second agent: a block that is here, clean, and one that is here and was changed.
    constexpr std::size_t stripe = 64_KiB;
    CHECK(p.data()[stripe] == std::byte{5});
    p.data()[3 * stripe] = std::byte{6};
    dead = w.o.agents[1];
    w.live[1]->program->end(SIGKILL);
    CHECK(becomes([&] { return p.stats().lost_pages != 0; }));
    CHECK(becomes([&] {
      try {
        p.evict_all();
        return true;
      } catch (const error&) {
        return false;
      }
    }));
    CHECK(p.data()[stripe] == std::byte{5});
    CHECK(p.data()[3 * stripe] == std::byte{6});
    CHECK(p.data()[0] == std::byte{5});
    CHECK(asked == 0);
    // What is lost says so until it is discarded, also to a system call.
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    CHECK(::write(ends[1], p.data() + 5 * stripe, 1) == -1);
    CHECK(asked == 1);
    p.discard(p.bytes().subspan(5 * stripe, stripe));
    CHECK(p.data()[5 * stripe] == std::byte{0});
    p.data()[5 * stripe] = std::byte{9};
    p.evict_all();
    CHECK(p.data()[5 * stripe] == std::byte{9});
    CHECK(p.verify() == "");
    for (const int fd : ends) ::close(fd);
  }
}

TEST_CASE("when all replicas of a page are lost, the page is, and others are not", "[replicas]") {
  if (modes().front() != fault_mode::threads) return;
  std::atomic<int> asked{0};
  served w("tcp", 4, fault_mode::threads, 2);
  w.o.reconnect_within = w.o.suspect_within = std::chrono::milliseconds(100);
  w.o.on_failure = [&](const fault_failure& f) {
    if (f.code == errc::agent_lost) ++asked;
    return fault_action::signal;
  };
  const paged p(w.o);
  std::memset(p.data(), 5, p.size());
  p.evict_all();
  w.live[0]->program->stop();  // so that both are lost at once
  w.live[1]->program->stop();
  w.live[0]->program->end(SIGKILL);
  w.live[1]->program->end(SIGKILL);
  CHECK(becomes([&] { return p.stats().agents_up == 2 && p.stats().lost_pages != 0; }));
  CHECK(is_whole(p));
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  std::uint64_t lost = 0, there = 0;
  for (std::size_t i = 0; i < p.size(); i += page) {
    if (::write(ends[1], p.data() + i, 1) == 1) {
      std::byte b{};
      CHECK(::read(ends[0], &b, 1) == 1);
      CHECK(b == std::byte{5});
      ++there;
    } else {
      ++lost;
    }
  }
  for (const int fd : ends) ::close(fd);
  CHECK(lost == p.stats().lost_pages);
  CHECK(lost <= static_cast<std::uint64_t>(asked.load()));
  CHECK(there > lost);
  CHECK(p.verify() == "");
}

TEST_CASE("a range leaves an agent that is drained, and stays where it must") {
  for (const std::string t : {"shm", "tcp"}) {
    INFO(t);
    served w(t, 2, modes().front());
    const paged p(w.o);
    users u(p);
    u.pass(2000);
    const auto command = [&](std::size_t i, const std::vector<std::string>& what) {
      std::vector<std::string> all{FARMEM_AGENT};
      all.insert(all.end(), what.begin(), what.end());
      all.insert(all.end(), {"--admin", w.live[i]->admin()});
      agent_test::process run(all, w.live[i]->where / "told");
      return run.end();
    };
    CHECK(command(0, {"--drain", "5min"}) == 0);
    CHECK(regions_of(*w.live[0]) == 0);
    CHECK(code_of([&] { paged refused(w.o); }) == errc::refused);
    u.pass(2000);
    CHECK(command(1, {"--drain", "200ms"}) == 1);
    CHECK(agent_test::text_of(w.live[1]->where / "told").find("1 paged ranges pages") != std::string::npos);
    u.pass(2000);
    check_all(p, u, w);
    CHECK(p.stats().agents_up == 1);
    CHECK(command(0, {"--stay"}) == 0);
    p.add_agent(w.o.agents[0]);
    CHECK(becomes([&] { return regions_of(*w.live[0]) != 0; }));
    CHECK(p.verify() == "");
  }
}
