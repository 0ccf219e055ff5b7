// The last word of an end that goes: whoever's graph was refused hears why, however soon the end that refused it, its listener and
// its path are gone.
#include "channel/fixture.h"

#include <optional>

using namespace channel_test;
using fm::errc;

namespace {

struct other_type {
  float value = 0;
  fm::ref<other_type> next;
};

constexpr int rounds = sanitized ? 10 : 60;

/// What the sender of a list to an end that refuses it, and goes, is told.
thrown told_to_the_sender(fm::heap& from, fm::heap& to, const std::string& transport, bool connects, std::uint64_t n) {
  const fm::channel_options o{.window = 16_KiB, .window_parts = 8, .part = 4_KiB};
  const auto list = make_list(from, n);
  thrown t;
  fm::channel tx;
  {
    fm::channel_listener listener(connects ? from : to, fresh_url(transport), o);
    fm::channel other = fm::channel::connect(connects ? to : from, listener.url(), o);
    fm::channel accepted = listener.accept();
    tx = connects ? std::move(accepted) : std::move(other);
    fm::channel rx = connects ? std::move(other) : std::move(accepted);
    std::optional<fm::channel_listener> kept;
    if (connects) kept.emplace(std::move(listener));
    beside sender([&] { t = thrown_by([&] { tx.send(list); }); });
    const errc refused = thrown_by([&] { rx.recv<other_type>(); }).code;
    if (!connects) {
      fm::channel goes = std::move(rx);
      fm::channel_listener too = std::move(listener);
      (void)goes;
    } else {
      rx = fm::channel();
    }
    require_ok(sender);
    REQUIRE(refused == errc::layout_mismatch);
  }
  return t;
}

}  // namespace

TEST_CASE("a sender hears why its graph was refused, however soon the end that refused it is gone") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  const bool connects = GENERATE(false, true);
  const std::uint64_t n = GENERATE(std::uint64_t{1}, std::uint64_t{20'000});
  INFO(transport << ", the end that refuses " << (connects ? "connected" : "listened") << ", " << n << " objects");
  fm::heap from(small()), to(small());
  std::map<std::string, int> heard;
  for (int i = 0; i < rounds; ++i) {
    const thrown t = told_to_the_sender(from, to, transport, connects, n);
    if (t.code != errc::layout_mismatch) UNSCOPED_INFO(t.text);
    ++heard[std::string(fm::to_string(t.code))];
  }
  REQUIRE(heard == std::map<std::string, int>{{"layout_mismatch", rounds}});
  require_sound(from);
  require_sound(to);
}
