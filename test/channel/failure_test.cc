// What goes wrong, and that both ends hear of it in time: processes that die, receivers that do not read, senders that break the
// rules, graphs that are too large or not what was wanted. Afterwards nothing is left, and both heaps are sound.
#include "channel/path/channel_messages.h"
#include <signal.h>

#include <atomic>
#include <optional>

#include "channel/impostor.h"
#include "program/live_agent.h"

using namespace channel_test;
using fm::errc;
using namespace fm::detail::channel_wire;

namespace {

const std::vector<std::string> transports{"local", "shm", "tcp"};

struct other_type {
  float value = 0;
  fm::ref<other_type> next;
};

}  // namespace

TEST_CASE("a sender that is killed half way leaves nothing behind, and the receiver hears of it") {
  const std::string transport = GENERATE("shm", "tcp");
  INFO(transport);
  fm::heap to(small());
  fm::channel_listener listener(to, fresh_url(transport), {.window = 256_KiB, .part = 32_KiB});
  const fm::test::temporary_folder d;
  agent_test::process child({CHANNEL_CHILD, "send", listener.url(), "100000"}, d / "output");
  fm::channel rx = listener.accept();
  REQUIRE(rx.readable(std::chrono::minutes(10)));  // a part is here, and there is no credit for the whole
  REQUIRE(child.end(SIGKILL) == -SIGKILL);
  const thrown t = thrown_by([&] { rx.recv<node>(); });
  INFO(t.text);
  REQUIRE(t.code == errc::disconnected);
  REQUIRE(thrown_by([&] { rx.send(to.make<node>({.id = 1})); }).code == errc::disconnected);
  REQUIRE(objects_left(to) == 0);
  require_sound(to);
}

TEST_CASE("a receiver that is killed ends what is sent to it") {
  const std::string transport = GENERATE("shm", "tcp");
  INFO(transport);
  fm::heap from(small());
  fm::channel_listener listener(from, fresh_url(transport));
  const fm::test::temporary_folder d;
  agent_test::process child({CHANNEL_CHILD, "receive", listener.url(), "0"}, d / "output");
  fm::channel tx = listener.accept();
  const auto list = make_list(from, 20000);
  tx.send(list);
  std::atomic<std::uint32_t> sent{0};
  beside sender([&] {
    for (;;) {
      tx.send(list);
      sent.fetch_add(1);
      sent.notify_one();
    }
  });
  sent.wait(0);
  REQUIRE(child.end(SIGKILL) == -SIGKILL);
  const errc e = sender.join();
  INFO(sender.text());
  REQUIRE(e == errc::disconnected);
  require_sound(from);
}

TEST_CASE("a receiver that never reads stops the sender at its deadline, and can go on later") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport, narrow);
  const auto large = make_list(e.from, 5000);
  const thrown t = thrown_by([&] { e.tx.send(large, {.within = std::chrono::milliseconds(200)}); });
  INFO(t.text);
  REQUIRE(t.code == errc::timed_out);
  REQUIRE(t.text.find("no credit") != std::string::npos);
  REQUIRE(e.tx.stats().wire_bytes_sent < 20_KiB);  // the window
  // A second one does not even begin.
  REQUIRE(thrown_by([&] { e.tx.send(large, {.within = std::chrono::milliseconds(50)}); }).code == errc::timed_out);
  const thrown there = thrown_by([&] { e.rx.recv<node>(); });
  INFO(there.text);
  REQUIRE(there.code == errc::timed_out);
  REQUIRE(there.text.find("gave graph") != std::string::npos);
  beside again([&] { e.tx.send(large); });
  require_list(e.rx.recv<node>(), 5000);
  require_ok(again);
  REQUIRE(e.tx.stats().waits_for_credit > 0);
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("nothing that comes is timed_out, and costs nothing") {
  ends e("tcp");
  REQUIRE(thrown_by([&] { e.rx.recv<node>({.within = std::chrono::milliseconds(30)}); }).code == errc::timed_out);
  REQUIRE(thrown_by([&] { e.tx.send(e.from.make<node>({.id = 4}), {.within = std::chrono::milliseconds(30)}); }).code ==
          errc::timed_out);
  REQUIRE(e.rx.recv<node>()->id == 4);  // it was only not accepted yet
  e.tx.flush();
}

