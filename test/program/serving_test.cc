// The real agent while it serves heaps: what it announces and tells, how it ends, what a heap sees when it is killed, is
// full, or refuses, and that clients that do not follow the protocol harm nobody else.
#include <farmem/farmem.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "fabric/raw_client.h"
#include "live_agent.h"
#include "os/os.h"
#include "support/await.h"

using namespace agent_test;
using namespace fm::literals;
using namespace std::chrono_literals;

namespace {

struct record {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 12> words{};
};
constexpr std::uint64_t records = 15'000;  // more than the cache holds

fm::heap_options small(const std::string& url) {
  fm::heap_options o;
  o.cache = 1_MiB;
  o.agents = {url};
  o.name = "serving-test";
  o.segment = 64_KiB;
  o.elastic = false;  // then an object is resident only if it was asked for
  o.reconnect_within = 300ms;
  o.memory_within = 5s;
  return o;
}
record numbered(std::uint64_t i) {
  record r{.id = i};
  for (std::size_t k = 0; k < r.words.size(); ++k) r.words[k] = i * 31 + k;
  return r;
}
std::vector<fm::ptr<record>> fill(fm::heap& h) {
  std::vector<fm::ptr<record>> all;
  for (std::uint64_t i = 0; i < records; ++i) all.push_back(h.make<record>(numbered(i)));
  return all;
}
/// An allocation that will be refused waits so long first.
fm::heap_options impatient(const std::string& url) {
  auto o = small(url);
  o.memory_within = 2s;
  return o;
}
/// Makes records until one is refused; what the error said.
fm::errc refused_with(fm::heap& h, std::vector<fm::ptr<record>>& all) {
  try {
    for (std::uint64_t i = 0; i < 200'000; ++i) all.push_back(h.make<record>(numbered(i)));
  } catch (const fm::error& e) {
    INFO(e.what());
    return e.code();
  }
  return fm::errc::ok;
}
template <class Open>
std::pair<fm::errc, std::string> error_of(const Open& open) {
  try {
    open();
  } catch (const fm::error& e) {
    return {e.code(), e.what()};
  }
  return {fm::errc::ok, ""};
}

/// Takes all free descriptors away from a process that opens none meanwhile, until it goes.
class no_descriptors {
 public:
  explicit no_descriptors(pid_t of) : of_(of) {
    rlimit none{};
    const std::string open = "/proc/" + std::to_string(of) + "/fd/";
    while (std::filesystem::exists(std::filesystem::symlink_status(open + std::to_string(none.rlim_cur))))
      ++none.rlim_cur;
    REQUIRE(::prlimit(of_, RLIMIT_NOFILE, nullptr, &before_) == 0);
    none.rlim_max = before_.rlim_max;
    REQUIRE(::prlimit(of_, RLIMIT_NOFILE, &none, nullptr) == 0);
  }
  ~no_descriptors() { ::prlimit(of_, RLIMIT_NOFILE, &before_, nullptr); }
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;

 private:
  const pid_t of_;
  rlimit before_{};
};
/// How often a thread of a process has gone to sleep.
std::uint64_t sleeps_of(pid_t process, const std::string& thread) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    if (text_of(task.path() / "comm") != thread + "\n") continue;
    const std::string status = text_of(task.path() / "status"), key = "\nvoluntary_ctxt_switches:";
    return std::stoull(status.substr(status.find(key) + key.size()));
  }
  return 0;
}

const std::vector<std::string> modest{"--memory", "64MiB", "--region", "256KiB"};

}  // namespace

TEST_CASE("a heap on a running agent reads back what it evicted, and the agent ends cleanly", "[agent]") {
  live_agent a(modest);
  CHECK(a.urls[0].starts_with("tcp://127."));
  CHECK_FALSE(a.urls[0].ends_with(":0"));
  CHECK(a.urls[1] == a.shm());
  CHECK(a.status().find(R"("totals":{"heaps":0,)") != std::string::npos);
  for (const std::string scheme : {"shm", "tcp"}) {
    INFO(scheme);
    fm::heap h(small(a.url(scheme)));
    const auto all = fill(h);
    REQUIRE(h.evict_all() == fm::errc::ok);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < records; ++i) {
      fm::scope s;
      const record* r = all[i].get(s);
      wrong += r->id != i || r->words != numbered(i).words;
    }
    CHECK(wrong == 0);
    CHECK(h.stats().misses >= records);
    const std::string told = a.status();
    INFO(told);
    CHECK(told.find(R"("totals":{"heaps":1,)") != std::string::npos);
    CHECK(told.find(R"("name":"serving-test")") != std::string::npos);
    CHECK(told.find(R"("objects":15000)") != std::string::npos);
  }
  CHECK(a.status().find(R"("totals":{"heaps":0,)") != std::string::npos);
  const int code = a.program->end(SIGTERM);
  INFO(text_of(a.log()));
  CHECK(code == 0);
  CHECK_FALSE(std::filesystem::exists(a.admin()));
  CHECK_FALSE(std::filesystem::exists(a.where / "agent.sock"));
}

