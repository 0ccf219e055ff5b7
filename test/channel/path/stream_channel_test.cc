// Channels over tcp://, whose parts go over connections of their own: graphs that no buffer holds, senders that give up in the middle
// of a part, goodbyes that overtake what was sent, and another end that opens connections and says on them what it likes.
#include <sys/socket.h>

#include <atomic>

#include "channel/impostor.h"
#include "support/await.h"

using namespace channel_test;
using fm::errc;
using namespace fm::detail::channel_wire;

namespace {

/// More on the way than the kernel keeps for a receiver that does not read.
const fm::channel_options wide{.window = 64_MiB, .window_parts = 64, .part = 512_KiB};
const fm::heap_options large_heap = [] {
  fm::heap_options o = small(64_MiB);
  o.local_memory = 256_MiB;
  o.local_region = 4_MiB;
  return o;
}();

/// Says in one breath that a channel stands, and asks for the types of a graph that nobody has sent.
class hasty_listener final : public fm::fabric::service {
 public:
  errc connected(fm::fabric::peer&) noexcept override { return errc::ok; }
  void disconnected(fm::fabric::peer&) noexcept override {}
  errc message(fm::fabric::peer& p, std::span<const std::byte> payload, fm::fabric::answer& out) noexcept override {
    head h{};
    std::span<const std::byte> rest;
    if (decode(payload, h, rest) != errc::ok) return errc::bad_frame;
    if (h.kind == static_cast<std::uint8_t>(kind::describe)) described = true;
    if (h.kind != static_cast<std::uint8_t>(kind::hello)) return errc::ok;
    out.payload.assign(payload.begin(), payload.end());
    const head ask = make(kind::ask);
    return p.notify(std::as_bytes(std::span(&ask, 1))) ? errc::ok : errc::disconnected;
  }
  std::byte* memory(fm::fabric::peer&, const fm::fabric::remote&, std::uint64_t, fm::fabric::access) noexcept override {
    return nullptr;
  }
  void memory_done(fm::fabric::peer&, std::uint32_t) noexcept override {}
  errc stream(fm::fabric::peer&, std::uint16_t, fm::os::descriptor socket) noexcept override {
    sockets_.push_back(std::move(socket));
    return errc::ok;
  }
  std::atomic<bool> described{false};

 private:
  std::vector<fm::os::descriptor> sockets_;  // of the listener's thread
};

fm::ptr<fm::ref<double[]>[]> make_arrays(fm::heap& h, std::uint64_t arrays, std::uint64_t each) {
  const auto all = h.array<fm::ref<double[]>>(arrays);
  for (std::uint64_t i = 0; i < arrays; ++i) {
    const auto one = h.array<double>(each);
    {
      const fm::write_pin to = one.write();
      for (std::uint64_t k = 0; k < each; ++k) (*to)[k] = static_cast<double>(i * each + k);
    }
    const fm::write_pin to = all.write();
    (*to)[i] = one;
  }
  return all;
}

void require_arrays(const fm::ptr<fm::ref<double[]>[]>& all, std::uint64_t arrays, std::uint64_t each) {
  REQUIRE(all->size() == arrays);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < arrays; ++i) {
    const fm::ptr<double[]> one = [&] {
      const fm::read_pin from = all.read();
      return (*from)[i].root();
    }();
    const fm::read_pin from = one.read();
    if (from->size() != each) ++wrong;
    for (std::uint64_t k = 0; k < from->size(); ++k) wrong += (*from)[k] != static_cast<double>(i * each + k) ? 1 : 0;
  }
  REQUIRE(wrong == 0);
}

}  // namespace

TEST_CASE("arrays larger than a part come straight to where they belong, of every length") {
  ends e("tcp", {.window = 64_KiB, .part = 16_KiB}, large_heap, large_heap);
  for (const std::uint64_t each : {1u, 511u, 512u, 2046u, 2047u, 2048u, 5000u, 20'001u}) {
    beside sender([&] { e.tx.send(make_arrays(e.from, 9, each)); });
    require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 9, each);
    require_ok(sender);
  }
  require_sound(e.to);
}

