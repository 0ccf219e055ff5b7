// Graphs that arrive: over every transport, in both directions, between heaps of every size.
#include "channel/fixture.h"

using namespace channel_test;

namespace {
const std::vector<std::string> transports{"local", "shm", "tcp"};
}

TEST_CASE("a list arrives over every transport, in both directions") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  constexpr std::uint64_t many = sanitized ? 20000 : 60000;
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1000}, many}) {
    beside sender([&] { e.tx.send(make_list(e.from, n)); });
    const fm::ptr<node> there = e.rx.recv<node>();
    require_ok(sender);
    require_list(there, n);
    beside answer([&] { e.rx.send(there); });
    const fm::ptr<node> back = e.tx.recv<node>();
    require_ok(answer);
    require_list(back, n);
  }
  const fm::channel_stats s = e.tx.stats();
  REQUIRE(s.graphs_sent == 4);
  REQUIRE(s.objects_sent == 1003 + many);
  REQUIRE(s.objects_received == 1003 + many);
  // 24 bytes an object and hardly more: nothing travels beside the objects.
  REQUIRE(s.wire_bytes_sent < (1003 + many) * 24 * 11 / 10);
  REQUIRE(s.wire_bytes_sent >= (1003 + many) * 24);
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("any graph arrives as it is: cycles, what is shared, null references, strings") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  for (const std::uint32_t n : {1u, 2u, 17u, 3000u}) {
    edges expected;
    const fm::ptr<vertex> root = make_graph(e.from, n, 77 + n, expected);
    beside sender([&] { e.tx.send(root); });
    const fm::ptr<vertex> there = e.rx.recv<vertex>();
    require_ok(sender);
    require_graph(there, expected);
  }
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("a graph does not depend on how small parts and window are") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport, {.window = 4_KiB, .window_parts = 4, .part = 1_KiB});
  edges expected;
  const fm::ptr<vertex> root = make_graph(e.from, 1500, 5, expected);
  beside sender([&] { e.tx.send(root); });
  const fm::ptr<vertex> there = e.rx.recv<vertex>();
  require_ok(sender);
  require_graph(there, expected);
  beside answer([&] { e.rx.send(there); });
  const fm::ptr<vertex> back = e.tx.recv<vertex>();
  require_ok(answer);
  require_graph(back, expected);
  REQUIRE(e.rx.stats().parts_sent > 50);
}

TEST_CASE("arrays of every length arrive, also those larger than a part") {
  ends e("tcp", {.window = 256_KiB, .part = 32_KiB}, small(16_MiB), small(16_MiB));
  for (const std::uint64_t n : {0u, 1u, 7u, 4095u, 4096u, 4097u, 300000u}) {
    const auto bytes = e.from.array<std::uint8_t>(n);
    {
      const fm::write_pin w = bytes.write();
      for (std::uint64_t i = 0; i < n; ++i) (*w)[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    }
    beside sender([&] { e.tx.send(bytes); });
    const auto there = e.rx.recv<std::uint8_t[]>();
    require_ok(sender);
    const fm::read_pin r = there.read();
    REQUIRE(r->size() == n);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < n; ++i) wrong += (*r)[i] != static_cast<std::uint8_t>(i * 7 + i / 256);
    REQUIRE(wrong == 0);
  }
  struct point {
    double x = 0, y = 0;
  };
  constexpr std::uint64_t points = 40000;
  const auto many = e.from.array<fm::ref<point>>(points);
  for (std::uint64_t i = 0; i < points; i += 2) {
    const auto p = e.from.make<point>({.x = static_cast<double>(i), .y = -static_cast<double>(i)});
    many.write()->data()[i] = p;
    if (i % 10 == 0) many.write()->data()[i + 1] = p;
  }
  beside sender([&] { e.tx.send(many); });
  const auto there = e.rx.recv<fm::ref<point>[]>();
  require_ok(sender);
  std::uint64_t wrong = 0;
  {
    const fm::read_pin r = there.read();
    REQUIRE(r->size() == points);
    for (std::uint64_t i = 0; i < points; i += 2) {
      wrong += (*r)[i]->x != static_cast<double>(i) || (*r)[i]->y != -static_cast<double>(i);
      wrong += i % 10 == 0 ? !((*r)[i + 1] == (*r)[i]) : bool((*r)[i + 1]);
    }
  }
  REQUIRE(wrong == 0);
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("small graphs go to and fro as messages, without waiting for verdicts") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  constexpr std::uint64_t rounds = 500;
  const fm::send_options quick{.until = fm::delivery::sent};
  beside server([&] {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::uint64_t id = e.rx.recv<node>()->id;
      e.rx.send(e.to.make<node>({.id = id * 2}), quick);
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    e.tx.send(e.from.make<node>({.id = i}), quick);
    wrong += e.tx.recv<node>()->id != 2 * i;
  }
  require_ok(server);
  REQUIRE(wrong == 0);
  e.tx.flush();
  e.rx.flush();
}

TEST_CASE("many graphs are under way at once, and arrive in order") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  constexpr std::uint64_t graphs = 400;
  beside sender([&] {
    for (std::uint64_t i = 0; i < graphs; ++i) e.tx.send(make_list(e.from, i + 1), {.until = fm::delivery::sent});
    e.tx.flush();
  });
  for (std::uint64_t i = 0; i < graphs; ++i) require_list(e.rx.recv<node>(), i + 1);
  require_ok(sender);
}