TEST_CASE("limits of the sender and of the receiver end a graph with the same error at both ends") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  fm::channel_options o = narrow;
  o.objects_max = 3000;
  o.bytes_max = 2000 * sizeof(node);
  ends e(transport, o);
  const auto refused_by_receiver = [&](std::uint64_t n) {
    thrown sent;
    beside sender([&] { sent = thrown_by([&] { e.tx.send(make_list(e.from, n)); }); });
    const thrown received = thrown_by([&] { e.rx.recv<node>(); });
    require_ok(sender);
    INFO(sent.text);
    INFO(received.text);
    REQUIRE(received.code == errc::too_large);
    REQUIRE(sent.code == errc::too_large);
    REQUIRE(sent.text.find("refused") != std::string::npos);
  };
  refused_by_receiver(2001);
  refused_by_receiver(20000);
  const auto refused_by_sender = [&](const fm::send_options& s) {
    thrown sent;
    beside sender([&] { sent = thrown_by([&] { e.tx.send(make_list(e.from, 1000), s); }); });
    const thrown received = thrown_by([&] { e.rx.recv<node>(); });
    require_ok(sender);
    REQUIRE(received.code == errc::too_large);
    REQUIRE(received.text.find("the sender gave graph") != std::string::npos);
    REQUIRE(sent.code == errc::too_large);
  };
  refused_by_sender({.objects_max = 999});
  refused_by_sender({.bytes_max = 1000 * sizeof(node) - 1});
  beside fits([&] { e.tx.send(make_list(e.from, 1000), {.objects_max = 1000, .bytes_max = 1000 * sizeof(node)}); });
  require_list(e.rx.recv<node>(), 1000);
  require_ok(fits);
  REQUIRE(e.rx.stats().graphs_refused == 2);
  REQUIRE(objects_left(e.to) == 0);
  require_sound(e.to);
}

TEST_CASE("a cycle in a graph without cycles ends at a limit, at both ends") {
  ends e("tcp", narrow);
  const auto a = e.from.make<node>({.id = 1});
  const auto b = e.from.make<node>({.id = 2, .next = a});
  a.write()->next = b;
  thrown sent;
  beside sender([&] { sent = thrown_by([&] { e.tx.send(a, {.acyclic = true, .objects_max = 10000}); }); });
  const thrown received = thrown_by([&] { e.rx.recv<node>(); });
  require_ok(sender);
  INFO(sent.text);
  REQUIRE(sent.code == errc::too_large);
  REQUIRE(sent.text.find("without cycles") != std::string::npos);
  REQUIRE(received.code == errc::too_large);
  REQUIRE(objects_left(e.to) == 0);
  beside whole([&] { e.tx.send(a); });
  const auto there = e.rx.recv<node>();
  require_ok(whole);
  REQUIRE(fm::ptr<node>(there->next->next) == there);
}

TEST_CASE("a graph of another type is refused with both layouts, and the next one arrives") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport);
  for (int round = 0; round < 2; ++round) {
    thrown sent;
    beside sender([&] { sent = thrown_by([&] { e.tx.send(e.from.make<other_type>(1.5f)); }); });
    const thrown received = thrown_by([&] { e.rx.recv<node>(); });
    require_ok(sender);
    for (const thrown& t : {sent, received}) {
      INFO(t.text);
      REQUIRE(t.code == errc::layout_mismatch);
      REQUIRE(t.text.find("0: f32, 8: ref<") != std::string::npos);
      REQUIRE(t.text.find("0: u64, 8: ref<") != std::string::npos);
    }
    beside again([&] { e.tx.send(e.from.make<node>({.id = 9})); });
    REQUIRE(e.rx.recv<node>()->id == 9);
    require_ok(again);
  }
  thrown sent;
  beside one([&] { sent = thrown_by([&] { e.tx.send(e.from.make<node>({.id = 1})); }); });
  REQUIRE(thrown_by([&] { e.rx.recv_each<node>(); }).code == errc::layout_mismatch);
  require_ok(one);
  REQUIRE(sent.code == errc::layout_mismatch);
}

