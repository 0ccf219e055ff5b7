// Sends and receives that go on by themselves: waited for, tested, awaited in tasks beside fetches, and dropped.
#include "channel/fixture.h"
#include "channel/worker.h"

using namespace channel_test;
using fm::errc;

namespace {

/// An order that stops where the test wants, and throws when it may go on.
struct held_order {
  enum stage : std::uint32_t { in_order, wanted, held, let_go };
  static inline std::atomic<std::uint32_t> at{in_order};
  static void next(stage s) {
    at = s;
    at.notify_all();
  }
  bool operator()(std::uint64_t a, std::uint64_t b) const {
    if (at.load() == in_order) return a < b;
    next(held);
    at.wait(held);
    throw fm::error(errc::cancelled, "no order");
  }
};

}  // namespace

TEST_CASE("sends and receives go on by themselves, and in their order") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport);
  std::vector<fm::channel_operation<void>> sends;
  std::vector<fm::channel_operation<fm::ptr<node>>> receives;
  for (std::uint64_t i = 0; i < 40; ++i) {
    receives.push_back(e.rx.recv_async<node>());
    sends.push_back(e.tx.send_async(make_list(e.from, 500 + i)));
  }
  for (std::uint64_t i = 0; i < 40; ++i) {
    require_list(receives[i].wait(), 500 + i);
    sends[i].wait();
    REQUIRE(receives[i].test());
    REQUIRE(sends[i].test());
  }
  require_sound(e.from);
  require_sound(e.to);
}

TEST_CASE("a flush waits for sends that were begun before it, whether or not they have left") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport, {.window = 16384, .part = 4096});
  constexpr std::uint64_t n = 50;
  std::vector<fm::channel_operation<void>> sends;
  for (std::uint64_t i = 0; i < n; ++i)
    sends.push_back(e.tx.send_async(make_list(e.from, 2000), {.until = fm::delivery::sent}));
  REQUIRE(thrown_by([&] { e.tx.flush(std::chrono::milliseconds(1)); }).code == errc::timed_out);
  std::thread receiver([&] {
    for (std::uint64_t i = 0; i < n; ++i) (void)e.rx.recv<node>();
  });
  e.tx.flush(std::chrono::minutes(5));
  std::uint64_t over = 0;
  for (auto& s : sends) over += s.test();
  receiver.join();
  REQUIRE(over == n);
}

TEST_CASE("a flush does not wait for a graph that is being sent, which may be given up before anybody hears of it") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  INFO(transport);
  ends e(transport);
  const fm::map<std::uint64_t, std::uint64_t, held_order> m(e.from);
  for (std::uint64_t i = 0; i < 2000; ++i) m.insert(i, i);
  held_order::next(held_order::wanted);
  beside sender([&] { e.tx.send(m); });
  held_order::at.wait(held_order::wanted);
  const thrown flush = thrown_by([&] { e.tx.flush(); });
  const std::uint64_t parts = e.tx.stats().parts_sent;
  held_order::next(held_order::let_go);
  REQUIRE(sender.join() == errc::cancelled);
  held_order::next(held_order::in_order);
  REQUIRE(flush.text == "");
  REQUIRE(parts == 0);
  // Its number is the next one's.
  e.tx.send(e.from.make<node>({.id = 3}), {.until = fm::delivery::sent});
  REQUIRE(e.rx.recv<node>()->id == 3);
  e.tx.flush();
  REQUIRE(e.rx.stats().graphs_refused == 0);
}

TEST_CASE("an operation that is not over says so, and gives its error when it is") {
  ends e("tcp");
  auto r = e.rx.recv_async<node>();
  REQUIRE_FALSE(r.test());
  e.tx.send(e.from.make<node>({.id = 3}));
  REQUIRE(r.wait()->id == 3);
  auto late = e.rx.recv_async<node>({.within = std::chrono::milliseconds(20)});
  const thrown t = thrown_by([&] { late.wait(); });
  INFO(t.text);
  REQUIRE(t.code == errc::timed_out);
  REQUIRE(t.text.starts_with("timed_out: channel with "));
  REQUIRE(late.test());
  REQUIRE(thrown_by([&] { (void)e.tx.send_async(fm::ptr<node>()); }).code == errc::null_handle);
}

