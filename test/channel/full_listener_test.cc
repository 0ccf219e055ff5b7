// A listener that has as many channels as it may have: who comes then is refused, and loses nothing of the others.
#include "channel/fixture.h"

using namespace channel_test;
using fm::errc;

TEST_CASE("a channel that was closed where it was accepted takes no place, although who connected keeps his end") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  CAPTURE(transport);
  fm::heap from(small()), to(small());
  fm::channel_listener listener(to, fresh_url(transport), {.channels_max = 1});
  const fm::channel first = fm::channel::connect(from, listener.url());
  listener.accept().close();
  fm::channel second;
  const auto give_up = fm::clock::now() + std::chrono::minutes(1);
  thrown t;
  do {
    t = thrown_by([&] { second = fm::channel::connect(from, listener.url()); });
  } while (t.code == errc::refused && fm::clock::now() < give_up);
  REQUIRE(t.code == errc::ok);
  second.send(from.make<node>({.id = 2}), {.until = fm::delivery::sent});
  CHECK(listener.accept().recv<node>()->id == 2);
}

TEST_CASE("a listener with channels_max channels refuses the next one, and takes it when there is room again") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  CAPTURE(transport);
  fm::heap from(small()), to(small());
  fm::channel_listener listener(to, fresh_url(transport), {.channels_max = 2});
  const fm::send_options quick{.until = fm::delivery::sent};
  const auto connect = [&] { return fm::channel::connect(from, listener.url()); };
  fm::channel first = connect(), second = connect();
  first.send(from.make<node>({.id = 1}), quick);
  second.send(from.make<node>({.id = 2}), quick);

  // Nobody has accepted them: the list of those that wait is full, too.
  thrown t = thrown_by([&] { (void)connect(); });
  INFO(t.text);
  CHECK(t.code == errc::refused);

  fm::channel one = listener.accept();
  CHECK(one.recv<node>()->id == 1);
  t = thrown_by([&] { (void)connect(); });  // it is a channel still
  CHECK(t.code == errc::refused);

  first.close();
  one.close();
  fm::channel third;
  const auto give_up = fm::clock::now() + std::chrono::minutes(10);  // the first may count for a moment more
  do {
    t = thrown_by([&] { third = connect(); });
  } while (t.code == errc::refused && fm::clock::now() < give_up);
  REQUIRE(t.code == errc::ok);
  third.send(from.make<node>({.id = 3}), quick);
  CHECK(listener.accept().recv<node>()->id == 2);
  CHECK(listener.accept().recv<node>()->id == 3);
}