TEST_CASE("an object that is too large for the receiver's heap is refused, and the sender stops") {
  fm::heap_options tiny = small(1_MiB);
  tiny.segment = 32_KiB;
  ends e("tcp", narrow, small(32_MiB), tiny);
  thrown sent;
  beside sender([&] { sent = thrown_by([&] { e.tx.send(e.from.array<double>(100000)); }); });
  const thrown received = thrown_by([&] { e.rx.recv<double[]>(); });
  require_ok(sender);
  REQUIRE(received.code == errc::too_large);
  REQUIRE(sent.code == errc::too_large);
  REQUIRE(e.tx.stats().wire_bytes_sent < 100000);  // not all of it went
  beside fits([&] { e.tx.send(e.from.array<double>(1000)); });
  REQUIRE(e.rx.recv<double[]>()->size() == 1000);
  require_ok(fits);
}

TEST_CASE("what is sent without waiting for it is refused later") {
  ends e("tcp");
  e.tx.send(e.from.make<other_type>(1.0f), {.until = fm::delivery::sent});
  e.tx.send(e.from.make<node>({.id = 2}), {.until = fm::delivery::sent});
  REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::layout_mismatch);
  REQUIRE(e.rx.recv<node>()->id == 2);
  REQUIRE(thrown_by([&] { e.tx.flush(); }).code == errc::layout_mismatch);
  e.tx.flush();
}

TEST_CASE("null handles, open scopes and ends of nothing are told apart") {
  ends e("local");
  REQUIRE(thrown_by([&] { e.tx.send(fm::ptr<node>()); }).code == errc::null_handle);
  REQUIRE(thrown_by([&] { fm::channel().recv<node>(); }).code == errc::null_handle);
  const auto p = e.from.make<node>({.id = 1});
  {
    const fm::scope s;  // shows more than can be kept in place while its thread waits
    for (std::uint32_t i = 0; i <= fm::detail::handed_out_max; ++i)
      REQUIRE(e.from.make<node>({.id = i}).get(s)->id == i);
    REQUIRE(thrown_by([&] { e.tx.send(p); }).code == errc::scope_misuse);
    REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::scope_misuse);
  }
  REQUIRE(thrown_by([&] { fm::channel::connect(e.from, "local:nobody"); }).code == errc::unreachable);
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, e.listener.url()); }).code == errc::invalid_argument);
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, "local:x", {.part = 12}); }).code == errc::invalid_argument);
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, "local:x", {.window = 12}); }).code == errc::invalid_argument);
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, "local:x", {.window_parts = 65}); }).code ==
          errc::invalid_argument);
  REQUIRE(thrown_by([&] { e.listener.accept(std::chrono::milliseconds(10)); }).code == errc::timed_out);
  e.listener.close();
  REQUIRE(thrown_by([&] { e.listener.accept(); }).code == errc::cancelled);
  REQUIRE(thrown_by([&] { fm::channel::connect(e.from, e.listener.url()); }).code == errc::unreachable);
}

TEST_CASE("a channel that is closed says so at both ends, and what had arrived can still be taken") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  ends e(transport, {.linger = fm::duration{}});
  const fm::send_options quick{.until = fm::delivery::sent};
  e.tx.send(e.from.make<node>({.id = 1}), quick);
  REQUIRE(e.rx.readable(std::chrono::minutes(10)));
  e.tx.close();
  REQUIRE(thrown_by([&] { e.tx.send(e.from.make<node>({.id = 1})); }).code == errc::cancelled);
  REQUIRE(e.rx.recv<node>()->id == 1);
  REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::disconnected);
  // And from the other side.
  fm::channel tx = fm::channel::connect(e.from, e.listener.url());
  { const fm::channel rx = e.listener.accept(); }
  REQUIRE(thrown_by([&] { tx.recv<node>(); }).code == errc::disconnected);
}

TEST_CASE("channels live on when their listener is gone") {
  const std::string transport = GENERATE_COPY(from_range(transports));
  INFO(transport);
  fm::heap from(small()), to(small());
  auto listener = std::make_unique<fm::channel_listener>(to, fresh_url(transport));
  fm::channel tx = fm::channel::connect(from, listener->url());
  fm::channel rx = listener->accept();
  fm::channel never = fm::channel::connect(from, listener->url());  // and nobody accepts it
  listener.reset();
  beside sender([&] { tx.send(make_list(from, 100)); });
  require_list(rx.recv<node>(), 100);
  require_ok(sender);
  REQUIRE(thrown_by([&] { never.recv<node>(); }).code == errc::disconnected);
}