TEST_CASE("an operation that finds the queue full waits for a place, until its deadline") {
  ends e("local");
  std::vector<fm::channel_operation<fm::ptr<node>>> receives;
  for (std::size_t i = 0; i < fm::detail::worker::waiting_max; ++i) receives.push_back(e.rx.recv_async<node>());
  const auto one_more = [&](fm::duration within) { receives.push_back(e.rx.recv_async<node>({.within = within})); };
  REQUIRE(thrown_by([&] { one_more(std::chrono::milliseconds(20)); }).code == errc::timed_out);
  REQUIRE(receives.size() == fm::detail::worker::waiting_max);
  std::thread sender([&] {
    for (std::uint64_t i = 0; i <= fm::detail::worker::waiting_max; ++i) e.tx.send(e.from.make<node>({.id = i + 1}));
  });
  one_more(std::chrono::minutes(5));  // the first one that ends leaves its place
  for (std::uint64_t i = 0; i < receives.size(); ++i) CHECK(receives[i].wait()->id == i + 1);
  sender.join();
}

TEST_CASE("closing a channel ends its operations") {
  ends e("tcp", {.linger = fm::duration{}});
  auto r = e.rx.recv_async<node>();
  auto s = e.tx.send_async(e.from.make<node>({.id = 3}), {.until = fm::delivery::sent});
  s.wait();
  REQUIRE(r.wait()->id == 3);
  auto waiting = e.rx.recv_async<node>();
  e.rx.close();
  REQUIRE(thrown_by([&] { waiting.wait(); }).code == errc::cancelled);
  REQUIRE(thrown_by([&] { (void)e.rx.recv_async<node>(); }).code == errc::cancelled);
}

TEST_CASE("an operation that is dropped is carried out all the same") {
  ends e("local");
  (void)e.tx.send_async(make_list(e.from, 100));
  require_list(e.rx.recv<node>(), 100);
  (void)e.rx.recv_async<node>();
  e.tx.send(make_list(e.from, 100));
}

TEST_CASE("tasks await transfers beside fetches, many on one thread") {
  const std::string transport = GENERATE("local", "tcp");
  INFO(transport);
  ends e(transport);
  constexpr std::uint64_t calls = 50;
  const auto answer = [](fm::channel& c, fm::heap& h) -> fm::task<std::uint64_t> {
    const fm::ptr<node> request = co_await c.recv_async<node>();
    const auto first = co_await request.fetch();
    const fm::ptr<node> reply = h.make<node>({.id = first->id + 1, .next = request});
    co_await c.send_async(reply);
    co_return first->id;
  };
  beside server([&] {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < calls; ++i) sum += fm::run(answer(e.rx, e.to));
    if (sum != calls * (calls - 1) / 2) throw fm::error(errc::corrupt, "other requests came");
  });
  // Two tasks on this thread: one sends all requests, the other takes all answers.
  const auto ask = [&]() -> fm::task<std::uint64_t> {
    for (std::uint64_t i = 0; i < calls; ++i) {
      const fm::ptr<node> request = e.from.make<node>({.id = i});
      co_await e.tx.send_async(request);
    }
    co_return 0;
  };
  const auto take = [&]() -> fm::task<std::uint64_t> {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < calls; ++i) {
      const fm::ptr<node> reply = co_await e.tx.recv_async<node>();
      const auto pin = co_await reply.fetch();
      sum += pin->id;
    }
    co_return sum;
  };
  std::vector<fm::task<std::uint64_t>> both;
  both.push_back(ask());
  both.push_back(take());
  const std::vector<std::uint64_t> results = fm::run_all(both, 2);
  require_ok(server);
  REQUIRE(results[1] == calls * (calls + 1) / 2);
}

TEST_CASE("an await throws what ends its transfer, and may be destroyed before that") {
  ends e("tcp");
  const auto take = [&](fm::duration within) -> fm::task<int> {
    try {
      co_await e.rx.recv_async<node>({.within = within});
    } catch (const fm::error& x) {
      co_return static_cast<int>(x.code());
    }
    co_return 0;
  };
  REQUIRE(fm::run(take(std::chrono::milliseconds(20))) == static_cast<int>(errc::timed_out));
  {
    fm::detail::run_loop loop;
    fm::task<int> abandoned = take(std::chrono::milliseconds(50));
    abandoned.handle().resume();
    REQUIRE_FALSE(abandoned.done());
  }
  REQUIRE(fm::run(take(std::chrono::milliseconds(20))) == static_cast<int>(errc::timed_out));
}