TEST_CASE("large arrays are sent from where they lie and come straight to where they stay, and each byte is counted") {
  const std::uint64_t arrays = 100, each = 8 * 1024;  // of 64 KiB
  const std::uint64_t bytes = arrays * (8 + each * sizeof(double));
  const auto send = [&](const std::string& transport) {
    ends e(transport, {}, large_heap, large_heap);
    beside sender([&] { e.tx.send(make_arrays(e.from, arrays, each)); });
    require_arrays(e.rx.recv<fm::ref<double[]>[]>(), arrays, each);
    require_ok(sender);
    require_sound(e.from);
    require_sound(e.to);
    const fm::channel_stats s = e.tx.stats(), r = e.rx.stats();
    const std::uint64_t all = bytes + 8 + 8 + arrays * 8;  // the schema's hash, and the array of references
    REQUIRE(s.in_place_bytes_sent + s.copied_bytes_sent == all);
    REQUIRE(r.in_place_bytes_received + r.copied_bytes_received == all);
    return std::pair(s.in_place_bytes_sent, r.in_place_bytes_received);
  };
  const auto [sent, received] = send("tcp");
  REQUIRE(sent == bytes);
  REQUIRE(received >= bytes * 95 / 100);
  REQUIRE(send("shm") == std::pair(std::uint64_t{0}, std::uint64_t{0}));
  REQUIRE(send("local") == std::pair(std::uint64_t{0}, std::uint64_t{0}));
}

