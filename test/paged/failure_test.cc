// What a paged range does when something is wrong: with its options, the permission, the agents, the process. Never wrong bytes, and
// never a zero for what was written.
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <sys/prctl.h>

#include <algorithm>
#include <fstream>

#include "fixture.h"
#include "support/error_code.h"

using namespace paged_test;

namespace {

using fm::test::code_of;

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

/// Waits until so many agents are connected.
bool connected_to(const paged& p, std::uint64_t agents) {
  for (const auto until = clock::now() + std::chrono::minutes(10); clock::now() < until; std::this_thread::yield())
    if (p.stats().agents_up == agents) return true;
  return false;
}

sigjmp_buf jump;

/// Reads a byte; false when the access failed: with fault threads that is a SIGBUS, which gets here. In the other mode the range's
/// own handler has it, and on_failure leaves it with give_up.
bool readable(const std::byte* at, fault_mode mode) {
  struct sigaction a {
  }, before{};
  a.sa_handler = [](int) { ::siglongjmp(jump, 1); };
  if (mode == fault_mode::threads) ::sigaction(SIGBUS, &a, &before);
  const bool good = sigsetjmp(jump, 1) == 0;
  if (good) {
    [[maybe_unused]] const std::byte b = *const_cast<const volatile std::byte*>(at);
  }
  if (mode == fault_mode::threads) ::sigaction(SIGBUS, &before, nullptr);
  return good;
}

fault_action give_up(fault_mode mode) {
  if (mode == fault_mode::sigbus) ::siglongjmp(jump, 1);
  return fault_action::signal;
}

}  // namespace

TEST_CASE("options out of range are refused by name") {
  const auto refused = [](const char* option, const std::function<void(paged_options&)>& change) {
    paged_options o;
    o.local = 8_MiB;
    o.capacity = 16_MiB;
    change(o);
    const std::string text = text_of([&] { paged p(o); });
    INFO(text);
    CHECK(has(text, option));
    CHECK(code_of([&] { paged p(o); }) == errc::invalid_argument);
  };
  refused("block", [](paged_options& o) { o.block = 2_KiB; });
  refused("block", [](paged_options& o) { o.block = 4_MiB; });
  refused("block", [](paged_options& o) { o.block = 12_KiB; });
  refused("capacity", [](paged_options& o) { o.capacity = 0; });
  refused("local", [](paged_options& o) { o.local = 256_KiB; });
  refused("agents", [](paged_options& o) { o.agents.clear(); });
  refused("fault_threads", [](paged_options& o) { o.fault_threads = 0; });
  refused("promote_probability", [](paged_options& o) { o.promote_probability = 2; });
  refused("replicas", [](paged_options& o) { o.replicas = 0; });
  refused("replicas", [](paged_options& o) { o.replicas = 2; });
  refused("name", [](paged_options& o) { o.name = std::string(100, 'n'); });
  refused("access_within", [](paged_options& o) { o.access_within = {}; });
  refused("block", [](paged_options& o) {
    o.block = 1_MiB;
    o.local_region = 64_KiB;  // smaller than a block
  });
}

TEST_CASE("an agent that has not enough memory, or gives not as much, says so at once") {
  world w("shm", 1, {"--quota", "1MiB"});
  CHECK(code_of([&] { paged p(w.o); }) == errc::quota_exceeded);
  w.o.capacity = 1_MiB;
  CHECK(code_of([&] { paged p(w.o); }) == errc::ok);

  world full("tcp");
  full.o.capacity = 40_MiB;
  paged first(full.o);  // takes 40 of 64 MiB, though nothing is written yet
  CHECK(code_of([&] { paged second(full.o); }) == errc::agent_full);
  CHECK(has(text_of([&] { paged second(full.o); }), full.o.agents[0]));
}

TEST_CASE("closing a range gives the agent's memory back") {
  world w("tcp");
  w.o.capacity = 40_MiB;
  for (int i = 0; i < 3; ++i) {
    paged p(w.o);
    p.data()[1_MiB * std::size_t(i)] = std::byte{1};
    p.evict_all();
  }
}