TEST_CASE("a graph is larger than both caches, and its objects are remote") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  agent at_sender, at_receiver;
  fm::heap_options from = small(1_MiB), to = small(1_MiB);
  if (transport != "shm") {
    from.agents = {at_sender.url()};
    to.agents = {at_receiver.url()};
  }
  from.segment = to.segment = 32_KiB;
  ends e(transport, {}, from, to);
  constexpr std::uint64_t n = 25000;  // 1.2 MiB of frames
  fm::ptr<node> head = make_list(e.from, n);
  REQUIRE(e.from.evict_all() == fm::errc::ok);
  beside sender([&] { e.tx.send(head); });
  const fm::ptr<node> there = e.rx.recv<node>();
  require_ok(sender);
  require_list(there, n);
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("what is remote is fetched many at once, ahead of being reached") {
  agent a;
  fm::heap_options from = small();
  from.agents = {a.url()};
  from.elastic = false;  // no neighbours: every object is fetched for itself
  ends e("local", {}, from, small());
  constexpr std::uint64_t n = 4000;
  const auto all = e.from.array<fm::ref<node>>(n);
  for (std::uint64_t i = 0; i < n; ++i) all.write()->data()[i] = e.from.make<node>({.id = i});
  REQUIRE(e.from.evict_all() == fm::errc::ok);
  const auto before = e.from.stats();
  beside sender([&] { e.tx.send(all); });
  const auto there = e.rx.recv<fm::ref<node>[]>();
  require_ok(sender);
  REQUIRE(there->data()[n - 1]->id == n - 1);
  const auto after = e.from.stats();
  REQUIRE(after.prefetches - before.prefetches > n * 9 / 10);
  REQUIRE(after.misses - before.misses < n / 10);
}

TEST_CASE("a tree is sent without looking anything up, and what is shared then arrives twice") {
  ends e("tcp");
  beside sender([&] { e.tx.send(make_list(e.from, 1000), {.acyclic = true}); });
  require_list(e.rx.recv<node>(), 1000);
  require_ok(sender);
  const auto leaf = e.from.make<node>({.id = 7});
  const auto root = e.from.make<node>({.id = 1, .next = leaf, .other = leaf});
  beside twice([&] { e.tx.send(root, {.acyclic = true}); });
  const auto there = e.rx.recv<node>();
  require_ok(twice);
  REQUIRE(there->next->id == 7);
  REQUIRE(there->other->id == 7);
  REQUIRE_FALSE(there->next->next);
  REQUIRE_FALSE(fm::ptr<node>(there->next) == fm::ptr<node>(there->other));
}