TEST_CASE("a sender that gives up in the middle of a part, more than once, leaves a channel that goes on") {
  ends e("tcp", wide, large_heap, large_heap);
  const auto all = make_arrays(e.from, 40, 100'000);  // 32 MB
  for (int given_up = 0, round = 0; given_up < 3; ++round) {
    REQUIRE(round < 100);
    const thrown t = thrown_by([&] { e.tx.send(all, {.within = std::chrono::milliseconds(300)}); });
    INFO(t.text);
    REQUIRE(t.code == errc::timed_out);
    if (t.text.find("could not be sent whole") == std::string::npos) {  // the system's buffers have grown as large
      require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 40, 100'000);
      continue;
    }
    ++given_up;
    // Nothing goes past what was given up.
    REQUIRE(thrown_by([&] { e.tx.send(make_arrays(e.from, 1, 1), {.within = std::chrono::milliseconds(50)}); }).code ==
            errc::timed_out);
    const thrown there = thrown_by([&] { e.rx.recv<fm::ref<double[]>[]>(); });
    INFO(there.text);
    REQUIRE(there.text.find("gave graph") != std::string::npos);
    beside again([&] { e.tx.send(all); });
    require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 40, 100'000);
    require_ok(again);
  }
  require_sound(e.to);
}

TEST_CASE("the end of a graph that could not be sent in time arrives all the same") {
  ends e("tcp", wide, large_heap, large_heap);
  const auto one = make_arrays(e.from, 1, 60'000);  // a part
  std::uint64_t sent = 0;
  thrown t;
  while (t.code == errc::ok) {
    t = thrown_by([&] { e.tx.send(one, {.until = fm::delivery::sent, .within = std::chrono::milliseconds(300)}); });
    ++sent;
    REQUIRE(sent < 64);
  }
  INFO(t.text);
  REQUIRE(t.code == errc::timed_out);
  REQUIRE(t.text.find("could not be sent whole") != std::string::npos);
  for (std::uint64_t i = 0; i < sent; ++i) require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 1, 60'000);
  beside again([&] { e.tx.send(one); });
  require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 1, 60'000);
  require_ok(again);
}

TEST_CASE("a refusal reaches a sender that waits in the middle of a part") {
  fm::channel_options o = wide;
  o.bytes_max = 1_MiB;
  ends e("tcp", o, large_heap, large_heap);
  const auto all = make_arrays(e.from, 40, 100'000);
  thrown sent;
  beside sender([&] { sent = thrown_by([&] { e.tx.send(all); }); });
  REQUIRE(thrown_by([&] { e.rx.recv<fm::ref<double[]>[]>(); }).code == errc::too_large);
  require_ok(sender);
  INFO(sent.text);
  REQUIRE(sent.code == errc::too_large);
  beside again([&] { e.tx.send(make_arrays(e.from, 1, 10)); });
  require_arrays(e.rx.recv<fm::ref<double[]>[]>(), 1, 10);
  require_ok(again);
}

TEST_CASE("what was sent before a goodbye is received after it") {
  ends e("tcp", {.linger = fm::duration{}});
  const fm::send_options quick{.until = fm::delivery::sent};
  for (std::uint64_t i = 0; i < 20; ++i) e.tx.send(e.from.make<node>({.id = i}), quick);
  e.tx.close();
  for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(e.rx.recv<node>()->id == i);
  REQUIRE(thrown_by([&] { e.rx.recv<node>(); }).code == errc::disconnected);
}

TEST_CASE("a goodbye that overtakes a large graph does not cost it") {
  ends e("tcp", {.window = 16_MiB, .linger = fm::duration{}}, large_heap, large_heap);
  const auto all = make_arrays(e.from, 20, 12'500);  // 2 MB
  for (int i = 0; i < 2; ++i) {
    fm::channel tx = fm::channel::connect(e.from, e.listener.url(), {.window = 16_MiB, .linger = fm::duration{}});
    fm::channel rx = e.listener.accept();
    beside sender([&] {
      tx.send(all, {.until = fm::delivery::sent});
      tx.close();
    });
    require_arrays(rx.recv<fm::ref<double[]>[]>(), 20, 12'500);
    require_ok(sender);
    REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::disconnected);
  }
}

TEST_CASE("who looks for graphs after a goodbye finds all of them, and then hears of it") {
  ends e("tcp", {.linger = fm::duration{}});
  const fm::send_options quick{.until = fm::delivery::sent};
  for (std::uint64_t i = 0; i < 20; ++i) e.tx.send(e.from.make<node>({.id = i}), quick);
  e.tx.close();
  std::uint64_t found = 0;
  const thrown end = thrown_by([&] {
    for (const auto give_up = fm::clock::now() + std::chrono::minutes(10); fm::clock::now() < give_up;) {
      if (!e.rx.readable()) continue;
      if (e.rx.recv<node>()->id != found) throw fm::error(errc::corrupt, "another node");
      ++found;
    }
  });
  INFO(end.text);
  REQUIRE(end.code == errc::disconnected);
  REQUIRE(found == 20);
}

TEST_CASE("what was accepted is known to be, however soon the receiver leaves") {
  fm::heap from(small()), to(small());
  fm::channel_listener listener(to, "tcp://127.0.0.1:0");
  for (std::uint64_t i = 0; i < 40; ++i) {
    fm::channel tx = fm::channel::connect(from, listener.url());
    fm::channel rx = listener.accept();
    beside receiver([&] {
      if (rx.recv<node>()->id != i) throw fm::error(errc::corrupt, "another node");
      rx.close();
    });
    const thrown sent = thrown_by([&] { tx.send(from.make<node>({.id = i})); });
    require_ok(receiver);
    INFO(sent.text);
    REQUIRE(sent.code == errc::ok);
  }
}

TEST_CASE("graphs that are refused as soon as they begin do not bring what comes after them out of step") {
  ends e("tcp", wide, large_heap, large_heap);
  const auto other = e.from.array<double>(60'000);  // a part of another type
  beside sender([&] {
    for (int i = 0; i < 60; ++i) {
      const thrown t = thrown_by([&] { e.tx.send(other, {.until = fm::delivery::sent}); });
      if (t.code != errc::ok && t.code != errc::layout_mismatch) throw fm::error(t.code, t.text);
    }
    for (thrown t{errc::layout_mismatch, {}}; t.code != errc::ok; t = thrown_by([&] { e.tx.flush(); }))
      if (t.code != errc::layout_mismatch) throw fm::error(t.code, t.text);
    e.tx.send(e.from.make<node>({.id = 5}));
  });
  std::uint64_t id = 0, refused = 0;
  thrown t;
  do {
    t = thrown_by([&] { id = e.rx.recv<node>()->id; });
    if (t.code == errc::layout_mismatch) ++refused;
  } while (t.code == errc::layout_mismatch);
  INFO(t.text);
  CHECK(t.code == errc::ok);
  if (t.code != errc::ok) e.rx.close();  // or the sender would wait
  require_ok(sender);
  REQUIRE(id == 5);
  REQUIRE(refused > 0);
}

TEST_CASE("ends whose connection has gone wait to be accepted, but not without bound") {
  fm::heap from(small()), to(small());
  fm::channel_listener listener(to, "tcp://127.0.0.1:0", {.channels_max = 4});
  const fm::send_options quick{.until = fm::delivery::sent};
  for (std::uint64_t i = 0; i < 20; ++i) {
    // One that was let go just now may count for a moment more.
    for (const auto give_up = fm::clock::now() + std::chrono::minutes(10);;) {
      try {
        fm::channel tx = fm::channel::connect(from, listener.url(), {.linger = fm::duration{}});
        tx.send(from.make<node>({.id = i}), quick);
        break;
      } catch (const fm::error& e) {
        if (fm::clock::now() > give_up) throw;
      }
    }
  }
  std::uint64_t last = 0, accepted = 0;
  while (thrown_by([&] { last = listener.accept(std::chrono::milliseconds(20)).recv<node>()->id; }).code == errc::ok)
    ++accepted;
  REQUIRE(accepted <= 5);  // the last one may have come when the first was accepted
  REQUIRE(accepted > 0);
  REQUIRE(last == 19);
}

TEST_CASE("parts with nothing in them do not keep a receiver beyond its deadline") {
  fm::heap to(small());
  fm::channel_listener listener{to, "tcp://127.0.0.1:0", narrow};
  impostor other{listener.url(), flag_stream, {0, 1}};
  fm::channel rx{listener.accept()};
  other.part(0, flag_first, {7});
  std::atomic<bool> enough{false};
  beside flood([&] {
    for (std::uint64_t i = 1; !enough; ++i) other.part(i, 0, {});
  });
  const thrown t = thrown_by([&] { rx.recv<node>({.within = std::chrono::milliseconds(100)}); });
  enough = true;
  rx.close();
  other.end_streams();
  INFO(t.text);
  REQUIRE(t.code == errc::timed_out);
}

TEST_CASE("verdicts over connections come when they are wanted") {
  ends e("tcp");
  const fm::send_options quick{.until = fm::delivery::sent};
  for (std::uint64_t i = 0; i < 5; ++i) e.tx.send(e.from.make<node>({.id = i}), quick);
  REQUIRE(thrown_by([&] { e.tx.flush(std::chrono::milliseconds(50)); }).code == errc::timed_out);
  for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(e.rx.recv<node>()->id == i);
  e.tx.flush();
  // Both ways at once, and more than the parts that may be on their way.
  beside other([&] {
    for (std::uint64_t i = 0; i < 300; ++i) {
      e.rx.send(e.to.make<node>({.id = i}), quick);
      if (e.rx.recv<node>()->id != i) throw fm::error(errc::corrupt, "another node");
    }
    e.rx.flush();
  });
  for (std::uint64_t i = 0; i < 300; ++i) {
    e.tx.send(e.from.make<node>({.id = i}), quick);
    REQUIRE(e.tx.recv<node>()->id == i);
  }
  e.tx.flush();
  require_ok(other);
}

TEST_CASE("connections that nobody agreed on cost who opens them the channel") {
  fm::heap to(small());
  fm::channel_listener listener(to, "tcp://127.0.0.1:0", narrow);
  const auto refused = [&](const std::vector<std::uint16_t>& indices, bool asks) {
    impostor other(listener.url(), asks ? flag_stream : std::uint16_t{0}, indices);
    REQUIRE(other.is_left());
  };
  refused({0}, false);       // none were agreed on
  refused({1}, true);        // the second one first
  refused({0, 0}, true);     // one twice
  refused({0, 1, 1}, true);  // one too many
  refused({7}, true);
  impostor good(listener.url(), flag_stream, {0, 1});
  fm::channel rx = [&] {
    for (;;) {
      fm::channel c = listener.accept();
      if (thrown_by([&] { (void)c.readable(std::chrono::milliseconds(20)); }).code == errc::ok) return c;
    }
  }();
  REQUIRE(good.part(0, flag_first | flag_last, {7, 0, 0}, 1) == errc::ok);
  REQUIRE(rx.recv<node>()->id == 7);
}

TEST_CASE("what is said on a connection of its own is checked, and ends the channel at both ends") {
  fm::heap to(small());
  fm::channel_listener listener{to, "tcp://127.0.0.1:0", narrow};
  impostor other{listener.url(), flag_stream, {0, 1}};
  fm::channel rx{listener.accept()};
  other.part(0, flag_first | flag_last, {7, 0, 0}, 1);
  REQUIRE(rx.recv<node>()->id == 7);
  SECTION("a reference to what is not there") { other.part(1, flag_first | flag_last, {1, 9, 0}, 1, 2); }
  SECTION("a part out of its turn") { other.part(2, flag_first | flag_last, {1, 0, 0}, 1, 2); }
  SECTION("a part that is larger than was agreed") {
    other.part(1, flag_first, std::vector<std::uint64_t>(narrow.part / 8 + 1), 0, 2);
  }
  SECTION("a length that no message has") {
    auto h = make(kind::part, 2);
    h.a = 1;
    h.bytes = 0xffffffff;
    REQUIRE(::send(other.sockets[0].get(), &h, sizeof h, MSG_NOSIGNAL) == sizeof h);
  }
  SECTION("what is no part") { other.say(make(kind::credit)); }
  SECTION("what goes aside where that has come") {
    auto h = make(kind::aside);
    h.a = 3;
    (void)other.message(h, {1, 2, 3});
  }
  SECTION("a part by the session") {
    auto h = make(kind::part, 2);
    h.a = 1;
    h.flags = flag_first | flag_last;
    (void)other.message(h, {1, 2, 3});
  }
  REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::bad_frame);
  REQUIRE(other.is_left());
  REQUIRE(objects_left(to) == 0);
  require_sound(to);
}

TEST_CASE("a listener that asks before it is asked gets its answer") {
  fm::heap from(small());
  for (int i = 0; i < 20; ++i) {
    hasty_listener listener;
    const auto server = fm::fabric::listen("tcp://127.0.0.1:0", {}, listener);
    const fm::channel tx = fm::channel::connect(from, server->url());
    REQUIRE(fm::test::await([&] { return listener.described.load(); }));
  }
}

TEST_CASE("a connection of its own that breaks by itself ends the channel, and what had come is there") {
  fm::heap to(small());
  fm::channel_listener listener{to, "tcp://127.0.0.1:0", narrow};
  impostor other{listener.url(), flag_stream, {0, 1}};
  fm::channel rx{listener.accept()};
  SECTION("that of what it sends") {
    other.part(0, flag_first | flag_last, {7, 0, 0}, 1);
    ::shutdown(other.sockets[0].get(), SHUT_RDWR);
    REQUIRE(rx.recv<node>()->id == 7);
    REQUIRE(thrown_by([&] { rx.recv<node>(); }).code == errc::disconnected);
  }
  SECTION("that of what it is sent") {
    ::shutdown(other.sockets[1].get(), SHUT_RDWR);
    REQUIRE(thrown_by([&] { rx.send(to.make<node>({.id = 1})); }).code == errc::disconnected);
  }
  SECTION("and a receiver that answers what cannot be") {
    const fm::detail::part_answers lie{1u << 20, 1, 1, 0};
    REQUIRE(::send(other.sockets[1].get(), &lie, sizeof lie, MSG_NOSIGNAL) == sizeof lie);
    REQUIRE(thrown_by([&] { rx.send(to.make<node>({.id = 1})); }).code == errc::bad_frame);
    REQUIRE(other.is_left());
  }
}
