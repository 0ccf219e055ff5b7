// Clients of a pool that share it, break their connections, are killed, and come back after their lease.
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "pool/fixture.h"
#include "support/served_store.h"

namespace {

using namespace pool_test;

/// A client in a process of its own, spoken to by pipes. Whatever the test does, it is gone afterwards.
class other_process {
 public:
  other_process(const place& at, int lease_ms) {
    int in[2], out[2];
    REQUIRE((::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0));
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&files, out[1], 1);
    const pool_options o = at.options();
    std::vector<std::string> a{FARMEM_POOL_CLIENT, at.url(), o.tenant.text(), std::to_string(lease_ms)};
    std::vector<char*> argv;
    for (auto& s : a) argv.push_back(s.data());
    argv.push_back(nullptr);
    REQUIRE(::posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ) == 0);
    ::posix_spawn_file_actions_destroy(&files);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
    REQUIRE(answer() == "open");
  }
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;
  ~other_process() {
    ::close(to_);
    ::close(from_);
    kill_it();
  }
  /// Says a line and returns the answer, without its end.
  std::string ask(const std::string& line) {
    const std::string l = line + "\n";
    REQUIRE(::write(to_, l.data(), l.size()) == ssize_t(l.size()));
    return answer();
  }
  void signal(int s) const { REQUIRE(::kill(pid_, s) == 0); }
  void kill_it() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string answer() {
    std::string line;
    for (;;) {
      pollfd p{from_, POLLIN, 0};
      REQUIRE(::poll(&p, 1, 60'000) == 1);
      char c = 0;
      REQUIRE(::read(from_, &c, 1) == 1);
      if (c == '\n') return line;
      line += c;
    }
  }
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

std::string text_of(const pool_address& a) { return fmt::format("{:x} {:x}", a.who, a.what); }

/// Waits for something that other processes and threads bring about.
template <class F>
bool comes_true(F&& f) {
  for (const time_point until = clock::now() + std::chrono::minutes(10); clock::now() < until;) {
    if (f()) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

TEST_CASE("processes share objects by their pointers") {
  const std::string scheme = GENERATE("shm", "tcp");
  const place at(scheme);
  pool mine(at.options());
  other_process other(at, 30'000);
  std::uint64_t who = 0, what = 0;
  REQUIRE(std::sscanf(other.ask("alloc 17").c_str(), "%lx %lx", &who, &what) == 2);
  pool_ptr<std::uint64_t> theirs(pool_address{who, what});
  CHECK(mine.read(theirs) == 17);
  mine.write(theirs, std::uint64_t{18});
  CHECK(other.ask("read " + text_of(theirs.address())) == "18");
  CHECK(other.ask("write " + text_of(theirs.address()) + " 19") == "ok");
  CHECK(mine.read(theirs) == 19);
  mine.free(theirs);
  CHECK(other.ask("read " + text_of(theirs.address())) == "not_found");
  CHECK(other.ask("write " + text_of(theirs.address()) + " 1") == "not_found");
}

TEST_CASE("a client that is killed at work leaves nothing locked, and holds memory for no longer than its lease") {
  const std::string scheme = GENERATE("shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  pool mine(o);
  auto shared = mine.alloc(std::uint64_t{1});
  for (int round = 0; round < 2; ++round) {
    other_process other(at, 1500);
    REQUIRE(other.ask("work " + text_of(shared.address())) == "working");
    const std::uint64_t before = mine.stats().agents[0].allocations;
    REQUIRE(comes_true([&] { return mine.stats().agents[0].allocations > before + 600; }));
    other.kill_it();
    mine.write(shared, std::uint64_t(round));
    CHECK(mine.read(shared) == std::uint64_t(round));
    (void)mine.compact();
    CHECK(comes_true([&] {
      const pool_agent_stats s = mine.stats().agents[0];
      return s.clients == 1 && s.waiting_bytes == 0;
    }));
    check_sound(mine);
  }
  CHECK(mine.stats().agents[0].clients_fenced >= 2);
}

TEST_CASE("a client that was stopped for longer than its lease reads nothing old when it goes on") {
  const std::string scheme = GENERATE("shm", "tcp");
  const place at(scheme);
  pool_options o = at.options();
  o.block = 4_KiB;
  o.arenas = 1;
  pool mine(o);
  std::vector<pool_ptr<std::uint64_t>> all;
  for (std::uint64_t i = 0; i < 300; ++i) all.push_back(mine.alloc(i));
  other_process other(at, 400);
  for (std::size_t i = 0; i < all.size(); i += 50)
    REQUIRE(other.ask("read " + text_of(all[i].address())) == std::to_string(i));
  other.signal(SIGSTOP);
  REQUIRE(comes_true([&] { return mine.stats().agents[0].clients_fenced >= 1; }));
  // All frames that it knew are used for something else by now.
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 50 != 0) mine.free(all[i]);
  (void)mine.compact();
  REQUIRE(comes_true([&] { return mine.stats().agents[0].waiting_bytes == 0; }));
  std::vector<pool_ptr<std::uint64_t>> more;
  for (std::uint64_t i = 0; i < 1000; ++i) more.push_back(mine.alloc(1'000'000 + i));
  for (std::size_t i = 0; i < all.size(); i += 50) mine.write(all[i], std::uint64_t(i + 5));
  other.signal(SIGCONT);
  for (std::size_t i = 0; i < all.size(); i += 50)
    CHECK(other.ask("read " + text_of(all[i].address())) == std::to_string(i + 5));
  CHECK(other.ask("read " + text_of(all[1].address())) == "not_found");
  CHECK(other.ask("reconnects") != "0");
}

TEST_CASE("reads and changes go on over connections that break") {
  const std::string scheme = GENERATE("local", "shm", "tcp");
  const place at(scheme);
  pool p(at.options());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, failed{0}, rounds{0};
  std::thread worker([&] {
    std::vector<pool_ptr<std::uint64_t>> mine;
    while (!stop.load()) {
      try {
        mine.push_back(p.alloc(rounds.load()));
        if (p.read(mine.back()) != rounds.load()) wrong.fetch_add(1);
        p.write(mine.back(), std::uint64_t{5});
        if (p.read(mine[rounds.load() * 7 % mine.size()]) != 5) wrong.fetch_add(1);
        if (mine.size() > 50) {
          p.free(mine.back());
          mine.pop_back();
        }
      } catch (const error&) {
        failed.fetch_add(1);
      }
      rounds.fetch_add(1);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = rounds.load();
    p.drop_connections();
    if (!comes_true([&] { return rounds.load() > before + 3; })) break;
  }
  stop.store(true);
  worker.join();
  CHECK(wrong.load() == 0);
  CHECK(failed.load() == 0);
  CHECK(p.stats().reconnects > 0);
  check_sound(p);
}

namespace {

/// An agent that loses messages of changes, or the answers to them, together with the connection.
class losing_agent final : public fm::test::served_store {
 public:
  explicit losing_agent(const fm::agent::store_options& o) : served_store(o) { serve(); }
  ~losing_agent() override { stop(); }
  losing_agent(const losing_agent&) = delete;
  losing_agent& operator=(const losing_agent&) = delete;
  std::atomic<std::uint64_t> changes{0}, lost_messages{0}, lost_answers{0};

  errc message(fabric::peer& p, std::span<const std::byte> payload, fabric::answer& out) noexcept override {
    const protocol::message_type t = type_of(payload);
    const bool change = t == protocol::message_type::pool_alloc || t == protocol::message_type::pool_free ||
                        t == protocol::message_type::pool_write || t == protocol::message_type::pool_release;
    const std::uint64_t n = change ? changes.fetch_add(1) + 1 : 0;
    if (change && n % 9 == 4) {
      lost_messages.fetch_add(1);
      return lose(p, "the test loses a message");
    }
    const errc e = served_store::message(p, payload, out);
    if (!change || n % 9 != 7 || e != errc::ok) return e;
    lost_answers.fetch_add(1);
    return lose(p, "the test loses an answer");
  }
};

}  // namespace

TEST_CASE("every change is made once, whichever message or answer is lost") {
  fm::agent::store_options so;
  so.memory_bytes = 16_MiB;
  so.region_bytes = 1_MiB;
  losing_agent agent(so);
  pool_options o;
  o.agents = {agent.url()};
  o.tenant = pool_tenant::random();
  o.compact_above = 0;
  o.access_within = o.lease = o.reconnect_within = o.connect_within = std::chrono::seconds(30);
  pool p(o);
  std::vector<pool_ptr<std::uint64_t>> all;
  for (std::uint64_t i = 0; i < 60; ++i) all.push_back(p.alloc(i));
  for (std::uint64_t i = 0; i < 60; ++i) p.write(all[i], i + 100);
  for (std::uint64_t i = 0; i < 60; ++i) p.release(all[i]);
  for (std::uint64_t i = 0; i < 60; ++i) CHECK(p.read(all[i]) == i + 100);
  for (std::uint64_t i = 0; i < 30; ++i) p.free(all[i]);
  CHECK(agent.lost_messages.load() > 5);
  CHECK(agent.lost_answers.load() > 5);
  const pool_agent_stats s = p.stats().agents[0];
  CHECK(s.allocations == 60);
  CHECK(s.writes == 60);
  CHECK(s.frees == 30);
  CHECK(p.verify().objects == 30);
  check_sound(p);
}

TEST_CASE("the memory of an agent that is lost is not kept mapped") {
  auto at = std::make_unique<place>("shm");
  pool_options o = at->options();
  o.reconnect_within = std::chrono::milliseconds(200);
  pool p(o);
  auto a = p.alloc(std::uint64_t{1});
  CHECK(p.read(a) == 1);
  const auto mapped = [] {
    std::ifstream in("/proc/self/maps");
    std::size_t n = 0;
    for (std::string line; std::getline(in, line);) n += line.find("farmem-region") != std::string::npos ? 1 : 0;
    return n;
  };
  CHECK(mapped() >= 1);
  at->agent().program->end(SIGKILL);
  const time_point until = clock::now() + std::chrono::minutes(2);
  while (mapped() != 0 && clock::now() < until) std::this_thread::yield();
  CHECK(mapped() == 0);
  CHECK(p.try_read(a).error().code() == errc::agent_lost);
}

TEST_CASE("a pool whose agent is gone says so") {
  auto at = std::make_unique<place>("tcp");
  pool_options o = at->options();
  o.reconnect_within = std::chrono::milliseconds(200);
  pool p(o);
  auto a = p.alloc(std::uint64_t{1});
  at->agent().program->end(SIGKILL);
  CHECK(p.try_read(a).error().code() == errc::agent_lost);
  const auto r = p.try_alloc_bytes(pattern(8, 1));
  CHECK(r.error().code() == errc::agent_lost);
  CHECK(code_of([&] { p.free(a); }) == errc::agent_lost);
}