TEST_CASE("regions are shared memory only where shm:// is served, and in huge pages elsewhere", "[agent]") {
  const bool serves_shm = GENERATE(true, false);
  const live_agent a({"--memory", "64MiB", "--region", "2MiB"}, serves_shm);
  fm::heap h(small(a.url("tcp")));
  const auto all = fill(h);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const std::uint64_t shared = fm::os::resident_memory_of(a.program->id()).shared_bytes;
  CAPTURE(serves_shm, shared);
  CHECK((shared >= 1_MiB) == serves_shm);
  if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) {
    const std::string maps = text_of("/proc/" + std::to_string(a.program->id()) + "/smaps");
    CHECK((maps.find(" hg") == std::string::npos) == serves_shm);
  }
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < records; ++i) wrong += all[i]->words != numbered(i).words;
  CHECK(wrong == 0);
}

TEST_CASE("names that clients chose stay in their line, of the log and of the status", "[agent]") {
  live_agent a(modest);
  const std::string name = "a\nforged\x1b[31m\xff\x9b\"\\b";
  auto o = small(a.url("tcp"));
  o.name = name;
  fm::heap h(o);
  fm::pool_options po;
  po.agents = {a.url("tcp")};
  po.name = name;
  po.tenant = fm::pool_tenant::random();
  fm::pool p(po);
  fm::paged_options so;
  so.agents = {a.url("tcp")};
  so.name = name;
  so.capacity = 1_MiB;
  so.local = 512_KiB;
  so.block = 16_KiB;
  std::optional<fm::paged> s;
  if (std::getenv("FARMEM_TEST_WITHOUT_USERFAULTFD") == nullptr) s.emplace(so);
  const std::string told = a.status();
  INFO(told);
  CHECK(told.find("a?forged?[31m????b") != std::string::npos);
  const auto printable = [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\n'; };
  CHECK(std::all_of(told.begin(), told.end(), printable));
  const std::string log = text_of(a.log());
  INFO(log);
  CHECK(log.find("a?forged?[31m????b") != std::string::npos);
  CHECK(log.find("\nforged") == std::string::npos);
  CHECK(std::all_of(log.begin(), log.end(), printable));
}

TEST_CASE("a heap whose agent was killed says agent_lost, and keeps what is resident", "[agent]") {
  const std::string scheme = GENERATE("tcp", "shm");
  INFO(scheme);
  live_agent a(modest);
  fm::time_point closing;
  {
    auto o = impatient(a.url(scheme));
    o.access_within = 10min;  // closing waits for no answer of a lost agent, or it ends long after the guard below
    fm::heap h(o);
    auto all = fill(h);
    REQUIRE(h.evict_all() == fm::errc::ok);
    const auto pin = all[7].read();  // resident, and stays
    REQUIRE(a.program->end(SIGKILL) == -SIGKILL);
    const auto give_up = fm::clock::now() + 5min;
    // Over shm:// regions that are mapped stay readable until the heap has given the agent up.
    fm::errc code = fm::errc::ok;
    for (std::uint64_t i = 100; code == fm::errc::ok && fm::clock::now() < give_up; i = 100 + (i + 1) % (records - 100))
      try {
        if (all[i]->id != i) code = fm::errc::corrupt;
      } catch (const fm::error& e) {
        code = e.code();
      }
    CHECK(code == fm::errc::agent_lost);
    CHECK(pin->id == 7);
    CHECK(all[7]->words == numbered(7).words);
    CHECK(refused_with(h, all) == fm::errc::agent_lost);
    closing = fm::clock::now();
  }
  CHECK(fm::clock::now() - closing < 5min);
}

TEST_CASE("an agent that is full, and a quota, reach the allocation as what they are", "[agent]") {
  const std::string scheme = GENERATE("tcp", "shm");
  INFO(scheme);
  live_agent a({"--memory", "3MiB", "--region", "64KiB", "--quota", "2MiB"});
  {
    auto o = impatient(a.url(scheme));
    o.quota = 1_MiB;
    fm::heap h(o);
    std::vector<fm::ptr<record>> all;
    CHECK(refused_with(h, all) == fm::errc::quota_exceeded);
    CHECK(all.size() > 5'000);
    CHECK(all.back()->id == all.size() - 1);  // resident, since it cannot leave
  }
  const auto [too_much, text] = error_of([&] {
    auto o = impatient(a.url(scheme));
    o.quota = 100_MiB;
    fm::heap h(o);
  });
  CHECK(too_much == fm::errc::quota_exceeded);
  {
    fm::heap first(impatient(a.url(scheme))), second(impatient(a.url(scheme)));
    std::vector<fm::ptr<record>> mine, theirs;
    CHECK(refused_with(first, mine) == fm::errc::quota_exceeded);
    CHECK(refused_with(second, theirs) == fm::errc::agent_full);
    CHECK(mine.back()->id == mine.size() - 1);
    CHECK(theirs.back()->id == theirs.size() - 1);
  }
}

TEST_CASE("an agent that is not there is unreachable, by name", "[agent]") {
  live_agent a(modest);
  REQUIRE(a.program->end(SIGKILL) == -SIGKILL);
  for (const std::string& url : a.urls) {
    const auto begin = fm::clock::now();
    auto o = small(url);
    o.connect_within = 300ms;
    const auto [code, text] = error_of([&] { fm::heap h(o); });
    CHECK(code == fm::errc::unreachable);
    CHECK(text.find(url) != std::string::npos);
    CHECK(fm::clock::now() - begin < 5min);  // a guard
  }
}

TEST_CASE("two agents do not serve one address", "[agent]") {
  live_agent a(modest);
  for (const std::string& url : a.urls) {
    const std::string to = a.where / "second";
    process second({FARMEM_AGENT, "--listen", url}, to);
    CHECK(second.end() == 1);
    CHECK(text_of(to).find(url) != std::string::npos);
  }
  fm::heap h(small(a.url("shm")));
  CHECK(h.make<record>(numbered(3))->id == 3);
}

TEST_CASE("corrupt and truncated frames cost their own connection only", "[agent]") {
  using namespace fm::fabric;
  live_agent a(modest);
  fm::heap over_tcp(small(a.url("tcp"))), over_shm(small(a.url("shm")));
  auto one = fill(over_tcp), two = fill(over_shm);
  for (const std::string& url : a.urls) {
    INFO(url);
    {
      test::raw_client noise(url);
      std::array<std::byte, 300> bytes;
      bytes.fill(std::byte{0x5a});
      noise.send(bytes);
      CHECK(noise.ended());
    }
    {
      test::raw_client cut(url);  // in the middle of a header
      cut.greet();
      const auto h = wire::make_header(wire::frame_type::message, 100);
      cut.send(std::as_bytes(std::span(&h, 1)).first(17));
      cut.finish_sending();
      CHECK(cut.ended());
    }
    {
      test::raw_client huge(url);
      huge.greet();
      huge.send(wire::make_header(wire::frame_type::message, ~0u));
      CHECK(huge.ended());
    }
    {
      test::raw_client no_message(url);  // a good frame, with a message that the store does not know
      no_message.greet();
      const std::array<std::byte, 8> body{std::byte{0xff}, std::byte{0xff}};
      no_message.send(wire::make_header(wire::frame_type::message, sizeof body));
      no_message.send(body);
      CHECK(no_message.ended());
    }
  }
  for (fm::heap* h : {&over_tcp, &over_shm}) {
    REQUIRE(h->evict_all() == fm::errc::ok);
    CHECK(h->stats().reconnects == 0);
  }
  CHECK(one[99]->id == 99);
  CHECK(two[99]->id == 99);
}

TEST_CASE("an agent without a free descriptor rests and serves on, and answers when it has one", "[agent]") {
  live_agent a(modest);
  fm::heap h(small(a.url("tcp")));
  const auto all = fill(h);
  REQUIRE(h.evict_all() == fm::errc::ok);
  const fm::os::descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  a.admin().copy(at.sun_path, sizeof at.sun_path - 1);
  const std::string question = "status\n";
  {
    const no_descriptors meanwhile(a.program->id());
    const std::uint64_t before = sleeps_of(a.program->id(), "fm-admin");
    REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::send(client.get(), question.data(), question.size(), MSG_NOSIGNAL) == ssize_t(question.size()));
    // The client is there all the while, and would wake a thread that waits for one.
    std::uint64_t now = before;  // 0: the agent has ended
    CHECK(fm::test::await([&] { return (now = sleeps_of(a.program->id(), "fm-admin")) >= before + 3 || now == 0; }));
    REQUIRE(now != 0);
    pollfd answered{client.get(), POLLIN, 0};
    CHECK(::poll(&answered, 1, 0) == 0);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < records; ++i) wrong += all[i]->id != i;
    CHECK(wrong == 0);
  }
  std::string told;
  for (pollfd p{client.get(), POLLIN, 0}; ::poll(&p, 1, wait_ms) == 1;) {
    std::array<char, 4096> some;
    const ssize_t n = ::recv(client.get(), some.data(), some.size(), 0);
    if (n <= 0) break;
    told.append(some.data(), std::size_t(n));
  }
  CHECK(told.find(R"("totals":{"heaps":1,)") != std::string::npos);
  CHECK(a.status().find(R"("totals":{"heaps":1,)") != std::string::npos);
  CHECK(h.stats().reconnects == 0);
}