TEST_CASE("without leave to use userfaultfd the error says how to get it") {
  if (::geteuid() != 0) return;  // whoever has no leave sees the error in every other test
  const ending e = in_child([] {
    ::prctl(PR_SET_DUMPABLE, 1);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      ::_exit(3);
    const std::string text = text_of([] { paged p; });
    [[maybe_unused]] const ssize_t n = ::write(2, text.data(), text.size());
  });
  INFO(e.text);
  CHECK(e.code == 0);
  std::string allowed;
  if (FILE* f = ::fopen("/proc/sys/vm/unprivileged_userfaultfd", "r")) {
    allowed = std::string(1, char(::fgetc(f)));
    ::fclose(f);
  }
  if (allowed == "1") return;  // everybody has leave
  CHECK(has(e.text, "access_denied"));
  CHECK(has(e.text, "/dev/userfaultfd"));
  CHECK(has(e.text, "CAP_SYS_PTRACE"));
  CHECK(has(e.text, "vm.unprivileged_userfaultfd=1"));
}

TEST_CASE("an access outside of the range is an ordinary SIGSEGV") {
  for (const fault_mode mode : modes()) {
    world w("local");
    w.o.faults = mode;
    paged p(w.o);
    p.data()[0] = std::byte{1};
    for (const std::ptrdiff_t at : {std::ptrdiff_t(-1), std::ptrdiff_t(p.size())}) {
      const ending e = in_child([&] { const_cast<volatile std::byte&>(p.data()[at]) = std::byte{1}; });
      INFO(e.text);
      CHECK(e.code == -SIGSEGV);
      CHECK_FALSE(has(e.text, "farmem"));
    }
    CHECK(code_of([&] { p.discard({p.data() + p.size() - 10, 20}); }) == errc::out_of_range);
    CHECK(code_of([&] { p.prefetch({p.data() - 1, 20}); }) == errc::out_of_range);
  }
}

TEST_CASE("a child after fork is stopped with a message, and the parent's bytes stay") {
  for (const fault_mode mode : modes()) {
    world w("local");
    w.o.faults = mode;
    w.o.name = "parent's";
    paged p(w.o);
    std::memset(p.data(), 5, p.size());
    const ending read = in_child([&] { std::exit(int(const_cast<volatile std::byte&>(p.data()[100]))); });
    CHECK(read.code == -SIGSEGV);
    CHECK(has(read.text, "paged range parent's, which does not exist in a child after fork"));
    const ending write = in_child([&] { const_cast<volatile std::byte&>(p.data()[100]) = std::byte{6}; });
    CHECK(write.code == -SIGSEGV);
    const ending members = in_child([&] {
      if (FM_ASAN != 0) ::_exit(0);  // it allocates: see below
      if (code_of([&] { p.evict_all(); }) != errc::unsupported) ::_exit(1);
      if (code_of([&] { p.discard(p.bytes()); }) != errc::unsupported) ::_exit(2);
      paged gone(std::move(p));  // and is destroyed, which does nothing to the parent's
    });
    CHECK(members.code == 0);
    bool right = true;
    for (std::size_t i = 0; i < p.size(); ++i) right = right && p.data()[i] == std::byte{5};
    CHECK(right);
    CHECK(p.verify() == "");
  }
}

TEST_CASE("a child has ranges of its own, which are not where its parent's are and do nothing to them") {
  if (FM_TSAN != 0) return;  // no threads after fork there
  if (FM_ASAN != 0)
    return;  // g++ 12's takes no lock of its allocator around fork: a child of a parent with threads may hang
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    world w("local");
    w.o.faults = mode;
    w.o.capacity = 16_MiB;
    paged p(w.o);
    std::memset(p.data(), 0x55, p.size());
    for (const std::uint64_t smaller : {std::uint64_t{4_MiB}, std::uint64_t{8_MiB}}) {
      const ending e = in_child([&] {
        paged_options o = w.o;
        o.capacity = smaller;
        paged mine(o);
        if (mine.data() < p.data() + p.size() && p.data() < mine.data() + mine.size()) ::_exit(1);
        std::memset(mine.data(), 0xaa, mine.size());
        for (std::size_t i = 0; i < mine.size(); ++i)
          if (mine.data()[i] != std::byte{0xaa}) ::_exit(2);
        mine.evict_all();
        if (!mine.verify().empty()) ::_exit(3);
        // And a child of the child has neither.
        const ending grand = in_child([&] { ::_exit(int(const_cast<volatile std::byte&>(p.data()[100]))); });
        if (grand.code != -SIGSEGV || !has(grand.text, "does not exist in a child after fork")) ::_exit(4);
      });
      INFO(e.text);
      CHECK(e.code == 0);
    }
    CHECK(std::all_of(p.data(), p.data() + p.size(), [](std::byte b) { return b == std::byte{0x55}; }));
    CHECK(p.verify() == "");
  }
}