TEST_CASE("the elements of an array go without the array") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  constexpr std::uint64_t n = 1000;
  const auto all = e.from.array<fm::ref<node>>(n);
  const auto shared = e.from.make<node>({.id = 12345});
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i % 7 == 3) continue;
    const auto element = i % 7 == 5 ? shared : e.from.make<node>({.id = i, .next = shared});
    all.write()->data()[i] = element;
  }
  beside sender([&] { e.tx.send_each(all); });
  const std::vector<fm::ptr<node>> there = e.rx.recv_each<node>();
  require_ok(sender);
  REQUIRE(there.size() == n);
  const fm::ptr<node> common = there[5];
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i % 7 == 3)
      wrong += bool(there[i]);
    else if (i % 7 == 5)
      wrong += !(there[i] == common);
    else
      wrong += there[i]->id != i || !(fm::ptr<node>(there[i]->next) == common);
  }
  REQUIRE(wrong == 0);
  beside none([&] { e.rx.send_each(std::span<const fm::ptr<node>>()); });
  REQUIRE(e.tx.recv_each<node>().empty());
  require_ok(none);
  require_sound(e.to);
}

TEST_CASE("a receiver can ask what comes next before it takes it") {
  ends e("tcp");
  REQUIRE_FALSE(e.rx.readable());
  beside sender([&] {
    e.tx.send(e.from.make<node>({.id = 5}));
    e.tx.send(e.from.str("text"));
  });
  REQUIRE(e.rx.readable(std::chrono::minutes(10)));
  REQUIRE(e.rx.next_is<node>());
  REQUIRE_FALSE(e.rx.next_is<fm::string>());
  REQUIRE(e.rx.recv<node>()->id == 5);
  REQUIRE(e.rx.next_is<fm::string>(std::chrono::minutes(10)));
  REQUIRE(fm::string(e.rx.recv<fm::string>()) == "text");
  require_ok(sender);
}

TEST_CASE(
    "graphs are sent and received while cycles run without end, the caches are tiny and others change the heaps") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  fm::heap_options from = small(1_MiB), to = small(1_MiB);
  for (fm::heap_options* o : {&from, &to}) {
    o->segment = 32_KiB;
    o->collect_continuously = true;
    o->collect_share = 1;
  }
  ends e(transport, {.window = 64_KiB, .part = 4_KiB}, from, to);
  std::atomic<bool> over{false};
  const auto churn = [&over](fm::heap& h) {
    while (!over.load())
      if (make_list(h, 50)->id != 49) throw fm::error(fm::errc::corrupt, "a list of this thread");
  };
  beside a([&] { churn(e.from); }), b([&] { churn(e.to); });
  thrown failed;
  constexpr std::uint32_t rounds = sanitized ? 1 : 3, vertices = sanitized ? 400 : 2500;
  for (std::uint32_t round = 0; round < rounds && failed.code == fm::errc::ok; ++round) {
    edges expected;
    const fm::ptr<vertex> root = make_graph(e.from, vertices, 1000 + round, expected);
    beside sender([&] { e.tx.send(root, {.within = std::chrono::seconds(100)}); });
    fm::ptr<vertex> there;
    failed = thrown_by([&] { there = e.rx.recv<vertex>({.within = std::chrono::seconds(100)}); });
    const fm::errc sent = sender.join();
    INFO(sender.text());
    INFO(failed.text);
    if (sent != fm::errc::ok || failed.code != fm::errc::ok) {
      over = true;
      FAIL("a graph did not arrive");
    }
    require_graph(there, expected);
  }
  over = true;
  require_ok(a);
  require_ok(b);
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("handles for reading alone are sent, and received") {
  ends e("local");
  const fm::ptr<const node> list = make_list(e.from, 10);
  const std::vector<fm::ptr<const node>> roots{list, list};
  beside sender([&] {
    e.tx.send(list);
    e.tx.send_each(std::span<const fm::ptr<const node>>(roots));
    e.tx.send_async(list).wait();
  });
  const fm::ptr<const node> there = e.rx.recv<const node>();
  REQUIRE(there->id == 9);
  REQUIRE(e.rx.recv_each<const node>().size() == 2);
  require_list(e.rx.recv<node>(), 10);
  require_ok(sender);
}
