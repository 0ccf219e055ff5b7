// What a program is told of its pools' agents, what these are told of each other, and agents that are named twice. Agents are in
// this process.
#include "pool/replicas/replicas_fixture.h"

using namespace pool_test;
using fm::test::await;
using fm::test::code_of;

namespace {

/// What was told, as text: "silent 0, back 0", with the agents' places in the options.
class told {
 public:
  explicit told(pool_options& o) : agents_(o.agents) {
    o.on_agent_event = [this](const agent_event& e) {
      // Whatever is told, the pool can be used: an object of the part that it is about is waited for.
      if (pool* const p = pool_) read_ = p->read_bytes(object_) == bytes_;
      const auto at = std::find(agents_.begin(), agents_.end(), e.agent) - agents_.begin();
      const std::lock_guard lock(mutex_);
      missed_ += e.missed;
      if (e.change == agent_change::replicated) return void(++replicated_);
      text_ += fmt::format("{}{} {}", text_.empty() ? "" : ", ", to_string(e.change), at);
    };
  }
  told(const told&) = delete;
  told& operator=(const told&) = delete;
  void use(pool& p) {
    object_ = p.alloc_bytes(bytes_);
    pool_ = &p;
  }
  void becomes(const std::string& what) {
    const bool good = await([&] {
      const std::lock_guard lock(mutex_);
      return text_ == what;
    });
    const std::lock_guard lock(mutex_);
    INFO(text_ << ", and not " << what);
    CHECK(good);
    CHECK(missed_ == 0);
    text_.clear();
  }
  [[nodiscard]] std::size_t count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (auto at = text_.find(what); at != std::string::npos; at = text_.find(what, at + 1)) ++n;
    return n;
  }
  /// How often all parts had their copies again; that is not in the text.
  [[nodiscard]] int replicated() const { return replicated_; }
  [[nodiscard]] bool has_read() const { return read_; }

 private:
  const std::vector<std::string> agents_;
  const std::vector<std::byte> bytes_ = pattern(100, 7);
  pool_address object_{};
  std::atomic<pool*> pool_{nullptr};
  std::atomic<bool> read_{true};
  std::atomic<int> replicated_{0};
  std::mutex mutex_;
  std::string text_;
  std::uint64_t missed_ = 0;
};

}  // namespace

TEST_CASE("a program is told when an agent of its pool is silent, back and lost") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 2, false);
  w.o.replicas = 1;
  w.o.reconnect_within = std::chrono::milliseconds(200);
  w.o.agents.pop_back();
  told events(w.o);
  pool p(w.o);
  events.becomes("");
  p.drop_connections();
  events.becomes("silent 0, back 0");
  w.kill(0);
  events.becomes("silent 0, lost 0");
}

TEST_CASE("a program is told which agent takes over a part of its pool, and can use the pool meanwhile") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  told events(w.o);
  pool p(w.o);
  events.use(p);
  const std::size_t backup = w.backup_of(p, 0);
  w.kill(0);
  events.becomes(fmt::format("silent 0, taken over {}", backup));
  CHECK(events.has_read());
  CHECK(await([&] { return events.replicated() != 0 && members::is_whole(p); }));
  w.start(0);
  CHECK(await([&] { return members::is_whole(p); }));
  p.drop_connections();  // of three parts, each on its own connection
  CHECK(await([&] { return events.count("back") == 3; }));
  CHECK(events.has_read());
}

TEST_CASE("a program is told when all parts of its pool have their copies again, and not before") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 2);
  told events(w.o);
  pool p(w.o);
  w.kill(1);
  events.becomes("silent 1, taken over 0");
  (void)p.alloc_bytes(pattern(100, 1));  // each part serves, alone
  (void)p.alloc_bytes(pattern(100, 1));
  CHECK(events.replicated() == 0);
  w.start(1);
  CHECK(await([&] { return events.replicated() == 1; }));
  CHECK(members::is_whole(p));
}

TEST_CASE("a program is told that an agent leaves a pool with replicas, and that it stays") {
  const std::string scheme = GENERATE("tcp", "shm");
  members w(scheme, 3);
  SECTION("it cannot leave") {
    w.o.agents.pop_back();
    told events(w.o);
    const pool p(w.o);
    w.all[0]->store().drain(true);
    events.becomes("leaving 0");
    w.all[0]->store().drain(false);
    events.becomes("staying 0");
  }
  SECTION("it leaves") {
    told events(w.o);
    pool p(w.o);
    const std::size_t backup = w.backup_of(p, 0);
    w.all[0]->store().drain(true);
    events.becomes(fmt::format("leaving 0, silent 0, taken over {}", backup));
    CHECK(w.is_left(0));
  }
}

TEST_CASE("a pool that cannot be opened, or is closed, tells nothing") {
  members w("tcp", 2);
  told events(w.o);
  w.all[1]->deaf = true;
  w.all[0]->deaf = true;
  w.o.connect_within = std::chrono::milliseconds(300);
  CHECK(code_of([&] { pool none(w.o); }) == errc::under_replicated);
  w.o.replicas = 1;
  w.o.name = "another one";
  { pool p(w.o); }
  events.becomes("");
}

TEST_CASE("an agent that is named twice is refused, also under two addresses") {
  members w("tcp", 2);
  std::string again = w.o.agents[0];
  again.replace(again.find("127.0.0.1"), 9, "127.1");
  w.o.agents.insert(w.o.agents.begin() + 1, again);
  try {
    pool p(w.o);
    FAIL("it was opened");
  } catch (const error& e) {
    INFO(e.what());
    CHECK(e.code() == errc::invalid_argument);
    CHECK(std::string(e.what()).find(again + " are one agent") != std::string::npos);
  }
}

TEST_CASE("a backup that a client asked too early looks for one of its own when it has taken over") {
  members w("tcp", 3);
  pool p(w.o);
  const std::uint32_t instance = w.part_of(p, 0);
  CHECK(w.primary_of(p, 0) == 0);
  const std::size_t backup = w.backup_of(p, 0), third = 3 - backup;
  // Another client asks the backup first, and nobody asks again.
  pool_options other = w.o;
  other.agents = {w.o.agents[backup], w.o.agents[third], w.o.agents[0]};
  { const pool q(other); }
  p.close();
  w.kill(0);
  CHECK(await([&] { return w.is(third, instance, "backup"); }));
  CHECK(w.is(backup, instance, "primary"));
}