TEST_CASE("an access to a clean page of a dead agent fails once and for good") {
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    world w("tcp");
    w.o.faults = mode;
    w.o.reconnect_within = std::chrono::milliseconds(100);
    std::atomic<int> asked{0};
    w.o.on_failure = [&](const fault_failure&) {
      if (++asked > 1000) return fault_action::abort;  // it would go on for ever
      return give_up(mode);
    };
    paged p(w.o);
    std::memset(p.data(), 4, p.size());
    p.evict_all();
    // Read, and so mapped without leave to write, and dropped without having been changed.
    CHECK(std::all_of(p.data(), p.data() + p.size(), [](std::byte b) { return b == std::byte{4}; }));
    p.evict_all();
    w.live[0]->program->end(SIGKILL);
    REQUIRE(connected_to(p, 0));
    for (std::size_t i = 0; i < 8; ++i) CHECK_FALSE(readable(p.data() + i * 64_KiB, mode));
    CHECK(asked.load() >= 8);
    CHECK(asked.load() <= 16);
  }
}

TEST_CASE("a range goes on after its connections broke") {
  for (const std::string& t : transports)
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      world w(t, 2);
      w.o.faults = mode;
      w.o.reconnect_within = std::chrono::seconds(30);
      w.o.access_within = std::chrono::seconds(30);
      paged p(w.o);
      mirror m(p, 3);
      bool right = true;
      for (int i = 0; i < 200; ++i) {
        if (i % 20 == 10) p.drop_connections();
        m.write(20000);
        right = right && m.read(20000);
      }
      CHECK(right);
      CHECK(m.all_right());
      // Waits for whoever is still connecting.
      p.evict_all();
      CHECK(m.all_right());
      const paged_stats s = p.stats();
      INFO(s.text());
      CHECK(s.failed == 0);
      CHECK(s.reconnects > 0);
      CHECK(p.verify() == "");
    }
}

TEST_CASE("an access to what a dead agent had aborts with a message that names the agent") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      if (FM_TSAN != 0) continue;  // no threads after fork there
      INFO(t << ", " << name_of(mode));
      world w(t);
      w.o.faults = mode;
      w.o.reconnect_within = std::chrono::milliseconds(100);
      const ending e = in_child([&] {
        paged p(w.o);
        std::memset(p.data(), 3, p.size());
        p.evict_all();
        w.live[0]->program->send(SIGKILL);
        if (!connected_to(p, 0)) ::_exit(102);
        // What is remote cannot be had; what is new needs nobody, as long as there is room.
        const auto byte = const_cast<volatile std::byte&>(p.data()[1_MiB]);
        ::_exit(byte == std::byte{0} ? 100 : 101);
      });
      w.live[0]->program->end(SIGKILL);
      INFO(e.text);
      CHECK(e.code == -SIGABRT);
      CHECK(has(e.text, w.o.agents[0]));
      CHECK(has(e.text, "aborting"));
    }
}

