// Ends that do not agree: programs with other layouts of a type, in two processes; forged lengths, types and back-references in graphs
// that have begun well; heaps with agents of their own and without. Both ends get a typed error, nothing is left, both heaps are sound.
#include <atomic>

#include "channel/impostor.h"
#include "program/live_agent.h"

using namespace channel_test;
using fm::errc;
using namespace fm::detail::channel_wire;

namespace {

struct leaf {
  std::uint64_t value = 0;
};
struct branch {
  fm::ref<branch> left;
  fm::ref<leaf> a, b;
};

}  // namespace

TEST_CASE("programs with other layouts of a type refuse each other's graphs, both ends with both layouts") {
  const std::string transport = GENERATE("shm", "tcp");
  const std::string role = GENERATE("send", "receive");
  INFO(transport << " " << role);
  fm::heap here(small());
  fm::channel_listener listener(here, fresh_url(transport));
  const fm::test::temporary_folder d;
  agent_test::process child({CHANNEL_OTHER_CHILD, role, listener.url()}, d / "output");
  fm::channel c = listener.accept();
  thrown t;
  if (role == "send")
    t = thrown_by([&] { c.recv<node>(); });
  else
    t = thrown_by([&] { c.send(make_list(here, 100)); });
  INFO(t.text);
  REQUIRE(t.code == errc::layout_mismatch);
  REQUIRE(t.text.find("{0: f32, 8: ref<") != std::string::npos);
  REQUIRE(t.text.find("{0: u64, 8: ref<") != std::string::npos);
  // It is the same for it, its heap verifies with nothing left; and the channel can still be used.
  if (role == "send")
    REQUIRE(c.recv<double[]>().read()->size() == 3);
  else
    c.send(here.array<double>(3));
  REQUIRE(child.end(0) == 0);
  REQUIRE(objects_left(here) == 0);
  require_sound(here);
}

TEST_CASE("forged lengths, types and back-references end a graph that has begun well, and its sender is told") {
  struct forgery {
    const char* what;
    errc expected;
    std::vector<std::uint64_t> words;
  };
  // Root: left is object 1, a is 2, b is 3. Object 1 comes next, and is what is wrong.
  const std::vector<forgery> all{
      {"a reference far ahead", errc::bad_frame, {1000, 0, 0, 7, 8}},
      {"a reference to what nobody can have", errc::bad_frame, {~std::uint64_t{0}, 0, 0, 7, 8}},
      {"a back-reference to a root that is of another type", errc::bad_frame, {0, 1, 0, 7, 8}},
      {"a back-reference to what has not come and is of another type", errc::bad_frame, {3, 0, 0, 7, 8}},
      {"too little", errc::bad_frame, {0, 0, 0, 7}},
      {"too much", errc::bad_frame, {0, 0, 0, 7, 8, 9}},
  };
  for (const forgery& f : all) {
    INFO(f.what);
    deceived d;
    REQUIRE(d.sender.part<branch>(0, flag_first, {2, 3, 4}) == errc::ok);
    REQUIRE(d.sender.part<branch>(1, flag_last, f.words, 4) == errc::ok);
    const thrown t = thrown_by([&] { d.rx.recv<branch>(); });
    INFO(t.text);
    REQUIRE(t.code == f.expected);
    REQUIRE(d.sender.verdict(1) == f.expected);
    REQUIRE(thrown_by([&] { d.rx.recv<branch>(); }).code == errc::bad_frame);  // it is not heard again
    d.require_clean();
  }
}

TEST_CASE("a forged length is refused at once, and the channel goes on") {
  deceived d;
  std::uint64_t sequence = 0, graph = 0;
  for (const std::uint64_t length : {~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{1} << 32}) {
    INFO(length);
    REQUIRE(d.sender.part<double[]>(sequence++, flag_first, {length, 1, 2}, 0, ++graph) == errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<double[]>(); }).code == errc::too_large);
    REQUIRE(d.sender.verdict(graph) == errc::too_large);
    REQUIRE(d.sender.part<double[]>(sequence++, flag_last, {3}, 1, graph) == errc::ok);  // what is left of it
  }
  REQUIRE(d.sender.part<double[]>(sequence++, flag_first | flag_last, {2, 1, 2}, 1, ++graph) == errc::ok);
  REQUIRE(d.rx.recv<double[]>().read()->size() == 2);
  REQUIRE(d.sender.verdict(graph) == errc::ok);
  d.require_clean();
}

TEST_CASE("refusals, deadlines and limits leave nothing behind on agents either") {
  const std::string transport = GENERATE("shm", "tcp");
  const std::string with_agents = GENERATE("at the sender", "at the receiver");
  INFO(transport << ", an agent " << with_agents);
  agent a;
  fm::heap_options from = small(2_MiB), to = small(2_MiB);
  (with_agents == "at the sender" ? from : to).agents = {a.url()};
  ends e(transport, {.window = 64_KiB, .window_parts = 8, .part = 8_KiB, .objects_max = 4000}, from, to);
  const auto fits = make_list(e.from, 3000);
  const auto large = make_list(e.from, 5000);
  thrown sent;
  {
    beside sender([&] { sent = thrown_by([&] { e.tx.send(large); }); });
    REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::too_large);
    require_ok(sender);
    REQUIRE(sent.code == errc::too_large);
  }
  {
    beside sender([&] { sent = thrown_by([&] { e.tx.send(large, {.objects_max = 2000}); }); });
    REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::too_large);
    require_ok(sender);
    REQUIRE(sent.code == errc::too_large);
  }
  // Nobody reads, until the sender's time is over.
  REQUIRE(thrown_by([&] { e.tx.send(fits, {.within = std::chrono::milliseconds(100)}); }).code == errc::timed_out);
  REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::timed_out);
  beside sender([&] { e.tx.send(fits); });
  require_list(e.rx.recv<node>(), 3000);
  require_ok(sender);
  REQUIRE(objects_left(e.to) == 0);
  REQUIRE(objects_left(e.from) == 8000);
  require_sound(e.from);
  require_sound(e.to);
}