TEST_CASE("forged parts cost the sender its connection, and the receiver nothing") {
  SECTION("a reference to what is not there") {
    deceived d;
    REQUIRE(d.sender.part(0, flag_first | flag_last, {1, 9, 0}, 1) == errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    REQUIRE(d.sender.part(1, flag_first | flag_last, {1, 0, 0}, 1, 2) != errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("less than a graph") {
    deceived d;
    REQUIRE(d.sender.part(0, flag_first, {1, 2}) == errc::ok);
    REQUIRE(d.sender.part(1, flag_last, {0}, 2) == errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("a part of another graph") {
    deceived d;
    REQUIRE(d.sender.part(0, flag_first, {1, 2}) == errc::ok);
    REQUIRE(d.sender.part(1, flag_last, {0}, 2, 7) == errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("no beginning") {
    deceived d;
    REQUIRE(d.sender.part(0, flag_last, {1, 0, 0}, 1) == errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("a repeated part") {
    deceived d;
    REQUIRE(d.sender.part(0, flag_first, {1, 2}) == errc::ok);
    REQUIRE(d.sender.part(0, flag_first, {1, 2}) != errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("a part far ahead") {
    deceived d;
    REQUIRE(d.sender.part(1000, flag_first, {1, 0, 0}) != errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("more than the window") {
    deceived d;
    errc e = errc::ok;
    std::uint64_t parts = 0;
    for (; e == errc::ok && parts < 100; ++parts)
      e = d.sender.part(parts, parts == 0 ? flag_first : 0, std::vector<std::uint64_t>(500));
    REQUIRE(e != errc::ok);
    REQUIRE(parts <= 5);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    d.require_clean();
  }
  SECTION("credit and verdicts for what was never sent") {
    deceived d;
    head h = make(kind::credit);
    h.a = 1;
    REQUIRE(d.sender.say(h) != errc::ok);
    REQUIRE(thrown_by([&] { d.rx.recv<node>(); }).code == errc::bad_frame);
    deceived other;
    h = make(kind::verdict, 1);
    REQUIRE(other.sender.say(h) != errc::ok);
    REQUIRE(thrown_by([&] { other.rx.send(other.to.make<node>({.id = 1})); }).code == errc::bad_frame);
  }
}

TEST_CASE("a schema that nobody can describe is refused as well") {
  deceived d;
  auto h = make(kind::part, 1);
  h.flags = flag_first | flag_last;
  h.b = 1;
  REQUIRE(d.sender.say(h, {0x1234, 1, 0, 0}) == errc::ok);
  const thrown t = thrown_by([&] { d.rx.recv<node>({.within = std::chrono::milliseconds(200)}); });
  INFO(t.text);
  REQUIRE(t.code == errc::layout_mismatch);
  // It can still send what is known.
  REQUIRE(d.sender.part(1, flag_first | flag_last, {5, 0, 0}, 1, 2) == errc::ok);
  REQUIRE(d.rx.recv<node>()->id == 5);
}

TEST_CASE("a graph that stops coming is refused at the deadline, and what comes of it later is thrown away") {
  deceived d;
  REQUIRE(d.sender.part(0, flag_first, {1, 2, 0, 2}) == errc::ok);
  REQUIRE(thrown_by([&] { d.rx.recv<node>({.within = std::chrono::milliseconds(50)}); }).code == errc::timed_out);
  REQUIRE(d.sender.part(1, flag_last, {0, 0}, 2) == errc::ok);
  REQUIRE(d.sender.part(2, flag_first | flag_last, {5, 0, 0}, 1, 2) == errc::ok);
  REQUIRE(d.rx.recv<node>()->id == 5);
  d.require_clean();
}

TEST_CASE("a name in the process is its newest listener's, whenever channels of the one before end") {
  ends e("local");
  std::optional<fm::channel_listener> first(std::in_place, e.to, "local:one-name");
  std::optional<fm::channel> sends = fm::channel::connect(e.from, "local:one-name"), receives = first->accept();
  first.reset();
  fm::channel_listener second(e.to, "local:one-name");
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, "local:one-name"); }).code == errc::invalid_argument);
  sends.reset();
  receives.reset();
  fm::channel again = fm::channel::connect(e.from, "local:one-name");
  fm::channel there = second.accept();
  REQUIRE(thrown_by([&] { fm::channel_listener(e.to, "local:one-name"); }).code == errc::invalid_argument);
}