TEST_CASE("a program decides about an access that failed, and lives") {
  for (const std::string t : {"shm", "tcp"})
    for (const fault_mode mode : modes()) {
      INFO(t << ", " << name_of(mode));
      world w(t, 2);
      w.o.faults = mode;
      w.o.reconnect_within = std::chrono::milliseconds(100);
      std::atomic<int> asked{0};
      std::atomic<bool> named{true};
      w.o.on_failure = [&](const fault_failure& f) {
        named.store(named.load() && w.o.agents[1] == f.agent && f.code != errc::ok);
        return ++asked < 3 ? fault_action::retry : give_up(mode);
      };
      paged p(w.o);
      std::memset(p.data(), 4, p.size());
      p.evict_all();
      w.live[1]->program->end(SIGKILL);
      REQUIRE(connected_to(p, 1));  // until that is noticed, shared memory can still be read
      // Stripes of 64 KiB go round; where the dead agent's are is not said, but half of the range is on it.
      std::size_t lost = 0, right = 0;
      std::byte* at = nullptr;
      for (std::size_t i = 0; i < p.size() && lost == 0; i += 64_KiB) {
        if (readable(p.data() + i, mode)) {
          right += p.data()[i] == std::byte{4};
        } else {
          ++lost;
          at = p.data() + i;
        }
      }
      CHECK(lost == 1);
      CHECK(right == 1);
      CHECK(asked.load() == 3);
      CHECK(named.load());
      CHECK(p.stats().failed == 3);
      // What failed can be given up; then it is new.
      p.discard({at, 64_KiB});
      CHECK(readable(at, mode));
      CHECK(*at == std::byte{0});
      CHECK(code_of([&] { p.populate({at + 128_KiB, 1}); }) != errc::ok);
    }
}

TEST_CASE("what cannot be written back stays, and its range says why there is no room") {
  for (const fault_mode mode : modes()) {
    world w("tcp");
    w.o.faults = mode;
    w.o.reconnect_within = std::chrono::milliseconds(100);
    w.o.access_within = std::chrono::milliseconds(300);
    w.o.elastic = false;
    w.o.read_ahead = 0;
    std::atomic<bool> for_room{false};
    w.o.on_failure = [&](const fault_failure& f) {
      for_room.store(f.for_room);
      return give_up(mode);
    };
    paged p(w.o);
    std::memset(p.data(), 8, 256_KiB);
    w.live[0]->program->end(SIGKILL);
    std::size_t filled = 256_KiB;
    while (filled < p.size() && readable(p.data() + filled, mode)) {
      p.data()[filled] = std::byte{8};
      filled += 16_KiB;
    }
    CHECK(filled <= 512_KiB);
    CHECK(for_room.load());
    CHECK(code_of([&] { p.evict_all(); }) != errc::ok);
    bool right = true;
    for (std::size_t i = 0; i < 256_KiB; ++i) right = right && p.data()[i] == std::byte{8};
    CHECK(right);
  }
}

TEST_CASE("the memory of an agent that is lost is let go of, while its range is used") {
  // Regions of agents that are mapped here.
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t n = 0;
    for (std::string line; std::getline(maps, line);) n += has(line, "memfd:farmem-region");
    return n;
  };
  for (const fault_mode mode : modes()) {
    INFO(name_of(mode));
    world w("shm", 2);
    w.o.faults = mode;
    w.o.reconnect_within = std::chrono::milliseconds(100);
    w.o.elastic = false;  // nothing of the agent that is to die comes along with the other's
    w.o.read_ahead = 0;
    w.o.on_failure = [&](const fault_failure&) { return give_up(mode); };
    paged p(w.o);
    std::memset(p.data(), 4, p.size());
    p.evict_all();
    const std::size_t before = mapped();
    REQUIRE(before >= 4);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread reader([&] {  // of the agent that lives
      while (!stop)
        for (std::size_t i = 0; i < p.size(); i += 128_KiB)
          if (*const_cast<const volatile std::byte*>(p.data() + i) != std::byte{4}) ++wrong;
    });
    w.live[1]->program->end(SIGKILL);
    for (const auto until = clock::now() + std::chrono::minutes(2); mapped() > before / 2 && clock::now() < until;)
      std::this_thread::yield();
    stop = true;
    reader.join();
    CHECK(wrong == 0);
    CHECK(mapped() == before / 2);
    for (std::size_t i = 0; i < p.size(); i += 64_KiB) {
      const bool lives = i / 64_KiB % 2 == 0;
      CHECK(readable(p.data() + i, mode) == lives);
      if (lives) CHECK(p.data()[i] == std::byte{4});
    }
  }
}
